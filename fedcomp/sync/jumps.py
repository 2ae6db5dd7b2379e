"""Jumps: the sum of many deltas in one frame, which is far smaller than the deltas one after the other.

Published deltas hit the same entries again and again, and signs cancel.  On the grid (`fedcomp.quantized.steps`) the sum is
exact, so a jump ends in the same bits as the deltas.
"""

from collections.abc import Iterable

import numpy as np

from fedcomp.quantized import MAX_STEPS, Steps, steps_in
from fedcomp.sync.replica import Origin, Replica, split_payload
from fedcomp.wire import FLAG_EXACT, FLAG_GRID, Frame, decode_body

Place = tuple[int, int]
"""Version and fingerprint."""


class Jumps:
    """Makes the jumps to one version, each once.

    `origin_size` is the size of the last jump from an origin, 0 if there was none.
    """

    def __init__(self) -> None:
        self.origin_size = 0
        self._end: Place | None = None
        self._made: dict[Place, bytes | None] = {}

    def along(self, deltas: tuple[Frame, ...], replica: Replica) -> bytes | None:
        """Return the jump in place of the consecutive `deltas` that lead to `replica`; None if one of them is off the grid."""
        start = (deltas[0].base_version, deltas[0].before)
        made = self._made_to(replica)
        if start not in made:
            steps = _sum_of(deltas, replica) if all(frame.flags & FLAG_GRID for frame in deltas) else None
            exact = any(frame.flags & FLAG_EXACT for frame in deltas)
            made[start] = None if steps is None else replica.jump_frame(start, steps, exact=exact).to_bytes()
        return made[start]

    def from_origin(self, origin: Origin, replica: Replica) -> bytes:
        """Return the jump from the base of `origin`, which is that of `replica`."""
        start, made = origin.base.place, self._made_to(replica)
        if (jump := made.get(start)) is None:
            frame = replica.jump_frame(start, origin.steps(), exact=origin.base.exact != replica.exact)
            made[start] = jump = frame.to_bytes()
        self.origin_size = len(jump)
        return jump

    def _made_to(self, replica: Replica) -> dict[Place, bytes | None]:
        if self._end != replica.place:
            self._end, self._made = replica.place, {}
        return self._made


def _sum_of(deltas: Iterable[Frame], replica: Replica) -> Steps | None:
    """Return the sum of deltas on the grid; None if an entry has more units than a step can have."""
    layout, total = replica.layout, np.zeros(replica.layout.n, np.int64)
    for frame in deltas:
        body, _ = split_payload(frame, frame.payload, layout, b"")
        steps = steps_in(decode_body(frame.codec, body, layout))
        if steps is None:
            return None
        total[steps.indices] += steps.counts  # no index is there twice
    indices = np.flatnonzero(total)
    counts = total[indices]
    return Steps(layout.n, indices, counts.astype(np.int32)) if not (np.abs(counts) > MAX_STEPS).any() else None
