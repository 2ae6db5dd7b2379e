"""Single keys from the terminal, which scroll and sort the monitor's table of nodes."""

import os
import select
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def keyboard() -> Generator[Callable[[float], str]]:
    """Yield a function that waits some seconds for a key, and returns it, or nothing.

    It only waits without a terminal, and in the background, where the system stops a process that uses the keyboard.
    """
    try:
        import termios
        import tty
    except ImportError:  # Windows
        yield _sleep
        return
    if sys.stdin is None or not sys.stdin.isatty() or _in_background(sys.stdin.fileno()):
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


def _in_background(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) != os.getpgrp()
    except OSError:  # it is not the terminal that controls this process
        return False


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""
