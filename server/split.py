"""Split learning as a run of the app: the same data, models, records and report; the text of `split` says how it trains."""

from dataclasses import asdict, replace

from flwr.serverapp import Grid
from torch import nn

from fedcomp.core import parse_setting
from fedcomp.errors import DivergedError
from fedcomp.flower.split import SplitTraining
from fedcomp.split import SplitSettings, SplitTraffic, cut, parse_split
from fedcomp.sync import Traffic
from server import report
from server.evaluate import build_evaluator
from server.fit import check_partition, load_dataset
from server.folder import create_folder
from server.nodes import query_partitions, wait_for_nodes
from server.rounds import RunLog
from server.run_records import RoundRecord
from server.run_status import RunStatus
from server.settings import Settings, SettingsError

UNUSED: dict[str, object] = {
    "strategy": "fedavg",
    "weighting": "examples",
    "clip_norm": 0.0,
    "clip_median": 0.0,
    "mode": "sync",
    "sampling_decay": 0.0,
    "fraction_evaluate": 0.0,
    "local_epochs": 1,
    "local_steps": 0,
    "learning_rate_schedule": "constant",
    "optimizer": "sgd",
    "client_momentum": "reset",
    "weight_decay": 0.0,
    "training": "",
    "uplink": "auto",
    "downlink": "auto",
    "checkpoint_every": 0,
    "resume": False,
}
"""Settings of federated averaging, with the values that they have if nobody sets them."""
IN_THE_TEXT: dict[str, object] = {"batch_size": 10, "learning_rate": 0.1, "momentum": 0.0}
"""Settings that the text of `split` has, too."""
ALL_NODES = (0.2, 1.0)
"""The values of fraction-train: its default, and the one that says that all nodes train in each round."""


def check_split(settings: Settings) -> None:
    """Raise `SettingsError` for a setting that split learning does not use, and that is not as it is by default.

    Without split learning, it is one for a layer alone.
    """
    if not settings.split:
        if settings.split_layer:
            layer = settings.split_layer
            raise SettingsError(f"split-layer is {layer!r}, and split is empty; a text such as 'split()' is needed")
        return
    for name, default in (UNUSED | IN_THE_TEXT).items():
        if (value := getattr(settings, name)) != default:
            key = name.replace("_", "-")
            reason = "is named in the text of split" if name in IN_THE_TEXT else "has no place in split learning"
            raise SettingsError(f"{key} is {value!r}, and {key} {reason}; with split, {default!r} is needed here")
    if settings.fraction_train not in ALL_NODES:
        share = settings.fraction_train
        raise SettingsError(
            f"fraction-train is {share!r}, and all nodes train in each round of split learning; 1.0 is needed"
        )


def parts_of(settings: Settings, model: nn.Module) -> tuple[SplitSettings, nn.Module, nn.Module]:
    """Return how to train, and the lower and the upper part of `model`; raise `ValueError` for settings that do not fit."""
    check_split(settings)
    split = parse_setting("split", settings.split, parse_split)
    return split, *parse_setting("split-layer", settings.split_layer, lambda name: cut(model, name))


def run_split(settings: Settings, grid: Grid) -> None:
    """Train by split learning on all nodes of `grid`, and write the run's folder.

    Raises `ValueError` for settings that do not fit, before anything starts.
    """
    check_split(settings)
    dataset = load_dataset(settings)
    evaluator = build_evaluator(settings.model, dataset, settings.seed, settings.device)
    split, lower, upper = parts_of(settings, evaluator.model)
    training = SplitTraining(lower, upper, evaluator.x[:1], split, seed=settings.seed, timeout_s=settings.round_timeout)
    connected = wait_for_nodes(grid, settings.min_nodes, settings.node_timeout)
    _, num_partitions = query_partitions(grid)  # a node that cannot take part says why
    check_partition(settings, dataset, num_partitions or connected)
    folder = create_folder(settings, num_partitions)
    print(f"{settings.dataset}, {settings.model} cut behind {settings.split_layer!r}: {folder.path}", flush=True)
    log, before = RunLog(settings, folder, evaluator), SplitTraffic()
    status = RunStatus(folder, None, {}, settings.num_rounds)

    def record(number: int) -> None:
        nonlocal before
        status.update()
        loss, accuracy = log.evaluate(number, evaluator.initial_arrays())
        traffic, before = _traffic(training.traffic, before), replace(training.traffic)
        if number == 1 and not traffic.dense_uplink_bytes:
            raise RuntimeError("no node trained in round 1; see the errors of the nodes in the log")
        links = (str(split.forward), str(split.backward)) if number else ("", "")
        log.add(RoundRecord(number, accuracy, loss, traffic, seconds=log.seconds(), uplink=links[0], downlink=links[1]))

    with status:
        record(0)
        training.run(
            grid,
            settings.num_rounds,
            min_nodes=settings.min_nodes,
            node_timeout_s=settings.node_timeout,
            on_round=record,
        )
    totals = _traffic(training.traffic, SplitTraffic())
    log.write_results(totals, evaluator.initial_arrays())
    print(report.table(settings, log.records, totals), flush=True)
    if log.diverged:
        raise DivergedError("the last loss is no number: the training has diverged")


def _traffic(now: SplitTraffic, before: SplitTraffic) -> Traffic:
    sent = {name: amount - getattr(before, name) for name, amount in asdict(now).items()}
    both = ("uplink_bytes", "downlink_bytes", "dense_uplink_bytes", "dense_downlink_bytes")
    return Traffic(**{name: sent[name] for name in both}, key_bytes=sent["weight_bytes"])
