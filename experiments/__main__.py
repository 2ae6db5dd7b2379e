"""Run a study: a grid of methods, partitions and seeds, from one TOML file to one table and one report.

    fedcomp study experiments/studies/quick.toml

Cells that are already in the results do not run again, so the same command resumes a study that was stopped; the cells
that were running then start again. Two studies may have cells in common, with the same settings and label: --reuse takes
them from the other's results. See docs/how-to/experiments.md.
"""

import argparse
import math
import os
import shlex
import shutil
import sys
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.check import check_data, check_settings, uses_gpu
from experiments.command import new_parser
from experiments.configuration import Cell
from experiments.environment import environment, read_environment, write_environment
from experiments.plan import StudyError, StudyPlan, read_plan
from experiments.results import Results, claim, read_csv, write_text
from experiments.runner import Event, Failure, Workers, ray_workers, run_cells
from experiments.study_report import About, made_now, render
from fedcomp.commands import path_of

STUDIES = Path(__file__).resolve().parent / "studies"
FAILED = 1
REFUSED = 2
STOPPED = 130
"""The exit code after Ctrl-C, as in shells."""
BAR = (
    TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %, elapsed"),
    TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
)  # fmt: skip


class _StoppedError(Exception):
    """Ctrl-C while cells were running; how far the study came has been printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 when all cells are done, 1 when some failed, 2 without a run or a report, 130 for Ctrl-C."""
    options = _options(arguments)
    console = Console(stderr=True)
    try:
        return _run_study(options, console)
    except StudyError as error:
        _log(console, f"fedcomp study: {error}")
    except OSError as error:
        _log(console, f"fedcomp study: {error.filename or 'the results'}: {error.strerror or error}")
    except _StoppedError:
        return STOPPED
    except KeyboardInterrupt:
        _log(console, "stopped; the same command resumes the study")
        return STOPPED
    return REFUSED


def _run_study(options: argparse.Namespace, console: Console) -> int:
    data_dir = str(options.data_dir.absolute()) if options.data_dir else ""
    plan = read_plan(options.study)
    _log(console, f"{options.study}: {len(plan.cells)} cells; checking settings and data")
    check_settings(plan)
    check_data(plan, data_dir, lambda line: _log(console, line))
    others = [read_csv(path) for path in options.reuse]
    if options.check:
        _log(console, "the study can run")
        return 0
    folder = (options.out or Path("runs") / "studies" / _name(options.study)).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with claim(folder):
        failures: list[Failure] = []
        trials = Results(folder / "tuning.csv", [cell.name for cell in plan.trials]) if plan.trials else None
        if trials:
            for table in others:
                trials.reuse(table)
            failures += _run(plan, plan.trials, trials, data_dir, options, console)
        cells = plan.tuned(trials.table) if trials else plan.cells
        results = Results(folder / "results.csv", [cell.name for cell in cells])
        taken = sum(results.reuse(table) for table in (*others, *([trials.table] if trials else [])))
        if others:
            _log(console, f"cells taken from other results: {taken}")
        failures += _run(plan, cells, results, data_dir, options, console)
        for failure in failures:
            _log(console, f"failed: {plan.describe(failure.cell)}: {failure.reason}")
        _report(plan, cells, trials.cells if trials else set(), results, options, console)
    return FAILED if failures else 0


def _run(
    plan: StudyPlan,
    cells: Sequence[Cell],
    results: Results,
    data_dir: str,
    options: argparse.Namespace,
    console: Console,
) -> list[Failure]:
    """Run the cells that the results lack, add each to them as it ends, and return those that failed.

    Raises `_StoppedError` after Ctrl-C, when it has said how far the study came.
    """
    _log(console, f"{_done(cells, results)}; results: {results.path}")
    missing = [cell for cell in cells if cell.name not in results.cells]
    if not missing:
        return []
    found = environment()
    if options.ray:
        workers, scratch = ray_workers(options.ray, options.workers), None
    else:
        workers = Workers(options.workers or (1 if uses_gpu(plan) else os.cpu_count() or 1))
        scratch = results.path.parent / ".running"
        shutil.rmtree(scratch, ignore_errors=True)  # of a study that was killed
        scratch.mkdir()
    failures: list[Failure] = []
    try:
        with (
            closing(run_cells(missing, data_dir, workers, scratch)) as events,
            closing(show_progress(events, plan, missing, console)) as shown,
        ):
            for event in shown:
                if isinstance(event, Failure):
                    failures.append(event)
                else:
                    results.add(event.rows)
                    write_environment(results.path.parent, found)
    except KeyboardInterrupt:
        _log(console, f"stopped: {_done(cells, results)}; the same command resumes the study")
        if results.cells:
            path = shlex.quote(str(results.path))
            _log(console, f"a report of these cells: fedcomp report {path}")
        raise _StoppedError from None
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
    return failures


