"""Warnings of tensors that compression harms, because they are not weights."""

from collections.abc import Sequence

from fedcomp.core import Vector
from fedcomp.flower.server.rounds.dominant import DominantTensors
from fedcomp.flower.server.rounds.exploding import ExplodingChanges
from fedcomp.flower.server.rounds.lost_signs import LostSigns
from fedcomp.flower.server.rounds.lost_zeros import LostZeros
from fedcomp.flower.server.rounds.validated_reply import ValidatedReply
from fedcomp.flower.server.rounds.zero_copies import log_zero_copies
from fedcomp.sync import Publisher
from fedcomp.wire import TensorFlags


class ModelWarnings:
    """Logs these warnings, while it sees each version of a run."""

    def __init__(self) -> None:
        self._dominant, self._exploding = DominantTensors(), ExplodingChanges()
        self._zeros, self._signs = LostZeros(), LostSigns()

    def before_version(
        self,
        server_round: int,
        replies: Sequence[ValidatedReply],
        change: Vector,
        publisher: Publisher,
        unchanged: TensorFlags,
        *,
        is_mean: bool,
        is_lossy: bool,
    ) -> None:
        """Look at the `change`, float32 (n,), that a strategy made of `replies`, before `publisher` publishes it.

        `is_mean` says that it is the mean of the updates, `unchanged`, bool (t,), which tensors none of them changes, and
        `is_lossy` that one of the links makes errors or leaves something out.
        """
        model = publisher.replica
        self._dominant.watch(server_round, replies, change if is_mean else None, unchanged, model.layout)
        if is_lossy:
            self._exploding.watch(server_round, change, model.vector)
            if not model.version:
                log_zero_copies(server_round, model.layout, model.vector, unchanged)
        self._zeros.begin(server_round, publisher)
        self._signs.begin(server_round, change, publisher)

    def after_version(self, replies: Sequence[ValidatedReply], change: Vector, publisher: Publisher) -> None:
        """Look at what `publisher` made of the change."""
        self._zeros.end(replies, change, publisher)
        self._signs.end(replies, change, publisher)
