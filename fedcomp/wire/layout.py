"""The tensors behind the vector, and how each tensor travels.

Floating tensors are `compressed`: they are concatenated in order into one float32 vector (top-k is global), complex tensors as
two numbers per entry.  Integers, bools and BatchNorm statistics are `exact`: they travel in the frame unchanged.  `local`
tensors never travel.  `tied` tensors are other names of a compressed tensor.
"""

import fnmatch
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, starmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector
from fedcomp.entropy import MAX_ENTRIES
from fedcomp.errors import CorruptError, NonFiniteError
from fedcomp.quantized import Indices
from fedcomp.wire.dtypes import bfloat16_to_float32, is_bfloat16
from fedcomp.wire.statistics import batchnorm_statistics
from fedcomp.wire.tensor import TIED, Policy, Tensor, tensor_of
from fedcomp.wire.ties import are_possible, tie

MASK = "_mask"
"""The end of the name of a tensor's mask."""


def unpack_mask(mask: NDArray[np.uint8], size: int) -> NDArray[np.bool_]:
    """Return the bits of a mask (ceil(size / 8),) as bool (size,): the first entry has the highest bit of the first byte."""
    return np.unpackbits(mask, count=size).astype(np.bool_)


@dataclass(frozen=True)
class Layout:
    """The tensors of a model, in their order."""

    tensors: tuple[Tensor, ...]

    @cached_property
    def n(self) -> int:
        """The number of entries of the vector."""
        return sum(tensor.size for tensor in self.tensors if tensor.policy == "compressed")

    @cached_property
    def parts(self) -> tuple[tuple[Tensor, slice], ...]:
        """The compressed tensors, each with its part of the vector."""
        compressed = [tensor for tensor in self.tensors if tensor.policy == "compressed"]
        return _in_a_row(compressed, [tensor.size for tensor in compressed])

    @cached_property
    def filled(self) -> tuple[tuple[Tensor, slice], ...]:
        """The `parts` that have entries."""
        return tuple((tensor, part) for tensor, part in self.parts if tensor.size)

    @cached_property
    def exact_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that travel unchanged."""
        return tuple(tensor for tensor in self.tensors if tensor.policy == "exact")

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the compressed tensors, as real numbers."""
        return tuple(tensor.number_shape for tensor, _ in self.parts)

    @cached_property
    def exact_parts(self) -> tuple[tuple[Tensor, slice], ...]:
        """The exact tensors, each with its part of their bytes."""
        return _in_a_row(
            self.exact_tensors, [tensor.size * tensor.wire_dtype.itemsize for tensor in self.exact_tensors]
        )

    @cached_property
    def exact_size(self) -> int:
        """The size of the exact tensors in bytes."""
        return sum(tensor.size * tensor.wire_dtype.itemsize for tensor in self.exact_tensors)

    @cached_property
    def masks(self) -> tuple[Tensor, ...]:
        """The exact tensors that are masks: uint8 (ceil(size / 8),), named as a compressed tensor, followed by `MASK`."""
        sizes = {tensor.name + MASK: (-(-tensor.size // 8),) for tensor, _ in self.parts}
        return tuple(t for t in self.exact_tensors if t.dtype == "uint8" and sizes.get(t.name) == t.shape)

    def changeable(self, exact: bytes) -> Indices | None:
        """Return the entries of the vector that updates may change, int64 (k,), ascending; None if no tensor has a mask.

        `exact` are the exact tensors' bytes of the model that the update starts from.  A tensor's mask has a bit for each
        entry; the first entry has the highest bit of the first byte.  Tensors without a mask may change.
        """
        if not self.masks:
            return None
        arrays, named = self.unflatten_exact(exact), {mask.name for mask in self.masks}
        may_change = np.ones(self.n, np.bool_)
        for tensor, part in self.parts:
            if tensor.name + MASK in named:
                may_change[part] = unpack_mask(arrays[tensor.name + MASK], tensor.size)
        return np.flatnonzero(may_change)

    def moved(self, exact: bytes, other: bytes) -> Indices | None:
        """Return the entries that only one of two models may change, int64 (k,), ascending; None if their masks are equal."""
        if not self.masks or exact == other:
            return None
        first, second = self.changeable(exact), self.changeable(other)
        return None if first is None or second is None else np.setxor1d(first, second)

    @cached_property
    def text(self) -> bytes:
        """The layout as key frames hold it: JSON, one list per tensor."""
        rows = [[tensor.name, tensor.dtype, list(tensor.shape), tensor.policy_text] for tensor in self.tensors]
        return json.dumps(rows, separators=(",", ":")).encode()

    @cached_property
    def digest(self) -> int:
        """A 64-bit hash of the layout."""
        return int.from_bytes(hashlib.blake2b(self.text, digest_size=8).digest(), "little")

    def check(self, arrays: Mapping[str, Any]) -> None:
        """Raise `ValueError` if a tensor is missing, unexpected or of another shape."""
        expected = {tensor.name for tensor in self.tensors if tensor.policy != "local"}
        missing, unexpected = expected - arrays.keys(), arrays.keys() - {tensor.name for tensor in self.tensors}
        if missing or unexpected:
            raise ValueError(
                f"tensors differ from the model's: missing {sorted(missing)}, unexpected {sorted(unexpected)}"
            )
        for tensor in self.tensors:
            if tensor.name in expected and tensor.policy != "tied":
                tensor.check_shape(arrays[tensor.name])

    def flatten(
        self, arrays: Mapping[str, NDArray[Any]], base: Vector | None = None, *, rounded: bool = True
    ) -> tuple[Vector, bytes]:
        """Return the vector of `arrays`, float32 (n,), and the exact tensors' bytes.

        With `base`, the vector is `arrays` minus the model of the vector `base`.  That model is first rounded to the tensors'
        dtypes, as `unflatten` does, unless `rounded` is False.  Wide arrays are subtracted in float64, so that a change far
        smaller than its weight is not lost.  Exact tensors are rounded to their dtypes, because averaging turns counters into
        floats.  The values of tied tensors are not read.

        Raises:
            ValueError: A tensor is missing, unexpected or of another shape.
            DivergedError: A tensor holds NaN, infinity, or a value beyond its dtype.

        """
        self.check(arrays)  # before memory is taken: a layout from the wire may claim any size
        vector = np.empty(self.n, np.float32)
        for tensor, part in self.parts:
            values = tensor.values_of(np.asarray(arrays[tensor.name])).ravel()
            with np.errstate(over="ignore"):
                if base is None:
                    vector[part] = values
                else:
                    start = tensor.as_held(base[part]) if rounded and tensor.wire_dtype.itemsize < 4 else base[part]
                    dtype = np.result_type(values, np.float32)
                    np.subtract(values, start, out=vector[part], dtype=dtype, casting="same_kind")
            if values.dtype.itemsize > 4 and not np.isfinite(vector[part]).all():
                raise tensor.beyond("float32")
        return vector, self.exact_bytes(arrays)

    def exact_bytes(self, arrays: Mapping[str, NDArray[Any]]) -> bytes:
        """Return the bytes of the exact tensors in `arrays`, rounded to their dtypes; raises as `flatten` does."""
        held = ((tensor, tensor.values_of(np.asarray(arrays[tensor.name]))) for tensor in self.exact_tensors)
        return b"".join(tensor.round(values).astype(tensor.wire_dtype, copy=False).tobytes() for tensor, values in held)

    def unflatten(self, vector: Vector, exact: bytes, *, copy: bool = True) -> dict[str, NDArray[Any]]:
        """Return the tensors, without the local ones, in their order and dtypes.

        They share no memory with the arguments; without `copy`, those of float32 are read-only views of `vector`.
        """
        arrays = self.unflatten_exact(exact)
        if not copy:
            vector = vector.view()
            vector.flags.writeable = False
        for tensor, part in self.parts:
            arrays[tensor.name] = tensor.shaped(tensor.cast(vector[part], copy=copy))
        return self._in_order(arrays)

    def unflatten_exact(self, exact: bytes) -> dict[str, NDArray[Any]]:
        """Return the exact tensors."""
        arrays: dict[str, NDArray[Any]] = {}
        for tensor, part in self.exact_parts:
            flat = np.frombuffer(exact, tensor.wire_dtype, tensor.size, part.start).astype(tensor.array_dtype)
            arrays[tensor.name] = tensor.shaped(flat)
        return arrays

    def unflatten_float64(
        self, change: Vector, exact: Mapping[str, NDArray[Any]], base: Vector | None = None
    ) -> dict[str, NDArray[Any]]:
        """Return `change`, float32 (n,), as float64 tensors, added to the model of the vector `base` if it is given.

        The result also has the tensors of `exact`.  Nothing is rounded to the layout's dtypes: `flatten` recovers `change`.
        """
        arrays = dict(exact)
        for tensor, part in self.parts:
            total = np.zeros(tensor.size) if base is None else tensor.as_held(base[part]).astype(np.float64)
            total += change[part]
            arrays[tensor.name] = tensor.shaped(total)
        return self._in_order(arrays)

    def _in_order(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {
            tensor.name: arrays[tensor.tied_to].copy() if tensor.policy == "tied" else arrays[tensor.name]
            for tensor in self.tensors
            if tensor.policy != "local"
        }

    def check_exact(self, exact: bytes) -> None:
        """Raise `CorruptError` for exact tensors that hold NaN or infinity, or a bool that is neither 0 nor 1."""
        for name, array in self.unflatten_exact(exact).items():
            values = bfloat16_to_float32(array) if is_bfloat16(array.dtype) else array
            if values.dtype.kind in "fc" and not np.isfinite(values).all():
                raise CorruptError(f"the exact tensor {name!r} holds NaN or infinity")
            if values.dtype.kind == "b" and values.view(np.uint8).max(initial=0) > 1:
                raise CorruptError(f"the exact tensor {name!r} holds a bool that is neither 0 nor 1")

    def name_at(self, index: int) -> str:
        """Return the name of the tensor that holds entry `index` of the vector; raise `IndexError` if there is none."""
        for tensor, part in self.parts:
            if part.start <= index < part.stop:
                return tensor.name
        raise IndexError(index)

    def explain(self, error: NonFiniteError) -> NonFiniteError:
        """Return `error` with the name of the tensor that holds the entry."""
        return NonFiniteError(error.index, error.value, f" (in tensor {self.name_at(error.index)!r})")


def _in_a_row(tensors: Iterable[Tensor], sizes: Iterable[int]) -> tuple[tuple[Tensor, slice], ...]:
    """Return each tensor with its part of what holds tensors of these sizes one after the other."""
    return tuple(zip(tensors, starmap(slice, pairwise(accumulate(sizes, initial=0))), strict=True))


def layout_of(
    arrays: Mapping[str, NDArray[Any]],
    local: Iterable[str] = (),
    tied: Iterable[Iterable[str]] = (),
    exact: Iterable[str] = (),
) -> Layout:
    """Return the layout of a state dict; tensors that `local` names, exactly or by a pattern like ``"head.*"``, never travel.

    Each group of names in `tied` is one tensor, which travels once.  Tensors that `exact` names, and BatchNorm statistics,
    travel as they are.  Raises `ValueError` for a dtype that cannot travel, for a pattern that matches nothing, for names that
    cannot be tied, and for a model without parameters.
    """
    policies: dict[str, Policy] = dict.fromkeys(batchnorm_statistics(arrays) | _named(arrays, exact, "exact"), "exact")
    policies |= dict.fromkeys(_named(arrays, local, "local"), "local")
    tensors = [tensor_of(name, array, policies.get(name, "compressed")) for name, array in arrays.items()]
    layout = Layout(tie(tensors, tied))
    if not layout.n:
        raise ValueError(f"the model has no floating tensor to send; at least one is needed: {_why_empty(layout)}")
    if layout.n > MAX_ENTRIES:
        raise ValueError(f"the model has {layout.n} entries to send; at most {MAX_ENTRIES} are possible")
    return layout


def _named(arrays: Mapping[str, Any], patterns: Iterable[str], policy: Policy) -> set[str]:
    """Return the names that match `patterns`; a name matches itself, whatever letters it has."""
    found: set[str] = set()
    for pattern in patterns:
        names = [pattern] if pattern in arrays else fnmatch.filter(arrays, pattern)
        if not names:
            raise ValueError(f"no tensor matches the {policy} pattern {pattern!r}; the tensors are {', '.join(arrays)}")
        found.update(names)
    return found


def _why_empty(layout: Layout) -> str:
    if not layout.tensors:
        return "it has no tensors at all, so there is nothing to compress"
    floats = [tensor for tensor in layout.tensors if "float" in tensor.dtype]
    if floats and all(tensor.policy == "exact" for tensor in floats):
        return "all floating ones are sent exactly; if you named them, name none, and take dense() both ways"
    if empty := [tensor for tensor, _ in layout.parts]:
        return f"{empty[0].name!r} has shape {empty[0].shape}, and shapes are those of the first model"
    return ", ".join(f"{tensor.name!r} is {tensor.dtype} and {tensor.policy}" for tensor in layout.tensors[:4])


def _policy(text: Any) -> tuple[Any, str]:
    """Return the policy in a row of a layout, and the name of the tensor that it is tied to; `text` may be anything."""
    return ("tied", text.removeprefix(TIED)) if isinstance(text, str) and text.startswith(TIED) else (text, "")


def parse_layout(text: bytes) -> Layout:
    """Return the layout with this `Layout.text`; raise `CorruptError` for any other bytes."""
    try:
        rows = json.loads(text)
        tensors = tuple(Tensor(name, tuple(shape), dtype, *_policy(policy)) for name, dtype, shape, policy in rows)
        valid = all(tensor.is_valid() for tensor in tensors) and are_possible(tensors)
        valid &= len({tensor.name for tensor in tensors}) == len(tensors)
    except (ValueError, TypeError, RecursionError):
        raise CorruptError("the layout is not a JSON list of [name, dtype, shape, policy]") from None
    layout = Layout(tensors)
    if not valid or layout.text != text or not 0 < layout.n <= MAX_ENTRIES:
        raise CorruptError("the layout names a dtype, shape or policy that is not possible")
    return layout
