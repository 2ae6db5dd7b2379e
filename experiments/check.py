"""What a study's cells need beyond settings in range: models, links, devices and data that fit, before the first run."""

from collections.abc import Callable

from clients.devices import available, pick_device
from experiments.configuration import ROOT, Cell
from experiments.plan import Plan
from experiments.source import StudyError
from fedcomp.data import Card, load, partition_train, read_card
from fedcomp.flower.server.strategy import check_links
from fedcomp.methods import parse
from fedcomp.tasks import build_model, input_shape
from server.strategies import parse_strategy

EMBEDDED = "sklearn-digits"
"""The format of a dataset that needs no files."""
HUB_TIMEOUT_S = 10.0


def check_settings(plan: Plan) -> None:
    """Raise `StudyError`, naming the line, for a dataset, model, device or link that cannot be; no data are read."""
    seen: set[tuple[object, ...]] = set()
    for cell in plan.cells:
        at = {key: str(cell.settings[key]) for key in ("dataset", "model", "device", "strategy", "uplink", "downlink")}
        if tuple(at.values()) in seen:
            continue
        seen.add(tuple(at.values()))
        key = "dataset"
        try:
            card = _card(cell)
            key = "model"
            build_model(at["model"], input_shape(card), card.num_classes, 0)
            key = "device"
            pick_device(at["device"])
            key = "uplink"
            check_links(parse_strategy(at["strategy"]).build(), parse(at["uplink"]), parse(at["downlink"]))
        except ValueError as error:
            raise _error(plan, cell, "downlink" if "as downlink" in str(error) else key, str(error)) from None


def check_data(plan: Plan, data_dir: str, tell: Callable[[str], None]) -> None:
    """Raise `StudyError`, naming the line, for data that are not there, and for partitions that they cannot meet.

    Partitions are made for the first seed of each; what the seed itself decides is found when the cell starts.  `tell`
    hears where data come from that are on no disk.
    """
    asked: set[str] = set()
    seen: set[tuple[object, ...]] = set()
    for cell in plan.cells:
        at = tuple(cell.settings[key] for key in ("dataset", "partition", "clients"))
        if at in seen:
            continue
        seen.add(at)
        key = "dataset"
        try:
            card = _card(cell)
            if not data_dir and card.format != EMBEDDED and card.name not in asked:
                asked.add(card.name)
                tell(f"{card.name}: no --data-dir; asking the Hugging Face hub")
                _ask_hub(card)
            data = load(card, data_dir or None)
            key = "partition"
            partition_train(data, str(cell.settings["partition"]), cell.clients, int(cell.settings["seed"]))
        except ValueError as error:
            raise _error(plan, cell, key, str(error)) from None


def uses_gpu(plan: Plan) -> bool:
    """Return whether a cell trains on another device than the CPU."""
    devices = {str(cell.settings["device"]) for cell in plan.cells}
    return bool(devices - {"auto", "cpu"}) or ("auto" in devices and available()[0] != "cpu")


def _card(cell: Cell) -> Card:
    return read_card(str(cell.settings["dataset"]), ROOT / "datasets")


def _ask_hub(card: Card) -> None:
    """Raise `ValueError` soon where the hub does not answer: loading from it would try again and again, for a minute."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import OfflineModeIsEnabled

    if card.hub is None:
        return  # whose error is for `load` to say
    try:
        HfApi().dataset_info(card.hub.id, timeout=HUB_TIMEOUT_S)
    except OfflineModeIsEnabled:
        return  # the user's own wish: `load` looks into the cache
    except Exception as error:  # whatever a network can do; it is raised again as what it means here
        raise ValueError(
            f"{card.hub.id} did not come from the Hugging Face hub ({' '.join(str(error).split())}); "
            f"--data-dir with the files from {card.source} is needed, or HF_HUB_OFFLINE=1 where the hub's cache has them"
        ) from None


def _error(plan: Plan, cell: Cell, key: str, sentence: str) -> StudyError:
    return plan.place(cell, key).error(f"{key} is {cell.settings[key]!r}; {' '.join(sentence.split())}")
