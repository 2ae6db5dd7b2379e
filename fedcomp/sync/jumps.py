"""Many deltas in one frame: a jump, which is their sum and far smaller, or a replay, if they have no exact sum.

Published deltas change the same entries again and again, and signs cancel.  On the grid (`fedcomp.quantized.steps`) the sum is
exact, so a jump ends in the same bits as the deltas.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedcomp.errors import OffGridError
from fedcomp.quantized import MAX_STEPS, Indices, Steps, steps_in
from fedcomp.sync.origin import Origin
from fedcomp.sync.replica import Replica, split_payload
from fedcomp.wire import FLAG_EXACT, FLAG_GRID, Frame, decode_body

Place = tuple[int, int]
"""Version and fingerprint."""
Total = tuple[Indices, NDArray[np.int64]]
"""A sum of deltas: indices, int64 (k,) ascending, and their counts, int64 (k,)."""
MIN_SAVING = 0.01
"""The least share of the bytes of its deltas that a replay saves."""
MAX_DECODED_BYTES = 1 << 26
"""The most memory for decoded deltas, and for the last sum: nodes that were away for different times have missed mostly the
same deltas."""


class Jumps:
    """Makes the jumps and replays to one version, each once.

    A jump takes little time if it starts before the jump that was made last: it adds only the deltas in between.

    `origin_size` is the size of the last jump from an origin, 0 if there was none.
    """

    def __init__(self) -> None:
        self.origin_size = 0
        self._end: Place | None = None
        self._made: dict[Place, bytes | None] = {}
        self._decoded: OrderedDict[Place, Steps] = OrderedDict()
        self._decoded_bytes = 0
        self._last: tuple[Place, Total] | None = None  # the start and the sum of the last jump

    def along(self, deltas: tuple[Frame, ...], replica: Replica) -> bytes | None:
        """Return one frame that replaces the consecutive `deltas` that lead to `replica`; None if there is no such frame.

        There is none if only some deltas are on the grid, or if the counts of their sum exceed 32 bits.  A replay that saves
        less than `MIN_SAVING` is not made either: the deltas themselves are in memory once for all nodes.
        """
        start = (deltas[0].base_version, deltas[0].before)
        made = self._made_to(replica)
        if start not in made:
            frame = self._one_frame(start, deltas, replica)
            made[start] = None if frame is None else frame.to_bytes()
        return made[start]

    def _one_frame(self, start: Place, deltas: tuple[Frame, ...], replica: Replica) -> Frame | None:
        on_grid = {bool(frame.flags & FLAG_GRID) for frame in deltas}
        if on_grid == {False}:
            replay = replica.replay_frame(deltas)
            return replay if replay.size < (1 - MIN_SAVING) * sum(frame.size for frame in deltas) else None
        steps = self._sum_of(deltas, replica) if on_grid == {True} else None
        exact = any(frame.flags & FLAG_EXACT for frame in deltas)
        return None if steps is None else replica.jump_frame(start, steps, exact=exact)

    def from_origin(self, origin: Origin, replica: Replica) -> bytes:
        """Return the jump from the base of `origin`, which is the origin of `replica`."""
        start, made = origin.base.place, self._made_to(replica)
        if (jump := made.get(start)) is None:
            frame = replica.jump_frame(start, origin.steps(), exact=origin.base.exact != replica.exact)
            made[start] = jump = frame.to_bytes()
        self.origin_size = len(jump)
        return jump

    def _made_to(self, replica: Replica) -> dict[Place, bytes | None]:
        if self._end != replica.place:
            self._end, self._made, self._last = replica.place, {}, None
        return self._made

    def _sum_of(self, deltas: Sequence[Frame], replica: Replica) -> Steps | None:
        """Return the sum of deltas on the grid; None if an entry has more units than a step can have."""
        try:
            indices, counts = self._total_of(deltas, replica)
        except OffGridError:
            return None
        if (np.abs(counts) > MAX_STEPS).any():
            return None
        return Steps(replica.layout.n, indices, counts.astype(np.int32))

    def _total_of(self, deltas: Sequence[Frame], replica: Replica) -> Total:
        """Return the sum of deltas, continuing the last sum if possible; raise `OffGridError` if one is off the grid."""
        starts = [(frame.base_version, frame.before) for frame in deltas]
        left, total = len(deltas), (np.empty(0, np.int64), np.empty(0, np.int64))
        if self._last is not None and self._last[0] in starts:
            left, total = starts.index(self._last[0]), self._last[1]
        while left:
            steps = self._steps_of(deltas[left - 1], replica)
            # Merging deltas one by one takes time for the total, which grows; adding all in a vector, for the whole model.
            if left > 1 and left * (2 * total[0].size + left * steps.indices.size) >= replica.layout.n:
                break
            left, total = left - 1, _merged(total, steps)
        if left:
            total = _added(total, (self._steps_of(frame, replica) for frame in deltas[:left]), replica.layout.n)
        indices, counts = total
        kept = np.flatnonzero(counts != 0)  # deltas may cancel
        total = total if kept.size == counts.size else (indices[kept], counts[kept])
        self._last = (starts[0], total) if sum(part.nbytes for part in total) <= MAX_DECODED_BYTES else None
        return total

    def _steps_of(self, frame: Frame, replica: Replica) -> Steps:
        """Return the steps of a delta, which are kept for other jumps; raise `OffGridError` if it is off the grid."""
        place = (frame.version, frame.after)
        if place in self._decoded:
            self._decoded.move_to_end(place)
            return self._decoded[place]
        body, _ = split_payload(frame, frame.payload, replica.layout, b"")
        steps = steps_in(decode_body(frame.codec, body, replica.layout))
        if steps is None:
            raise OffGridError(f"version {frame.version} holds entries that are no steps on the grid")
        self._decoded[place] = steps
        self._decoded_bytes += steps.indices.nbytes + steps.counts.nbytes
        while self._decoded_bytes > MAX_DECODED_BYTES:
            _, oldest = self._decoded.popitem(last=False)
            self._decoded_bytes -= oldest.indices.nbytes + oldest.counts.nbytes
        return steps


def _merged(total: Total, steps: Steps) -> Total:
    indices, counts = total
    if not indices.size:
        return steps.indices, steps.counts.astype(np.int64)
    places = np.searchsorted(indices, steps.indices)
    new = indices.take(places, mode="clip") != steps.indices
    indices, counts = np.insert(indices, places[new], steps.indices[new]), np.insert(counts, places[new], 0)
    counts[places + np.cumsum(new) - new] += steps.counts  # no index occurs twice
    return indices, counts


def _added(total: Total, deltas: Iterable[Steps], n: int) -> Total:
    vector = np.zeros(n, np.int64)
    vector[total[0]] = total[1]
    for steps in deltas:
        vector[steps.indices] += steps.counts  # no index occurs twice
    indices = np.flatnonzero(vector != 0)
    return indices, vector[indices]
