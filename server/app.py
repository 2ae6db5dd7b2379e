"""The ServerApp: checks everything before the first round, runs the rounds, and writes a report."""

import random
from collections.abc import Callable

from flwr.app import Context, UserConfig
from flwr.serverapp import Grid, ServerApp

import fedcomp
from fedcomp import FedcompError
from fedcomp.data import Dataset
from fedcomp.errors import DivergedError
from fedcomp.flower import (
    GROWTH,
    Checkpoint,
    Clipping,
    CompressedStrategy,
    DynamicSampling,
    GridWrapper,
    RigL,
    parse_mode,
)
from server import report
from server.evaluate import Evaluator, build_evaluator, check_same_preparation, check_training
from server.fit import check_partition, check_strategy, check_updates, load_dataset
from server.folder import NUM_PARTITIONS, RunFolder, create_folder, earlier_settings, reopen_folder
from server.nodes import OrderedGrid, query_partitions, wait_for_nodes
from server.rounds import Rounds, RunLog
from server.run_status import RunStatus
from server.settings import Settings, SettingsError
from server.split import check_split, run_split
from server.strategies import parse_strategy

WEIGHT_METRICS = {"examples": "num-examples", "uniform": "uniform-weight"}
"""The setting `weighting` -> the metric that every node reports and that means are weighted by, of models and metrics."""

GROWTH_UPLINK = fedcomp.topk(density=1.0, values="fp16", feedback=False)
"""What sends the few gradients that nodes report to RigL: all that are not zero."""
NO_RESULT = "no round had a result"

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that the run config describes; raise `SettingsError` if it cannot start."""
    run(GridWrapper(grid), context.run_config)  # the wrapper asks for replies more often


def run(grid: Grid, config: UserConfig, *, draws: bool = True) -> None:
    """Run the federation that `config` describes, and draw its figure if it `draws`.

    Raises `SettingsError` if it cannot start.
    """
    try:
        settings = Settings.from_config(config)
        if settings.split:
            run_split(settings, grid)
            return
        evaluator, dataset, connected = prepare(settings, grid)
        partitions, num_partitions = query_partitions(grid)
        check_partition(settings, dataset, num_partitions or connected)
        ordered = OrderedGrid(grid, partitions)
        folder, strategy = open_run(settings, ordered.rank, num_partitions)
    except (ValueError, FedcompError) as error:
        raise SettingsError(str(error)) from None
    except OSError as error:
        raise SettingsError(f"a file or a connection cannot be used: {error}") from error
    settings = settings.model_copy(update={"run_name": folder.path.name})  # of a run that got a number for a name
    print(f"{settings.dataset}, {settings.model}, {settings.strategy}: {folder.path}", flush=True)
    status = RunStatus(folder, strategy, partitions, settings.num_rounds)
    log = RunLog(settings, folder, evaluator)
    random.seed(settings.seed)  # the strategy samples nodes with it, unless its checkpoint holds a later state
    begun = strategy.round, strategy.version if strategy.round > 0 else 0
    try:
        with status:
            strategy.start(
                ordered,
                strategy.arrays if strategy.round > 0 else evaluator.initial_arrays(),
                num_rounds=settings.num_rounds - strategy.round,
                timeout=settings.round_timeout,
                evaluate_fn=Rounds(log, strategy, status),
            )
        totals = strategy.ledger.total()
        log.write_results(totals, strategy.arrays, draws=draws)
        if packed := evaluator.packed(strategy.arrays):
            folder.write("inference.npz", packed)
    except OSError as error:
        text = f"the run has ended after round {strategy.round}, because a file or a connection cannot be used: {error}"
        raise SettingsError(text) from None
    print(report.table(settings, log.records, totals), flush=True)
    if strategy.round > begun[0] and strategy.version == begun[1]:
        raise RuntimeError(f"{NO_RESULT}; see the errors of the nodes and of the rounds in the log")
    if log.diverged:
        raise DivergedError("the last loss is no number: the training has diverged")


def prepare(settings: Settings, grid: Grid) -> tuple[Evaluator, Dataset, int]:
    """Return the evaluator, the dataset, and the number of nodes that are connected.

    Raises `ValueError` if strategy, dataset, model and nodes do not fit together.
    """
    check_split(settings)
    check_strategy(settings)
    check_training(settings.training, settings.learning_rate_schedule, settings.strategy, settings.uplink)
    dataset = load_dataset(settings)
    evaluator = build_evaluator(settings.model, dataset, settings.seed, settings.device, settings.training)
    connected = wait_for_nodes(grid, settings.min_nodes, settings.node_timeout)
    check_updates(settings, connected)
    return evaluator, dataset, connected


def open_run(
    settings: Settings, order: Callable[[int], int], num_partitions: int | None = None
) -> tuple[RunFolder, CompressedStrategy]:
    """Return the run's folder and strategy, new or from a checkpoint; `order` gives the rank of a node among the others."""
    inner = parse_strategy(settings.strategy)(
        fraction_train=settings.fraction_train,
        fraction_evaluate=settings.fraction_evaluate,
        weighted_by_key=WEIGHT_METRICS[settings.weighting],
        min_train_nodes=1,
        min_evaluate_nodes=1,
        min_available_nodes=1,  # min-nodes is for the start; later, the others do not wait for a device that is off
    )
    uplink, downlink = fedcomp.parse(settings.uplink), fedcomp.parse(settings.downlink)
    folder = (reopen_folder if settings.resume else create_folder)(settings, num_partitions)
    check_same_preparation(str(earlier_settings(folder)["training"]), settings.training)
    strategy = CompressedStrategy(
        DynamicSampling(inner, beta=settings.sampling_decay) if settings.sampling_decay else inner,
        uplink=uplink,
        downlink=downlink,
        records={GROWTH: GROWTH_UPLINK} if isinstance(inner, RigL) else None,
        clipping=Clipping(settings.clip_norm, settings.clip_median),
        seed=settings.seed,
        checkpoint=Checkpoint(folder.checkpoint, settings.checkpoint_every) if settings.checkpoint_every else None,
        shared_start=True,
        order=order,
        mode=parse_mode(settings.mode),
    )
    if settings.resume:
        _resume(settings, folder, strategy, num_partitions)
    return folder, strategy


def _resume(settings: Settings, folder: RunFolder, strategy: CompressedStrategy, num_partitions: int | None) -> None:
    """Load the checkpoint, if there is one, write the settings, and remove what the run wrote after the checkpoint."""
    has_checkpoint = folder.checkpoint.exists()
    if has_checkpoint:
        strategy.load(folder.checkpoint)
    if strategy.round > settings.num_rounds or (strategy.round == settings.num_rounds and folder.summary.exists()):
        raise ValueError(
            f"num-rounds is {settings.num_rounds}, but run {settings.run_name!r} has finished {strategy.round};"
            " a greater number is needed to resume"
        )
    folder.keep_rounds(strategy.round if has_checkpoint else -1)
    if num_partitions is None:
        num_partitions = earlier_settings(folder).get(NUM_PARTITIONS)
    folder.write_settings(settings, num_partitions)  # some may differ from those that it began with
    for old in (folder.summary, folder.nodes):
        old.unlink(missing_ok=True)
