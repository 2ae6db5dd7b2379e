"""What only the data can tell of a study, before its first run: missing files, a model or partition that does not fit."""

from benchmarks.study.plan import ROOT, Cell, Plan
from benchmarks.study.source import StudyError
from fedcomp.data import load, partition_train, read_card
from fedcomp.flower.strategy import check_links
from fedcomp.methods import parse
from fedcomp.tasks import build_model, input_shape
from server.strategies import parse_strategy


def check(plan: Plan, data_dir: str) -> None:
    """Raise `StudyError` for cells that could not start, naming the line.

    Partitions are made for the first seed of each; what the seed itself decides is found when the cell starts.
    """
    models: set[tuple[str, str]] = set()
    links: set[tuple[str, str, str]] = set()
    partitions: set[tuple[str, str, int]] = set()
    for cell in plan.cells:
        dataset, model, scheme, strategy, uplink, downlink = (
            str(cell.settings[key]) for key in ("dataset", "model", "partition", "strategy", "uplink", "downlink")
        )
        try:
            key = "uplink"
            if (strategy, uplink, downlink) not in links:
                links.add((strategy, uplink, downlink))
                check_links(parse_strategy(strategy).build(), parse(uplink), parse(downlink))
            key = "dataset"
            card = read_card(dataset, ROOT / "datasets")
            data = load(card, data_dir or None)
            key = "model"
            if (dataset, model) not in models:
                models.add((dataset, model))
                build_model(model, input_shape(card), card.num_classes, 0)
            key = "partition"
            if (dataset, scheme, cell.clients) not in partitions:
                partitions.add((dataset, scheme, cell.clients))
                partition_train(data, scheme, cell.clients, int(cell.settings["seed"]))
        except ValueError as error:
            raise _error(plan, cell, key, str(error)) from None


def _error(plan: Plan, cell: Cell, key: str, sentence: str) -> StudyError:
    value = cell.settings[key]
    section = plan.origins[cell.name].get(key)
    told = f"{key} is {value!r}; {sentence}"
    return section.error(key, told, value) if section else StudyError(told)
