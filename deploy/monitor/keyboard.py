"""Single keys from the terminal, which scroll and sort the monitor's table of nodes."""

import os
import select
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def keyboard() -> Generator[Callable[[float], str]]:
    """Yield a function that waits some seconds for a key, and returns it, or nothing; without a terminal, it only waits."""
    try:
        import termios
        import tty
    except ImportError:  # Windows
        yield _sleep
        return
    if not sys.stdin.isatty():
        yield _sleep
        return
    stream = sys.stdin.fileno()
    before = termios.tcgetattr(stream)

    def wait(seconds: float) -> str:
        ready = select.select([stream], [], [], seconds)[0]
        return os.read(stream, 32).decode("ascii", "ignore") if ready else ""

    try:
        tty.setcbreak(stream)  # Ctrl-C still interrupts
        yield wait
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""
