"""The last delta frames, of which a node that was absent replays those that it missed.

This is the exact form of STC's cache of partial sums (Sattler et al., TNNLS 2020, section V-C).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from fedcomp.wire import Frame


@dataclass(frozen=True, slots=True)
class Route:
    """The frames that bring a node to the newest version.

    `catch_up_bytes` is the size of all of them but the newest delta; `key` says that the route is a key frame.
    """

    frames: tuple[bytes, ...]
    catch_up_bytes: int
    key: bool = False


class History:
    """Delta frames, the oldest first, that together are smaller than `key_size`, a key frame's; older ones are dropped."""

    def __init__(self, key_size: int, frames: Iterable[Frame] = ()) -> None:
        self._key_size = key_size
        self._deltas: deque[tuple[Frame, bytes]] = deque()
        self._size = 0
        for frame in frames:
            self.append(frame)

    def append(self, frame: Frame) -> None:
        """Add the newest delta."""
        self._deltas.append((frame, frame.to_bytes()))
        self._size += frame.size
        while self._size >= self._key_size:
            self._size -= self._deltas.popleft()[0].size

    def route(self, version: int, fingerprint: int) -> Route | None:
        """Return the deltas from this version on, or None if they are not all here."""
        missed: list[bytes] = []
        size = 0
        for frame, data in reversed(self._deltas):
            missed.append(data)
            size += len(data)
            if (frame.base_version, frame.before) == (version, fingerprint):
                return Route(tuple(reversed(missed)), size - len(missed[0]))
        return None

    def frames(self) -> tuple[Frame, ...]:
        """Return the deltas, the oldest first."""
        return tuple(frame for frame, _ in self._deltas)
