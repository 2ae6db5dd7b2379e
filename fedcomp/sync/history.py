"""The last delta frames: a node that was absent applies the ones that it missed.

This is the exact form of STC's cache of partial sums (Sattler et al., TNNLS 2020, section V-C).
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from fedcomp.wire import Frame, Kind, kind_of


@dataclass(frozen=True, slots=True)
class Route:
    """The frames that bring a node to the newest version.

    `catch_up_bytes` are their bytes in addition to the newest delta; `key` says that one of them is a key frame.
    """

    frames: tuple[bytes, ...]
    catch_up_bytes: int
    key: bool = False

    def bytes_by_kind(self) -> dict[str, int]:
        """Return the bytes of the frames under the names of `Traffic`."""
        kinds = [kind_of(frame) for frame in self.frames]
        names = {Kind.KEY: "key_bytes", Kind.START: "key_bytes", Kind.JUMP: "jump_bytes", Kind.REPLAY: "replay_bytes"}
        names[Kind.DELTA] = "replay_bytes" if kinds.count(Kind.DELTA) > 1 else "delta_bytes"
        sizes: Counter[str] = Counter()
        for kind, frame in zip(kinds, self.frames, strict=True):
            sizes[names[kind]] += len(frame)
        return dict(sizes)


class History:
    """Delta frames, the oldest first, that together are smaller than a key frame, `key_size`; older frames are dropped."""

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

    @property
    def newest_size(self) -> int:
        """The bytes of the newest delta, 0 if there is none."""
        return len(self._deltas[-1][1]) if self._deltas else 0

    def since(self, version: int, fingerprint: int) -> tuple[tuple[Frame, bytes], ...]:
        """Return the deltas from this version on, each also as bytes; an empty tuple if one of them is missing."""
        missed: list[tuple[Frame, bytes]] = []
        for frame, data in reversed(self._deltas):
            missed.append((frame, data))
            if (frame.base_version, frame.before) == (version, fingerprint):
                return tuple(reversed(missed))
        return ()

    def frames(self) -> tuple[Frame, ...]:
        """Return the deltas, the oldest first."""
        return tuple(frame for frame, _ in self._deltas)