def show_progress(
    events: Iterable[Event], plan: StudyPlan, cells: Sequence[Cell], console: Console
) -> Generator[Event, None, None]:
    """Yield the events of these cells, then show each: a line, and on a terminal a bar in proportion to their work."""
    with Progress(*BAR, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"0 of {len(cells)} cells", total=sum(cell.work for cell in cells))
        for ended, event in enumerate(events, start=1):
            yield event
            if isinstance(event, Failure):
                outcome = f"failed: {event.reason}"
            else:
                accuracy = float(event.rows["accuracy"].iloc[-1])
                outcome = "diverged" if math.isnan(accuracy) else f"accuracy {accuracy:.1%}"
            _log(progress.console, f"{ended} of {len(cells)}: {plan.describe(event.cell)}: {outcome}")
            progress.update(bar, advance=event.cell.work, description=f"{ended} of {len(cells)} cells")


def _report(
    plan: StudyPlan,
    cells: Sequence[Cell],
    tried: Collection[str],
    results: Results,
    options: argparse.Namespace,
    console: Console,
) -> None:
    """Write the report of `cells`; `tried` are the names of the trials that ended. Raises `StudyError` if it cannot be made."""
    table = results.select([cell.name for cell in cells])
    if table.empty:
        return
    study: Path = options.study.absolute()  # a report does not show folders outside of this one
    name = study.relative_to(Path.cwd()) if study.is_relative_to(Path.cwd()) else study.name
    about = About(
        title=plan.study.title,
        question=plan.study.question,
        targets=tuple(plan.study.targets),
        commands=(f"fedcomp study {name}{' --data-dir DIR' if options.data_dir else ''}",),
        notes=(*plan.study.notes, *_tuning_notes(plan, cells, tried)),
        results=results.path.name,
        environment=read_environment(results.path.parent),
        made=made_now(),
        cells_done=table["cell"].nunique(),
        cells_all=plan.num_runs,
    )
    path = results.path.with_name("report.html")
    try:
        page = render(table, about)
    except ValueError as error:
        raise StudyError(f"{results.path}: no report can be made: {error}") from None
    write_text(path, page)
    _log(console, f"report: {path}")


def _tuning_notes(plan: StudyPlan, cells: Sequence[Cell], tried: Collection[str]) -> Iterator[str]:
    """Yield a note for each setting of [tune]: how it was chosen, what each method got, and what could not be tried."""
    for key, values in plan.study.tune.items():
        of_methods = []
        for label in dict.fromkeys(trial.label for trial in plan.trials):
            chosen = {cell.settings[key] for cell in cells if cell.label == label}
            text = ", ".join(str(value) for value in values if value in chosen) or "none"
            failed = [
                f"{value} failed in {len(lost)} of {len(trials)} trials"
                for value in values
                if (trials := [one for one in plan.trials if one.label == label and one.settings[key] == value])
                and (lost := [one for one in trials if one.name not in tried])
            ]
            of_methods.append(f"{label}: {text}" + (f" ({', '.join(failed)})" if failed else ""))
        seed, names = plan.trials[0].settings["seed"], ", ".join(map(str, values))
        if any(trial.name not in tried for trial in plan.trials):
            names = f"those of {names} that could be tried"
        yield f"{key} was chosen for each method from {names}, by its accuracy with seed {seed}. {'; '.join(of_methods)}."
    if missing := plan.untried(cells):
        yield f"These have no runs, because no value of [tune] could be tried: {'; '.join(missing)}."


def _done(cells: Sequence[Cell], results: Results) -> str:
    return f"{sum(cell.name in results.cells for cell in cells)} of {len(cells)} cells are done"


def _log(console: Console, line: str) -> None:
    console.out(line, highlight=False)


def _name(study: Path) -> str:
    """Return the name of a study's folder: the file's name, after its folder's name if that is one of `STUDIES`."""
    study = study.absolute()
    return f"{study.parent.name}-{study.stem}" if study.parent.parent == STUDIES else study.stem


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser("fedcomp study", __doc__)
    parser.add_argument("study", type=path_of, help="the study file, TOML")
    parser.add_argument("--data-dir", type=path_of, help="the folder with the datasets' files; embedded ones need none")
    parser.add_argument("--out", type=path_of, help="folder for results.csv and report.html (runs/studies/NAME)")
    parser.add_argument(
        "--reuse",
        type=path_of,
        nargs="+",
        default=[],
        metavar="CSV",
        help="results of other studies, from which to take cells with the same settings and label",
    )
    parser.add_argument("--workers", type=_count, help="processes (default: one a core; one in all if a GPU is used)")
    parser.add_argument("--ray", metavar="ADDRESS", help="run on this Ray cluster; local starts one on this machine")
    parser.add_argument("--check", action="store_true", help="read and check the study, and run nothing")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; a whole number, 1 or more, is needed")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
