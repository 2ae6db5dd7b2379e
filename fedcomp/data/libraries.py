"""Datasets from other libraries: scikit-learn's digits, and the datasets of the Hugging Face hub."""

from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import required
from fedcomp.data.card import Card, Hub
from fedcomp.data.dataset import Arrays, DataError

NUM_TEST_DIGITS = 360
HUB_TIMEOUT_S = 3.0


def read_digits() -> tuple[Arrays, Arrays]:
    """Return train (1437) and test (360) of the digits as images float32 (N, 1, 8, 8) in [0, 1] and labels (N,).

    Both splits have the same class distribution, and are always the same.  They are inside scikit-learn and need no network.
    Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits", 1998.
    """
    with required("fedcomp.data", "app", "sklearn"):
        from sklearn import datasets as sklearn_datasets
        from sklearn import model_selection

    digits = cast(Any, sklearn_datasets.load_digits())
    images = (np.asarray(digits.data) / 16).astype(np.float32).reshape(-1, 1, 8, 8)  # stored as 0 to 16
    labels = np.asarray(digits.target).astype(np.int64)
    split = cast(Any, model_selection.train_test_split)
    parts = split(np.arange(len(labels)), test_size=NUM_TEST_DIGITS, stratify=labels, random_state=0)
    train, test = (np.sort(np.asarray(part, np.int64)) for part in parts)
    return Arrays(images[train], labels[train]), Arrays(images[test], labels[test])


def read_hub(card: Card) -> tuple[Arrays, Arrays]:
    """Return train and test from the hub, or from its cache on this machine; raise `DataError` if that is impossible."""
    with required("fedcomp.data", "app", "datasets", "flwr_datasets"):
        from datasets.exceptions import DatasetsError
        from flwr_datasets import FederatedDataset

    hub = _hub(card)
    _ask(card, hub)
    try:
        federated = FederatedDataset(dataset=hub.id, partitioners={}, shuffle=False)
        train, test = federated.load_split(hub.train), federated.load_split(hub.test)
    except (OSError, ValueError, DatasetsError) as error:
        raise _unreachable(card, hub, str(error)) from None
    return _arrays(card, hub, train, f"{hub.id}[{hub.train}]"), _arrays(card, hub, test, f"{hub.id}[{hub.test}]")


def _ask(card: Card, hub: Hub) -> None:
    """Raise `DataError` soon if the hub does not answer: loading from it would retry for half a minute.

    A dataset in this machine's cache, or in a folder, needs no answer.
    """
    with required("fedcomp.data", "app", "datasets", "huggingface_hub"):
        from datasets.config import HF_DATASETS_CACHE
        from huggingface_hub import HfApi
        from huggingface_hub.errors import OfflineModeIsEnabled

    if Path(hub.id).exists() or (Path(HF_DATASETS_CACHE) / hub.id.replace("/", "___")).exists():
        return
    try:
        HfApi().dataset_info(hub.id, timeout=HUB_TIMEOUT_S)
    except OfflineModeIsEnabled:
        return  # the user chose this: the load looks into the cache
    except Exception as error:  # noqa: BLE001 - a network can fail in many ways; raise all of them as what they mean here
        raise _unreachable(card, hub, " ".join(str(error).split())) from None


def _unreachable(card: Card, hub: Hub, reason: str) -> DataError:
    needed = f"a connection is needed, or data-dir with the files from {card.source}"
    return DataError(f"{card.name}: {hub.id} did not come from the Hugging Face hub ({reason}); {needed}")


def read_saved(card: Card, folder: Path) -> tuple[Arrays, Arrays]:
    """Return train and test from a folder that ``DatasetDict.save_to_disk`` wrote."""
    with required("fedcomp.data", "app", "datasets"):
        from datasets.exceptions import DatasetsError

        import datasets

    hub = _hub(card)
    try:
        saved: Any = datasets.load_from_disk(str(folder))
        train, test = saved[hub.train], saved[hub.test]
    except (OSError, ValueError, KeyError, DatasetsError) as error:
        raise DataError(f"{folder}: {error!s}; a DatasetDict of {hub.train} and {hub.test} is needed") from None
    return _arrays(card, hub, train, f"{folder}[{hub.train}]"), _arrays(card, hub, test, f"{folder}[{hub.test}]")


def _hub(card: Card) -> Hub:
    if card.hub is None:
        raise DataError(f"{card.name}: its card has no [hub]; data-dir with the files from {card.source} is needed")
    return card.hub


def _arrays(card: Card, hub: Hub, split: Any, where: str) -> Arrays:
    """Return the two columns as arrays; images become (C, H, W)."""
    for column in (hub.image, hub.label):
        if column not in split.column_names:
            raise DataError(f"{where}: no column {column!r}; there are: {', '.join(split.column_names)}")
    samples = [_planes(np.asarray(sample), card, where) for sample in split.with_format("numpy")[hub.image]]
    if not samples:
        raise DataError(f"{where}: no samples; at least 1 is needed")
    return Arrays(np.stack(samples), np.asarray(split[hub.label][:]))


def _planes(sample: NDArray[Any], card: Card, where: str) -> NDArray[Any]:
    """Return one sample in the card's shape: grey images get a channel dimension, (H, W, C) becomes (C, H, W)."""
    if sample.shape != card.shape and len(card.shape) == 3:
        channels, height, width = card.shape
        if channels == 1 and sample.shape == (height, width):
            return sample[np.newaxis]
        if sample.shape == (height, width, channels):
            return sample.transpose(2, 0, 1)
    if sample.shape != card.shape:
        raise DataError(f"{where}: a sample of shape {sample.shape}; {card.name} needs {card.shape}")
    return sample
