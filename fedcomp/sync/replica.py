"""A model at a version, and the step to the next one: the same float32 additions, in the same order, on every machine."""

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector, block_slices
from fedcomp.errors import CorruptError, LayoutError, OffGridError, TruncatedError, VersionError
from fedcomp.quantized import MAX_STEPS, Indices, QuantizedVector, StepCounts, Steps, steps_in
from fedcomp.sync.fingerprint import MODULUS_MASK, change, exact_part, fingerprint
from fedcomp.sync.origin import STEP_BLOCK_ENTRIES, Origin, on_grid
from fedcomp.wire import (
    FLAG_EXACT,
    FLAG_GRID,
    NO_BODY,
    STEP_KINDS,
    STEPS_CODEC,
    Frame,
    Kind,
    Layout,
    codec_by_id,
    decode_body,
    join_bodies,
    read_bodies,
    write_vector,
)

LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Replica:
    """A model: `vector`, float32 (n,), the bytes of the `exact` tensors, and the `fingerprint` of both.

    A version is identified by its number and its fingerprint: a server that resumes from an older checkpoint reuses numbers,
    but no pair of both.  Steps on the grid are counted from `origin`; None if there were no steps.
    """

    layout: Layout
    version: int
    vector: Vector
    exact: bytes
    fingerprint: int
    origin: Origin | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Version and fingerprint."""
        return self.version, self.fingerprint

    def arrays(self, *, copy: bool = True) -> dict[str, NDArray[Any]]:
        """Return the tensors in the layout's dtypes, without the local ones.

        Without `copy`, they are to be read only, and as long as the replica stays at its version: they may share its memory.
        """
        return self.layout.unflatten(self.vector, self.exact, copy=copy)

    def key_frame(self, *, smallest: bool = False) -> Frame:
        """Return the frame that holds the whole model: the layout, the vector and the exact tensors.

        With `smallest`, the vector is in a code if this takes fewer bytes; the search takes more time.
        """
        layout = self.layout
        codec, body = write_vector(self.vector) if smallest else (NO_BODY, self.vector.astype("<f4").tobytes())
        payload = b"".join((LENGTH.pack(len(layout.text)), layout.text, body, self.exact))
        here = (self.version, self.version, layout.digest, self.fingerprint, self.fingerprint)
        return Frame(Kind.KEY, codec, FLAG_EXACT, *here, payload)

    def start_frame(self) -> Frame:
        """Return the frame that names this model, for nodes that can make it themselves: the layout and the fingerprint."""
        here = (self.version, self.version, self.layout.digest, self.fingerprint, self.fingerprint)
        return Frame(Kind.START, NO_BODY, 0, *here, LENGTH.pack(len(self.layout.text)) + self.layout.text)

    def delta(self, codec: int, body: bytes, exact: bytes, *, grid: bool = False) -> "tuple[Frame, DeltaStep]":
        """Return the frame that adds the vector in `body` and replaces the exact tensors, and its step to the next version.

        With `grid`, the vector is added on the grid, if the grid can hold it.  Only a vector of powers of two begins an origin,
        so that a method off the grid begins none by chance.  Raises `CorruptError` if the sum or `exact` is not finite.
        """
        if exact != self.exact:
            self.layout.check_exact(exact)
        quantized, step = decode_body(codec, body, self.layout), None
        if (
            grid
            and (steps := steps_in(quantized)) is not None
            and (self.origin is not None or _are_powers(steps.counts))
        ):
            with suppress(OffGridError):
                step = _add_steps(self, steps, exact)
        flags = (FLAG_GRID if step is not None else 0) | (0 if exact == self.exact else FLAG_EXACT)
        step = step or _add_values(self, quantized, exact)
        versions = (self.version, self.version + 1, self.layout.digest, self.fingerprint, step.fingerprint)
        return Frame(Kind.DELTA, codec, flags, *versions, body + exact if flags & FLAG_EXACT else body), step

    def jump_frame(self, start: tuple[int, int], steps: Steps, *, exact: bool) -> Frame:
        """Return the frame that leads here by `steps` from the version `start`; with `exact`, it holds the exact tensors."""
        payload = codec_by_id(STEPS_CODEC).encode(steps) + (self.exact if exact else b"")
        versions = (start[0], self.version, self.layout.digest, start[1], self.fingerprint)
        return Frame(Kind.JUMP, STEPS_CODEC, FLAG_EXACT if exact else 0, *versions, payload)

    def replay_frame(self, deltas: Sequence[Frame]) -> Frame:
        """Return the frame that leads here by consecutive `deltas` off the grid, with the exact tensors once."""
        exact = any(frame.flags & FLAG_EXACT for frame in deltas)
        bodies = ((frame.codec, split_payload(frame, frame.payload, self.layout, b"")[0]) for frame in deltas)
        payload = join_bodies(bodies) + (self.exact if exact else b"")
        first = deltas[0]
        versions = (first.base_version, self.version, self.layout.digest, first.before, self.fingerprint)
        return Frame(Kind.REPLAY, NO_BODY, FLAG_EXACT if exact else 0, *versions, payload)

    def advance(self, frame: Frame, decoder: "FrameDecoder | None" = None) -> "Replica":
        """Return the replica after a delta, a jump or a replay.  This replica is spent: the new one may reuse its vector.

        A frame that was applied before changes nothing.  A jump may also start from this replica's origin.  A replay may start
        before this version: the deltas up to this version are skipped.  `decoder` computes the step, by default without a
        shared cache.

        Raises:
            VersionError: The frame starts from another version.
            LayoutError: The frame is for another model.
            CorruptError: The frame does not end in the version that it names.  The replica is unchanged in all cases.

        """
        if frame.kind not in STEP_KINDS:
            raise CorruptError(f"a frame of kind {frame.kind.name}; a delta, a jump or a replay is needed")
        if frame.layout != self.layout.digest:
            raise LayoutError(f"a {frame.kind.name.lower()} for another model")
        if (frame.version, frame.after) == self.place:
            return self
        start = self._start_of(frame)
        if frame.kind is Kind.REPLAY:
            return self._replayed(frame, decoder)
        step = decoder.step(start, frame) if decoder else DeltaStep.of(start, frame)
        distance = frame.version - start.version
        if (distance != 1 if frame.kind is Kind.DELTA else distance < 1) or step.fingerprint != frame.after:
            raise _elsewhere(frame)
        here = self if start is self or self.origin is None else self._back_at(self.origin)
        return here.after(step, frame.version)

    def _start_of(self, frame: Frame) -> "Replica":
        """Return this replica or the base of its origin: the one that the frame starts from or passes."""
        start = (frame.base_version, frame.before)
        if start == self.place:
            return self
        if frame.kind is Kind.REPLAY and frame.base_version < self.version < frame.version:
            return self  # the fingerprint at its end shows whether this version is on the way
        if self.origin is not None and frame.kind is Kind.JUMP and start == self.origin.base.place:
            return self.origin.base
        raise VersionError(
            f"a {frame.kind.name.lower()} from version {frame.base_version} ({frame.before:016x}); "
            f"version {self.version} ({self.fingerprint:016x}) is held"
        )

    def _replayed(self, frame: Frame, decoder: "FrameDecoder | None") -> "Replica":
        """Return the replica after the deltas of a replay, in new memory: if a delta is refused, this replica is unchanged.

        The deltas in between have no exact tensors, so that replays from different versions share the same deltas.
        """
        if frame.codec != NO_BODY:
            raise CorruptError(
                f"a replay with a head of codec {frame.codec}; {NO_BODY} is needed, each delta names its own"
            )
        mark, end = self.fingerprint - exact_part(self.exact) & MODULUS_MASK, 0
        here = replace(self, vector=self.vector.copy(), exact=b"", fingerprint=mark)
        bodies = read_bodies(frame.payload, frame.version - frame.base_version)
        for (codec, body), offset in islice(bodies, self.version - frame.base_version, None):
            end = offset
            place = (here.version, here.version + 1, frame.layout, here.fingerprint, 0)
            delta = Frame(Kind.DELTA, codec, 0, *place, body)
            here = here.after(decoder.step(here, delta) if decoder else DeltaStep.of(here, delta), here.version + 1)
        rest, size = frame.payload[end:], self.layout.exact_size
        if len(rest) != (size if frame.flags & FLAG_EXACT else 0):
            raise CorruptError(f"{len(rest)} bytes behind the last delta of a replay; the exact tensors need {size}")
        exact = rest if frame.flags & FLAG_EXACT else self.exact
        self.layout.check_exact(exact)
        here = replace(here, exact=exact, fingerprint=here.fingerprint + exact_part(exact) & MODULUS_MASK)
        if frame.version <= self.version or here.place != (frame.version, frame.after):
            raise _elsewhere(frame)
        return here

    def _back_at(self, origin: Origin) -> "Replica":
        """Return the replica at its origin, in the same memory.  This replica is spent."""
        self.vector[:] = origin.base.vector
        origin.counts[:] = 0
        return replace(origin.base, vector=self.vector, origin=origin)

    def after(self, step: "DeltaStep", version: int, *, keep: bool = False) -> "Replica":
        """Return the replica after `step`, which leads to `version`.  This replica is spent; with `keep`, its vector is not."""
        origin: Origin | None = None
        if step.counts is not None:
            origin = self.origin or Origin.at(self, copy=not keep)
            origin.counts[step.selection] = step.counts
        vector = self.vector.copy() if keep else self.vector
        vector[step.selection] = step.values
        return Replica(self.layout, version, vector, step.exact, step.fingerprint, origin)


@dataclass(frozen=True, slots=True)
class DeltaStep:
    """The effect of a frame on a replica, computed before anything changes.

    ``vector[selection] = values`` is the step; `exact` and `fingerprint` are the new ones.  On the grid, `counts` are the new
    counts of the same entries.
    """

    selection: Indices | slice
    values: Vector
    exact: bytes
    fingerprint: int
    counts: StepCounts | None = None

    @property
    def size(self) -> int:
        """Approximate size in memory, in bytes."""
        counts = 0 if self.counts is None else self.counts.nbytes
        return 2 * self.values.nbytes + counts + len(self.exact)

    @classmethod
    def of(cls, replica: Replica, frame: Frame) -> "DeltaStep":
        """Return the step of `frame` from `replica`; equal replicas give equal steps.

        Raises `FedcompError` for a damaged body, `OffGridError` for a step that the grid cannot hold, and `CorruptError` if the
        new model is not finite.
        """
        layout = replica.layout
        body, exact = split_payload(frame, frame.payload, layout, replica.exact)
        if frame.flags & FLAG_EXACT:
            layout.check_exact(exact)
        if frame.kind is not Kind.JUMP and not frame.flags & FLAG_GRID:
            return _add_values(replica, decode_body(frame.codec, body, layout), exact)
        if frame.kind is Kind.JUMP and frame.codec != STEPS_CODEC:
            raise CorruptError(f"a jump with a body of codec {frame.codec}; {STEPS_CODEC} is needed")
        steps = steps_in(decode_body(frame.codec, body, layout))
        if steps is None:
            raise OffGridError(f"codec {frame.codec} holds entries that are no steps on the grid")
        return _add_steps(replica, steps, exact)


def _elsewhere(frame: Frame) -> CorruptError:
    """Return the error of a frame that leads to another model than the one it names."""
    name, mark = frame.kind.name.lower(), f"{frame.after:016x}"
    return CorruptError(f"a {name} that does not end in the version {frame.version} ({mark}) that it names")


def _add_values(replica: Replica, quantized: QuantizedVector, exact: bytes) -> DeltaStep:
    """Return the step that adds `quantized` in float32."""
    with np.errstate(over="ignore"):
        sparse = quantized.sparse()
        values = quantized.dense() if sparse is None else sparse.values
        del quantized  # with them, memory would exceed four times the model
        new, fingerprint_change = np.empty_like(values), 0
        for part in block_slices(new.size, STEP_BLOCK_ENTRIES):
            old = replica.vector[part if sparse is None else sparse.indices[part]]
            np.add(old, values[part], out=new[part])
            _check_finite(new[part])
            if sparse is not None:
                fingerprint_change += change(sparse.indices[part], old, new[part])
    if sparse is None:
        return DeltaStep(slice(None), new, exact, fingerprint(new, exact))
    return DeltaStep(sparse.indices, new, exact, _moved(replica, fingerprint_change, exact))


def _are_powers(counts: StepCounts) -> bool:
    """Return whether there are counts, and all their magnitudes are powers of two."""
    magnitudes = np.abs(counts)
    return bool(counts.size) and not (magnitudes & (magnitudes - 1)).any()


def _add_steps(replica: Replica, steps: Steps, exact: bytes) -> DeltaStep:
    """Return the step that adds `steps` on the grid; they are handed over."""
    base = replica.origin.base.vector if replica.origin is not None else replica.vector
    counts = steps.counts  # in place: memory would exceed four times the model
    new, fingerprint_change = np.empty(counts.size, np.float32), 0
    for part in block_slices(new.size, STEP_BLOCK_ENTRIES):
        indices = steps.indices[part]
        total = counts[part].astype(np.int64)
        if replica.origin is not None:
            total += replica.origin.counts[indices]
        if (np.abs(total) > MAX_STEPS).any():
            raise OffGridError(f"an entry would be more than {MAX_STEPS} units from where it began")
        counts[part], new[part] = total, on_grid(base[indices], total)
        _check_finite(new[part])
        fingerprint_change += change(indices, replica.vector[indices], new[part])
    return DeltaStep(steps.indices, new, exact, _moved(replica, fingerprint_change, exact), counts)


def _check_finite(values: Vector) -> None:
    if not np.isfinite(values).all():
        raise CorruptError("a step leads to weights beyond float32; finite ones are needed")


def _moved(replica: Replica, fingerprint_change: int, exact: bytes) -> int:
    """Return the fingerprint of `replica` after its vector changes it by `fingerprint_change`, with other exact tensors."""
    total = replica.fingerprint + fingerprint_change - exact_part(replica.exact) + exact_part(exact)
    return total & MODULUS_MASK


def start_replica(layout: Layout, arrays: Mapping[str, NDArray[Any]], version: int = 0) -> Replica:
    """Return the replica of `layout` that holds `arrays`; raises as `Layout.flatten` does."""
    vector, exact = layout.flatten(arrays)
    return Replica(layout, version, vector, exact, fingerprint(vector, exact))


class FrameDecoder(Protocol):
    """Computes the effects of frames, such as a cache that several replicas share."""

    def step(self, replica: Replica, frame: Frame, /) -> DeltaStep:
        """Return the effect of a delta or jump on `replica`.

        A delta of a replay comes as a frame whose `after` is 0, to a replica without exact tensors.
        """
        ...

    def begin(self, frame: Frame, /) -> Replica:
        """Return the replica that a key frame holds."""
        ...


def split_payload(frame: Frame, payload: bytes, layout: Layout, exact: bytes) -> tuple[bytes, bytes]:
    """Return the body and the exact tensors in the payload of a delta or an update; `exact` if the frame holds none."""
    if not frame.flags & FLAG_EXACT:
        return payload, exact
    cut = len(payload) - layout.exact_size
    if cut < 0:
        raise TruncatedError(f"{len(payload)} bytes of payload; the exact tensors alone need {layout.exact_size}")
    return payload[:cut], payload[cut:]
