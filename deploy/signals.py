"""Signals that end a program: turned into exits while it works, and ignored while it cleans up."""

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_as_exits() -> Generator[None]:
    """Turn the signals that end a program into `SystemExit`, so that ``finally`` blocks run."""

    def leave(number: int, _frame: object) -> NoReturn:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in END_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_end_signals() -> None:
    """Ignore these signals from now on: a second Ctrl-C must not interrupt the cleanup."""
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
