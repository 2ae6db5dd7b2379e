"""Run a study: a grid of methods, partitions and seeds, from one TOML file to one table and one report.

    python -m experiments experiments/studies/quick.toml

Cells that are in the results already are not run again, so a study that was stopped goes on where it was; what was
running when it stopped begins anew.  Two studies may have cells in common, of the same settings and label: with --reuse they
are taken from the other's results.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from experiments.check import check_data, check_settings, uses_gpu
from experiments.live_progress import watched
from experiments.plan import Plan, read_plan
from experiments.results import to_frame
from experiments.runner import Results, claimed, read_cells, run_all
from experiments.source import StudyError
from experiments.study_report import About, write
from experiments.workers import Failure

STUDIES = Path(__file__).resolve().parents[0] / "studies"

FAILED = 1
REFUSED = 2
STOPPED = 130
"""The exit code of who was stopped by Ctrl-C, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 when all cells are done, 1 when some failed, 2 for a study that cannot run, 130 for Ctrl-C."""
    options = _options(arguments)
    screen = Console(stderr=True)
    try:
        return _study(options, screen)
    except StudyError as error:
        _tell(screen, f"python -m experiments: {error}")
    except OSError as error:
        _tell(screen, f"python -m experiments: {error.filename or 'the results'}: {error.strerror or error}")
    except KeyboardInterrupt:
        _tell(screen, "stopped; the same command goes on where it was")
        return STOPPED
    return REFUSED


def _study(options: argparse.Namespace, screen: Console) -> int:
    data_dir = str(options.data_dir.expanduser().absolute()) if options.data_dir else ""
    plan = read_plan(options.study)
    _tell(screen, f"{options.study}: {len(plan.cells)} cells; checking settings and data")
    check_settings(plan)
    check_data(plan, data_dir, lambda said: _tell(screen, said))
    if options.check:
        _tell(screen, "nothing is in its way")
        return 0
    others = {name: rows for table in options.reuse for name, rows in read_cells(table).items()}
    folder = (options.out or Path("runs") / "studies" / _name(options.study)).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with claimed(folder):
        results = Results(folder / "results.csv", [cell.name for cell in plan.cells])
        if options.reuse:
            acked = results.reuse(others)
            _tell(screen, f"taken from other results: {acked}")
        _tell(screen, f"{_done(plan, results)}; results: {results.path}")
        try:
            failures = _run(plan, data_dir, options.workers, results, screen)
        except KeyboardInterrupt:
            _tell(screen, f"stopped: {_done(plan, results)}; the same command goes on where it was")
            if results.cells:
                _tell(
                    screen, f"what is there so far: python -m experiments.study_report {shlex.quote(str(results.path))}"
                )
            return STOPPED
        _report(plan, results, options, screen)
    for failure in failures:
        _tell(screen, f"failed: {plan.describe(failure.cell)}: {failure.reason}")
    return FAILED if failures else 0


def _run(plan: Plan, data_dir: str, workers: int | None, results: Results, screen: Console) -> list[Failure]:
    """Run the cells that are missing; return those that failed."""
    missing = [cell for cell in plan.cells if cell.name not in results.cells]
    count = workers or (1 if uses_gpu(plan) else os.cpu_count() or 1)
    with watched(plan, missing, screen) as told:
        return run_all(missing, data_dir, min(count, len(missing)), results, told)


def _report(plan: Plan, results: Results, options: argparse.Namespace, screen: Console) -> None:
    """Write the report, if a cell is done."""
    done = [results.cells[cell.name] for cell in plan.cells if cell.name in results.cells]
    if not done:
        return
    data = " --data-dir DIR" if options.data_dir else ""
    about = About(
        title=plan.title,
        question=plan.question,
        targets=plan.targets,
        commands=(f"python -m experiments {_shown(options.study)}{data}",),
        notes=plan.notes,
        cells_done=len(done),
        cells_all=len(plan.cells),
    )
    path = results.path.with_name("report.html")
    write(path, to_frame(row for rows in done for row in rows), about)
    _tell(screen, f"report: {path}")


def _done(plan: Plan, results: Results) -> str:
    return f"{sum(cell.name in results.cells for cell in plan.cells)} of {len(plan.cells)} cells are done"


def _tell(screen: Console, said: str) -> None:
    screen.out(said, highlight=False)


def _shown(path: Path) -> str:
    """Return a path as it is read from here, without this machine's folders where that can be."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return path.name


def _name(study: Path) -> str:
    """Return a name for a study's folder: the file's, behind its folder's where that is one of `STUDIES`."""
    study = study.absolute()
    return f"{study.parent.name}-{study.stem}" if study.parent.parent == STUDIES else study.stem


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path, help="the study file, TOML")
    parser.add_argument("--data-dir", type=Path, help="where the datasets' own files lie; not needed for digits")
    parser.add_argument("--out", type=Path, help="folder for results.csv and report.html (runs/studies/NAME)")
    parser.add_argument(
        "--reuse",
        type=Path,
        nargs="+",
        default=[],
        metavar="CSV",
        help="results of other studies, to take cells of the same settings and label from",
    )
    parser.add_argument("--workers", type=_count, help="processes (one a core; one alone where a GPU is used)")
    parser.add_argument("--check", action="store_true", help="read and check the study, and run nothing")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; a whole number, 1 or more, is needed")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
