"""The last delta frames, and the cheapest exact route from a version to the newest.

STC's cache of partial sums (Sattler et al., TNNLS 2020, section V-C) in its exact form: missed frames are replayed in order.
"""

from collections import deque
from dataclasses import dataclass

from fedcomp.wire import Frame


@dataclass(frozen=True, slots=True)
class Route:
    """Frames that bring a node to the newest version, and how many of their bytes are catch-up; `key`: a key frame does."""

    frames: tuple[bytes, ...]
    catch_up_bytes: int
    key: bool = False


class History:
    """Delta frames in order, the newest last; those that a key frame undercuts are forgotten."""

    def __init__(self, key_size: int) -> None:
        """Begin empty; `key_size` is the bytes of a key frame."""
        self._key_size = key_size
        self._deltas: deque[tuple[Frame, bytes]] = deque()
        self._size = 0

    def append(self, frame: Frame) -> None:
        """Add the newest delta."""
        self._deltas.append((frame, frame.to_bytes()))
        self._size += frame.size
        while self._size >= self._key_size:
            self._size -= self._deltas.popleft()[0].size

    def route(self, version: int, fingerprint: int) -> Route | None:
        """Return the missed deltas in order; None where a key frame is smaller or the only way."""
        missed: list[bytes] = []
        size = 0
        for frame, data in reversed(self._deltas):
            missed.append(data)
            size += len(data)
            if (frame.base_version, frame.before) == (version, fingerprint):
                return Route(tuple(reversed(missed)), size - len(missed[0]))
        return None

    def frames(self) -> list[Frame]:
        """Return the deltas, the oldest first."""
        return [frame for frame, _ in self._deltas]
