"""Watch a run in the terminal, while it goes on or after it: ``python -m deploy.monitor.__main__ runs/digits-001``."""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.live import Live

from deploy.monitor.run_tail import RunTail, WatchError
from deploy.monitor.tui import render
from server.run_status import RUNNING

POLL_S = 0.5
WIDE = 120


def watch(follower: RunTail, console: Console, *, once: bool) -> None:
    """Show the run until it ends; with `once`, as it is now."""
    view = follower.read()
    try:
        if not once and view.state == RUNNING:
            with Live(console=console, auto_refresh=False, transient=True) as live:
                while view.state == RUNNING:
                    live.update(render(view, console.height), refresh=console.is_terminal)
                    time.sleep(POLL_S)
                    view = follower.read()
    finally:  # the whole of it stays on the screen, after Ctrl-C too
        console.print(render(view))


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 with one sentence for a folder that is no run, 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m deploy.monitor.__main__", description="Watch a run until it ends.")
    parser.add_argument("folder", type=Path, help="the run's folder, as runs/digits-001")
    parser.add_argument("--once", action="store_true", help="print how it stands, and exit")
    parser.add_argument(
        "--prometheus", type=int, metavar="PORT", help="meanwhile, serve its numbers to Prometheus there"
    )
    parser.add_argument("--host", default="127.0.0.1", help="where they are served (default: %(default)s)")
    args = parser.parse_args(arguments)
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE  # of a file, nobody knows how wide it may be
    try:
        follower = RunTail(args.folder)
        follow = console.is_terminal or args.prometheus is not None
        with nullcontext() if args.prometheus is None else _serving(args.folder, args.host, args.prometheus):
            watch(follower, console, once=args.once or not follow)
    except WatchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


@contextmanager
def _serving(folder: Path, host: str, port: int) -> Iterator[None]:
    """Serve the run's numbers meanwhile; raise `WatchError` where that cannot be."""
    try:
        from deploy.monitor.prometheus import serving
    except ModuleNotFoundError:
        raise WatchError("--prometheus needs prometheus-client; pip install 'fedcomp[watch]' brings it") from None
    with ExitStack() as stack:
        try:
            # Prometheus asks in threads of its own: each time, what follows the run begins anew.
            stack.enter_context(serving(lambda: RunTail(folder).read(), host, port))
        except (OSError, OverflowError) as error:
            raise WatchError(f"{host}:{port} cannot be listened on: {error}") from None
        yield


if __name__ == "__main__":
    sys.exit(main())
