"""Monitor a run in the terminal, while it goes on or after it.

fedcomp monitor runs/digits-001
fedcomp monitor runs/digits-001 --prometheus 9400

Keys: s sorts the nodes by another column; arrows, space and b scroll; g and G go to the first and the last; q ends.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.live import Live

from deploy.monitor.keyboard import keyboard
from deploy.monitor.snapshot import MonitorError, RunSnapshot, read_run
from deploy.monitor.tui import Position, most_above, render
from fedcomp.commands import new_parser, path_of
from server.run_status import RUNNING

POLL_S = 1.0
FILE_WIDTH = 120


def watch(folder: Path, console: Console, *, once: bool, stays: bool = False) -> None:
    """Show the run until it ends, or with `once` as it is now; if it `stays`, until Ctrl-C or the key q."""
    run, position, key = read_run(folder), Position(), ""
    try:
        if not once and (stays or run.state == RUNNING):
            with Live(console=console, auto_refresh=False, transient=True) as live, keyboard() as wait:
                while (stays or run.state == RUNNING) and key != "q":
                    live.update(render(run, console.height, position), refresh=console.is_terminal)
                    key = wait(POLL_S)
                    position = position.after(key, most_above(run, console.height))
                    run = read_run(folder, run)
    finally:  # the last view stays on the screen, also after Ctrl-C
        console.print(render(run, console.height if console.is_terminal else None, position))


class _Reader:
    """Reads the run again at each call, and parses only the rounds since the last one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before: RunSnapshot | None = None

    def __call__(self) -> RunSnapshot:
        self._before = read_run(self._folder, self._before)
        return self._before


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 after one sentence for a folder that is no run, or 130 for Ctrl-C."""
    parser = new_parser("fedcomp monitor", __doc__)
    parser.add_argument("folder", type=path_of, help="the run's folder, such as runs/digits-001")
    parser.add_argument("--once", action="store_true", help="print the current state, and exit")
    text = "serve metrics to Prometheus on this port until Ctrl-C, also when the run has ended"
    parser.add_argument("--prometheus", type=int, metavar="PORT", help=text)
    parser.add_argument("--per-node", action="store_true", help="metrics of each node, too: 17 series a node")
    parser.add_argument("--host", default="127.0.0.1", help="of the metrics (default: %(default)s)")
    args = parser.parse_args(arguments)
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = FILE_WIDTH
    try:
        read_run(args.folder)  # or one sentence, before anything is served
        serves = args.prometheus is not None
        follow = console.is_terminal or serves
        with _serving(args.folder, args.host, args.prometheus, per_node=args.per_node):
            watch(args.folder, console, once=args.once or not follow, stays=serves)
    except MonitorError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _serving(folder: Path, host: str, port: int | None, *, per_node: bool) -> AbstractContextManager[object]:
    """Serve the run's metrics for as long as the context lasts; raise `MonitorError` if that is impossible."""
    if port is None:
        return nullcontext()
    try:
        from deploy.monitor.prometheus import serving
    except ModuleNotFoundError:
        raise MonitorError("--prometheus needs prometheus-client; pip install prometheus-client installs it") from None
    return serving(_Reader(folder), host, port, per_node=per_node)


if __name__ == "__main__":
    sys.exit(main())
