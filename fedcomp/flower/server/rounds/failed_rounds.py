"""Rounds without a result: the strategy raised an exception, or its model diverged, or no update came.  The run goes on."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from logging import ERROR

from flwr.app import Message

from fedcomp.errors import NoUpdateError
from fedcomp.flower.compat import log


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
        self._missed, self._reason = list[int](), ""

    def miss(self, server_round: int, failed: Sequence[Message]) -> None:
        """Note a round in which nodes were asked to train, and no update can be used; `failed` are their replies.

        Call it before the strategy aggregates: what this raises about an empty list is no reason for a run without a result.
        """
        self._missed.append(server_round)
        errors = [reply for reply in failed if reply.has_error()]
        if errors and not self._reason:
            node, reason = errors[0].metadata.src_node_id, errors[0].error.reason
            self._reason = f"in round {server_round}, node {node}: {reason}"

    def succeed(self) -> None:
        """Note that a round has had a new model."""
        self._has_result, self._last = True, None  # the exception holds all updates of its round

    @contextmanager
    def guard(self, server_round: int, what: str, *, counts: bool) -> Generator[None]:
        """Log an exception of the block, with its traceback; `what` failed, and the round `counts` as one without a result."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the code of a strategy may raise anything
            text = "fedcomp: %s failed in round %d and has no result: %s: %s"
            log(ERROR, text, what, server_round, type(error).__name__, error, exc_info=error)
            if counts:
                self.numbers.append(server_round)
                if server_round not in self._missed and not self._has_result:
                    self._last = error

    def end(self, *, untrained: bool) -> None:
        """Raise an exception if no round has had a result: then it was no single reply that failed.

        It is the strategy's last one about updates.  Without one, it is a `NoUpdateError` if the model is `untrained`.
        """
        if self._last is not None:
            self._last.add_note(
                f"fedcomp: no round has had a result; {len(self.numbers)} failed, the last one is round {self.numbers[-1]}"
            )
            raise self._last
        if untrained and self._missed and not self._has_result:
            rounds = f"{len(self._missed)} round{'s' if len(self._missed) > 1 else ''}"
            why = self._reason or "no node has answered"
            raise NoUpdateError(f"the model is untrained: no update could be used in {rounds}; {why}")
