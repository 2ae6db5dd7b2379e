"""Checks before the first run whether models, links, devices and data fit together."""

from collections.abc import Callable, Iterable, Sequence

from clients.devices import available, pick_device
from clients.plug_ins import check_plug_ins
from clients.samples import own_card
from experiments.configuration import Cell
from experiments.plan import StudyPlan
from fedcomp.data import load, partition_train
from fedcomp.flower import Clipping, check_links
from fedcomp.methods import parse
from fedcomp.tasks import build_model, input_shape
from fedcomp.training import parse_schedule
from server.evaluate import check_plug_in_names
from server.fit import lacking_updates
from server.settings import Settings
from server.strategies import parse_strategy


def check_settings(plan: StudyPlan) -> None:
    """Raise `StudyError` for a dataset, model, device, plug-in or link that cannot be used; read no data."""
    keys = ("dataset", "model", "device", "strategy", "training", "learning-rate-schedule", "uplink", "downlink")
    for cell in _first_of_each(plan, (*keys, "clip-norm", "clip-median")):
        text = {key: str(cell.settings[key]) for key in keys}
        key = "dataset"
        try:
            card = own_card(text["dataset"])
            key = "model"
            shape = input_shape(card)
            model = build_model(text["model"], shape, card.num_classes, 0)
            key = "device"
            device = pick_device(text["device"])
            key = "learning-rate-schedule"
            parse_schedule(text[key])
            key = "training"
            check_plug_in_names(text[key], text["strategy"], text["uplink"])
            check_plug_ins(text[key], model.to(device), shape)
            key = "uplink"
            links = parse_strategy(text["strategy"])(), parse(text["uplink"]), parse(text["downlink"])
            check_links(*links)
            norm, median = (float(cell.settings[name]) for name in ("clip-norm", "clip-median"))
            key = "clip-norm" if norm else "clip-median"
            check_links(*links, Clipping(norm, median))
        except ValueError as error:
            raise plan.error(cell, "downlink" if "as downlink" in str(error) else key, str(error)) from None
    for cell in _first_of_each(plan, ("clients", "clients-per-round", "fraction-train", "sampling-decay", "strategy")):
        if lack := lacking_updates(Settings.from_config(cell.config()), cell.clients):
            raise plan.error(cell, "strategy", lack)


def check_data(plan: StudyPlan, data_dir: str, log: Callable[[str], None]) -> None:
    """Raise `StudyError` for data that are missing, and for partitions that they do not allow.

    Each partition is made for its first seed; a problem with another seed shows when that cell starts. `log` receives a
    line for each dataset that comes from the Hugging Face hub.
    """
    keys = ("dataset", "partition", "clients")
    asked: set[str] = set()
    for cell in _first_of_each(plan, keys):
        key = "dataset"
        try:
            card = own_card(str(cell.settings["dataset"]))
            if not data_dir and not card.embedded and card.name not in asked:
                asked.add(card.name)
                log(f"{card.name}: no --data-dir; asking the Hugging Face hub")
            data = load(card, data_dir or None)
            key = "partition"
            partition_train(data, str(cell.settings["partition"]), cell.clients, int(cell.settings["seed"]))
        except ValueError as error:
            raise plan.error(cell, key, str(error)) from None


def uses_gpu(plan: StudyPlan) -> bool:
    """Return whether a cell trains on another device than the CPU."""
    devices = {str(cell.settings["device"]) for cell in plan.cells}
    return bool(devices - {"auto", "cpu"}) or ("auto" in devices and available()[0] != "cpu")


def _first_of_each(plan: StudyPlan, keys: Sequence[str]) -> Iterable[Cell]:
    """Return the first cell with each combination of values of these settings."""
    found: dict[tuple[object, ...], Cell] = {}
    for cell in plan.cells:
        found.setdefault(tuple(cell.settings.get(key) for key in keys), cell)
    return found.values()
