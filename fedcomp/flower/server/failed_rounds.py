"""Rounds without a result, because the strategy raised an exception or its model diverged: the run goes on after them."""

from collections.abc import Generator
from contextlib import contextmanager
from logging import ERROR

from fedcomp.flower._compat import log


class FailedRounds:
    """Catches what a strategy raises in a round, so that one reply cannot end a run.

    `numbers` are the rounds in which it raised since `begin`, and `results` counts those with a new model.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start to count, as at the start of a run."""
        self.numbers: list[int] = []
        self.results = 0
        self._last: Exception | None = None

    @contextmanager
    def guard(self, server_round: int, what: str) -> Generator[None]:
        """Log an exception of the block, with its traceback, and count the round as failed; `what` says what failed."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the code of a strategy may raise anything
            log(
                ERROR,
                "fedcomp: %s failed in round %d, which has no result: %s: %s",
                what,
                server_round,
                type(error).__name__,
                error,
                exc_info=error,
            )
            self._last = error
            if server_round not in self.numbers:
                self.numbers.append(server_round)

    def end(self) -> None:
        """Raise the last exception if no round has had a result: then it was no single reply that failed."""
        if self._last is not None and not self.results:
            self._last.add_note(f"fedcomp: no round has had a result; {len(self.numbers)} failed")
            raise self._last
