"""Rounds without a result, because the strategy raised an exception or its model diverged: the run goes on after them."""

from collections.abc import Generator
from contextlib import contextmanager
from logging import ERROR

from fedcomp.flower._compat import log


class FailedRounds:
    """Catches what a strategy raises in a round, so that one reply cannot end a run.

    `numbers` are the rounds since `begin` in which training had no result for that reason.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start to count, as at the start of a run."""
        self.numbers: list[int] = []
        self._has_result = False
        self._last: Exception | None = None

    def succeed(self) -> None:
        """Note that a round has had a new model."""
        self._has_result, self._last = True, None  # the exception holds all updates of its round

    @contextmanager
    def guard(self, server_round: int, what: str, *, counts: bool) -> Generator[None]:
        """Log an exception of the block, with its traceback; `what` failed, and the round `counts` as one without a result."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the code of a strategy may raise anything
            log(
                ERROR,
                "fedcomp: %s failed in round %d and has no result: %s: %s",
                what,
                server_round,
                type(error).__name__,
                error,
                exc_info=error,
            )
            if counts:
                self.numbers.append(server_round)
                self._last = None if self._has_result else error

    def end(self) -> None:
        """Raise the last exception if no round has had a result: then it was no single reply that failed."""
        if self._last is not None:
            self._last.add_note(f"fedcomp: no round has had a result; {len(self.numbers)} failed")
            raise self._last
