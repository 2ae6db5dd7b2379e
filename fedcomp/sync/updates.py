"""Updates from nodes, decoded and checked."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from fedcomp.core import Vector
from fedcomp.errors import CorruptError, StaleError, TruncatedError
from fedcomp.quantized import Compact, CrossPolytope, InRanges, Masked, QuantizedVector, Rotated, Sparse, held_bytes
from fedcomp.sync.exact_tensors import different_mask, rebased_exact
from fedcomp.sync.replica import Replica, split_payload
from fedcomp.sync.reply_checks import check_exact_magnitude, check_magnitude, is_surely_small
from fedcomp.wire import FLAG_EXACT, FLAG_FIRST, SECONDS, Frame, Layout, TensorFlags, decode_body, tensors_in

MAX_SECONDS = 1e9
"""The longest time that a node may report."""


@dataclass(frozen=True, slots=True)
class Update:
    """What a node learned: the `change` of the published vector, the `exact` tensors' bytes, and its seconds of work.

    `first` marks the first increment of an estimate that starts from zero.  The change counts `factor` times, which clips an
    update that is too long.  `tensors`, bool (t,), says which of the compressed tensors that have entries have changed; None if
    this is unknown.
    """

    change: QuantizedVector
    exact: bytes
    encode_seconds: float
    decode_seconds: float
    first: bool = False
    factor: float = 1.0
    tensors: TensorFlags | None = None

    @property
    def decoded_bytes(self) -> int:
        """The memory of the decoded change, in bytes."""
        return held_bytes(self.change)

    @property
    def expected_noise(self) -> tuple[float, float] | None:
        """The expected squared norm of what was encoded, and the expected squared error; None if they are unknown."""
        entries = _entries_of(self.change)
        return entries.expected_noise() if isinstance(entries, CrossPolytope | Rotated) else None


@dataclass(frozen=True, slots=True, eq=False)
class Undecoded:
    """The quantized vector in the `frame` of an update, decoded each time it is used: in between it takes no memory.

    `published_exact` are the exact tensors of the model that the update starts from.
    """

    frame: Frame
    layout: Layout
    published_exact: bytes

    @property
    def n(self) -> int:
        """Entries of the vector, zeros included."""
        return self.layout.n

    def dense(self) -> Vector:
        """Return the vector, float32 (n,)."""
        return self._decoded().dense()

    def sparse(self) -> Sparse | None:
        """Return the kept entries; None if the vector keeps all."""
        return self._decoded().sparse()

    def add_to(self, vector: NDArray[Any], weight: float = 1.0) -> None:
        """Add ``weight`` times the vector to `vector` (n,), in place and in the precision of `vector`."""
        self._decoded().add_to(vector, weight)

    def _decoded(self) -> QuantizedVector:
        return _parts_of(self.frame, self.layout, self.published_exact)[0]


def decode_update(frame: Frame, published: Replica, start_exact: bytes | None = None) -> Update:
    """Return the update in a frame that `check_reply` accepted, as an update of the published model.

    `start_exact` are the exact tensors of the version that the update starts from, by default the published ones.

    Raises `FedcompError` for a damaged frame, for an update that leads to weights or exact tensors beyond
    `MAX_WEIGHT_MAGNITUDE` or their dtype, and for an update within masks that the model no longer has.
    """
    start_exact = published.exact if start_exact is None else start_exact
    if len(frame.payload) < SECONDS.size:
        raise TruncatedError(f"{len(frame.payload)} bytes of update; the seconds alone need {SECONDS.size}")
    encode_seconds, decode_seconds = SECONDS.unpack_from(frame.payload)
    if not (0 <= encode_seconds < MAX_SECONDS and 0 <= decode_seconds < MAX_SECONDS):
        raise CorruptError(f"{encode_seconds:g} and {decode_seconds:g} seconds; 0 to {MAX_SECONDS:g} are possible")
    layout = published.layout
    if moved := different_mask(start_exact, published.exact, layout):
        raise StaleError(f"the mask {moved!r} has moved since the version that it starts from")
    change, exact = _parts_of(frame, layout, start_exact)
    if frame.flags & FLAG_EXACT:
        layout.check_exact(exact)
        if other := different_mask(exact, start_exact, layout):
            raise CorruptError(f"it holds another mask {other!r} than the one that was sent")
        exact = rebased_exact(exact, start_exact, published)
        check_exact_magnitude(exact, published)
    else:
        exact = published.exact
    entries = _entries_of(change)
    if isinstance(entries, Rotated) and entries.indices is not None and (sparse := change.sparse()) is not None:
        change = Compact.of(sparse)  # it takes no more memory, and the mean needs no second rotation
    if not is_surely_small(entries, published):
        check_magnitude(change, published)
    tensors = tensors_in(frame.codec, frame.payload[SECONDS.size :], layout)
    return Update(change, exact, encode_seconds, decode_seconds, bool(frame.flags & FLAG_FIRST), tensors=tensors)


def _entries_of(change: QuantizedVector) -> QuantizedVector:
    """Return the quantized vector inside `change`, which may be a longer one."""
    while isinstance(change, InRanges | Masked):
        change = change.entries
    return change


def _parts_of(frame: Frame, layout: Layout, start_exact: bytes) -> tuple[QuantizedVector, bytes]:
    """Return the change and the exact tensors in the frame of an update; `start_exact` if the frame holds none."""
    body, exact = split_payload(frame, frame.payload[SECONDS.size :], layout, start_exact)
    return decode_body(frame.codec, body, layout, layout.changeable(start_exact)), exact
