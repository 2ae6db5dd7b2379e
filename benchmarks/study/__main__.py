"""Run a study: a grid of methods, partitions and seeds, from one TOML file to one table and one report.

    python -m benchmarks.study benchmarks/studies/quick.toml

Cells that are in the results already are not run again, so a study that was stopped goes on where it was; what was
running when it stopped begins anew.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.study.check import check
from benchmarks.study.plan import Cell, Plan, read_plan
from benchmarks.study.report import About, write
from benchmarks.study.results import to_frame
from benchmarks.study.runner import Failure, Results, claimed, run_all
from benchmarks.study.source import StudyError

STOPPED = 130
"""The exit code of who was stopped by Ctrl-C, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 when all cells are done, 1 when some failed, 2 for a study that cannot run."""
    options = _options(arguments)
    screen = Console(stderr=True)
    data_dir = str(options.data_dir.expanduser().absolute()) if options.data_dir else ""
    try:
        plan = read_plan(options.study)
        screen.print(f"{options.study}: {len(plan.cells)} cells; checking data and partitions", highlight=False)
        check(plan, data_dir)
        if options.check:
            return 0
        folder = (options.out or Path("runs") / "studies" / options.study.stem).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with claimed(folder):
            return _run(plan, data_dir, options, folder, screen)
    except (StudyError, ValueError, OSError) as error:
        print(f"python -m benchmarks.study: {error}", file=sys.stderr)
        return 2


def _run(plan: Plan, data_dir: str, options: argparse.Namespace, folder: Path, screen: Console) -> int:
    results = Results(folder / "results.csv", [cell.name for cell in plan.cells])
    missing = [cell for cell in plan.cells if cell.name not in results.cells]
    screen.print(f"{len(plan.cells) - len(missing)} of {len(plan.cells)} cells are done; {folder}", highlight=False)
    failures: list[Failure] = []
    stopped = False
    if missing:
        try:
            failures = _run_missing(missing, data_dir, min(options.workers, len(missing)), results, screen)
        except KeyboardInterrupt:
            stopped = True
    done = [cell for cell in plan.cells if cell.name in results.cells]
    if done:
        frame = to_frame(row for cell in done for row in results.cells[cell.name])
        write(folder / "report.html", frame, _about(plan, options, len(done)))
        screen.print(f"{folder / 'results.csv'}\n{folder / 'report.html'}", highlight=False)
    for failure in failures:
        print(f"{failure.cell.label}, {_settings(failure.cell, plan)}: {failure.reason}", file=sys.stderr)
    if stopped:
        print(f"stopped: {len(done)} of {len(plan.cells)} cells are done; the same command goes on", file=sys.stderr)
        return STOPPED
    return 1 if failures else 0


def _run_missing(
    missing: Sequence[Cell], data_dir: str, workers: int, results: Results, screen: Console
) -> list[Failure]:
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>5.1f} %"), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    rounds: dict[str, int] = {}
    with Progress(*columns, console=screen) as progress:
        task = progress.add_task(f"cell 0 of {len(missing)}", total=sum(cell.work for cell in missing))

        def told(cell: Cell, done: int) -> None:
            rounds[cell.name] = max(done, rounds.get(cell.name, 0))
            whole = sum(1 for item in missing if rounds.get(item.name, 0) == item.rounds)
            work = sum(item.work * rounds.get(item.name, 0) / item.rounds for item in missing)
            progress.update(task, completed=work, description=f"cell {whole} of {len(missing)}")

        return run_all(missing, data_dir, workers, results, told)


def _about(plan: Plan, options: argparse.Namespace, done: int) -> About:
    data = " --data-dir DIR" if options.data_dir else ""
    return About(
        title=plan.title,
        question=plan.question,
        targets=plan.targets,
        commands=(f"python -m benchmarks.study {_shown(options.study)}{data}",),
        notes=plan.notes,
        cells_done=done,
        cells_all=len(plan.cells),
    )


def _shown(path: Path) -> str:
    """Return a path as it is read from here, without this machine's folders where that can be."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return path.name


def _settings(cell: Cell, plan: Plan) -> str:
    """Return the settings in which the cells of a study differ."""
    varied = [key for key in cell.settings if len({str(other.settings.get(key)) for other in plan.cells}) > 1]
    return ", ".join(f"{key} {cell.settings[key]}" for key in varied)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path, help="the study file, TOML")
    parser.add_argument("--data-dir", type=Path, help="where the datasets' own files lie; not needed for digits")
    parser.add_argument("--out", type=Path, help="folder for results.csv and report.html (runs/studies/NAME)")
    parser.add_argument("--workers", type=_workers, default=os.cpu_count() or 1, help="processes (all cores)")
    parser.add_argument("--check", action="store_true", help="read and check the study, and run nothing")
    return parser.parse_args(arguments)


def _workers(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; a whole number, 1 or more, is needed")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
