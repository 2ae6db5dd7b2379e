"""The squared error of unbiased methods below one bit an entry, on drawn vectors and on updates of models that really train.

    python -m benchmarks.below_one_bit --data-dir DIR

DIR has the folders `mnist` and `fashion-mnist`.  An update is the change of one node's model in one of the last rounds of plain
federated averaging, ten of a hundred nodes in each; of adapters, only the trained tensors.

The error is ||C(v) - v||^2 / ||v||^2, its mean over updates and seeds, at the bits of the whole body.  `bound` is the least
that any unbiased code of Gaussian vectors can have at the bits of crosspolytope's body, 1 / (4^bits - 1): Shannon's distortion
D = 4^-bits, scaled until it is unbiased.  `over bound` is the error of crosspolytope as a multiple of that.

A second table has the mean cosine of two updates of a round: only in what updates have in common could errors of several nodes
cancel more than independent ones do.
"""

import argparse
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedcomp
from benchmarks.measurement import print_table
from clients.app import app as study_app
from clients.samples import own_card
from deploy.run_config import ROOT, app_of
from fedcomp.core import Vector
from fedcomp.flower import LocalGrid
from fedcomp.tasks import build_model, input_shape

CLIENTS, A_ROUND = 100, 10
RECORDED, SEEDS = 5, 4
BITS = (0.3, 0.1, 0.03)
ENTRIES = 1 << 17
TRAINED = (
    ("cnn", "fashion-mnist", "stc(classes=2)", 0.05, 100),
    ("char_lstm", "sonnets", "iid()", 0.5, 100),
    ("lora", "mnist", "stc(classes=2)", 0.05, 100),
)
"""Model, dataset, partition, learning rate and rounds."""


class UpdateRecorder(LocalGrid):
    """A grid that records the updates of each round; `model` is the one that the round began with."""

    model: ArrayRecord

    def __init__(self, app: ClientApp, config: dict[str, Any]) -> None:
        super().__init__(app, CLIENTS, config, in_memory=True)
        self.found = list[list[Vector]]()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies."""
        replies = list(super().pull_messages(message_ids))
        if found := [self._update(reply.content.array_records["arrays"]) for reply in replies if reply.has_content()]:
            self.found.append(found)
        return replies

    def begin(self, _: int, model: ArrayRecord) -> None:
        """Remember the model of the next round."""
        self.model = model

    def _update(self, after: ArrayRecord) -> Vector:
        changes = (after[name].numpy() - array.numpy() for name, array in self.model.items())
        return np.concatenate([change.ravel() for change in changes if change.any()])


def updates(model: str, dataset: str, partition: str, rate: float, rounds: int, data_dir: Path) -> list[list[Vector]]:
    """Return the updates of each of the last rounds."""
    card = own_card(dataset)
    config = {
        **app_of(ROOT)["config"],
        "dataset": dataset,
        "data-dir": str(data_dir / dataset),
        "model": model,
        "partition": partition,
        "batch-size": 20,
        "learning-rate": rate,
        "local-steps": 5,
        "device": "cpu",
    }
    grid = UpdateRecorder(study_app, config)
    first = ArrayRecord(build_model(model, input_shape(card), card.num_classes, 0).state_dict())
    strategy = FedAvg(fraction_train=A_ROUND / CLIENTS, fraction_evaluate=0.0)
    strategy.start(grid, first, num_rounds=rounds, evaluate_fn=grid.begin)
    return grid.found[-RECORDED:]


def drawn() -> dict[str, list[Vector]]:
    """Return Gaussian vectors, and Gaussian vectors of which one entry in a hundred is not zero."""
    rng = np.random.default_rng(0)
    gaussian = [rng.standard_normal(ENTRIES, np.float32) for _ in range(RECORDED)]
    return {
        "Gaussian": gaussian,
        "sparse": [np.where(rng.random(ENTRIES) < 0.01, each, 0).astype(np.float32) for each in gaussian],
    }


def measured(method: str, vectors: list[Vector]) -> tuple[float, float]:
    """Return the bits an entry of the bodies, and the error."""
    compressor, bits, found = fedcomp.parse(method), list[float](), list[float]()
    for vector in vectors:
        wide = vector.astype(np.float64)
        for seed in range(SEEDS):
            body, _ = compressor.encode(vector, compressor.init(vector.size), seed=seed)
            error = compressor.decode(body, vector.size) - wide
            bits.append(8 * len(body) / vector.size)
            found.append(float(error @ error / (wide @ wide)))
    return float(np.mean(bits)), float(np.mean(found))


def mean_cosine(vectors: list[Vector]) -> float:
    """Return the mean cosine of two of the vectors."""
    directions = np.stack([vector / np.linalg.norm(vector) for vector in vectors])
    return float((directions @ directions.T)[np.triu_indices(len(vectors), 1)].mean())


def main() -> None:
    """Record, measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data-dir", required=True, type=Path, help="the folder of the folders mnist and fashion-mnist"
    )
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    vectors = drawn()
    rows, cosines = list[dict[str, object]](), list[dict[str, object]]()
    for model, dataset, partition, rate, rounds in TRAINED:
        last = updates(model, dataset, partition, rate, rounds, options.data_dir.expanduser().absolute())
        name = f"{model}, {dataset}"
        vectors[name] = [each[0] for each in last]
        cosines.append({"updates": name, "cosine": f"{np.mean([mean_cosine(each) for each in last]):.3f}"})
    for name, each in vectors.items():
        for bits in BITS:
            eden_bits, eden = measured(f"eden(bits={bits})", each)
            own_bits, own = measured(f"crosspolytope(bits={bits})", each)
            bound = 1 / (4**own_bits - 1)
            rows.append(
                {
                    "vectors": name,
                    "entries": f"{each[0].size:,}",
                    "eden, bits": f"{eden_bits:.4f}",
                    "error": f"{eden:.2f}",
                    "crosspolytope, bits": f"{own_bits:.4f}",
                    "error ": f"{own:.2f}",
                    "bound": f"{bound:.2f}",
                    "over bound": f"{own / bound:.2f}",
                }
            )
    print_table("squared error over squared norm", rows)
    print_table("mean cosine of two updates of a round", cosines)


if __name__ == "__main__":
    main()
