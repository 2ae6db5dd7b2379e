"""Names, shapes and dtypes behind the vector, and what becomes of each tensor.

Floating tensors are `compressed`: concatenated in order into one float32 vector (top-k is global).  Integers, bools and
BatchNorm statistics are `exact`: they ride in the frame as they are.  `local` tensors never travel.
"""

import fnmatch
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector
from fedcomp.entropy import MAX_ENTRIES
from fedcomp.errors import CorruptError, DivergedError

Policy = Literal["compressed", "exact", "local"]
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
DTYPES = (
    "float16",
    "float32",
    "float64",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of a state dict."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    policy: Policy

    @property
    def size(self) -> int:
        """Entries of the tensor."""
        return math.prod(self.shape)

    @property
    def wire_dtype(self) -> np.dtype[Any]:
        """The dtype with its byte order spelled."""
        return np.dtype(self.dtype).newbyteorder("<")


@dataclass(frozen=True)
class Layout:
    """The tensors of a model, in their order."""

    tensors: tuple[Tensor, ...]

    @cached_property
    def n(self) -> int:
        """Entries of the vector."""
        return sum(tensor.size for tensor in self.tensors if tensor.policy == "compressed")

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the tensors that the vector holds, in its order."""
        return tuple(tensor.shape for tensor in self.tensors if tensor.policy == "compressed")

    @cached_property
    def exact_size(self) -> int:
        """Bytes of the exact tensors."""
        return sum(tensor.size * tensor.wire_dtype.itemsize for tensor in self.tensors if tensor.policy == "exact")

    @cached_property
    def text(self) -> bytes:
        """The layout as it is written into key frames: JSON, a list a tensor."""
        rows = [[tensor.name, tensor.dtype, list(tensor.shape), tensor.policy] for tensor in self.tensors]
        return json.dumps(rows, separators=(",", ":")).encode()

    @cached_property
    def digest(self) -> int:
        """64 bits that differ for another model."""
        return int.from_bytes(hashlib.blake2b(self.text, digest_size=8).digest(), "little")

    def flatten(self, arrays: Mapping[str, NDArray[Any]]) -> tuple[Vector, bytes]:
        """Return the vector, float32 (n,), and the exact tensors' bytes.

        Exact tensors are rounded back to their dtype: averaging turns counters into floats.  Raises `ValueError` for
        missing, unexpected and reshaped tensors, and `DivergedError` for NaN or infinity, naming the tensor.
        """
        expected = {tensor.name for tensor in self.tensors if tensor.policy != "local"}
        missing, more = expected - arrays.keys(), arrays.keys() - {tensor.name for tensor in self.tensors}
        if missing or more:
            raise ValueError(f"tensors differ from the model's: missing {sorted(missing)}, unexpected {sorted(more)}")
        vector, exact, at = np.empty(self.n, np.float32), [], 0
        for tensor in self.tensors:
            if tensor.policy == "local":
                continue
            array = np.asarray(arrays[tensor.name])
            if array.shape != tensor.shape:
                raise ValueError(f"tensor {tensor.name!r} has shape {array.shape}; the model's has {tensor.shape}")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise DivergedError(f"tensor {tensor.name!r} holds NaN or infinity; only finite values can be sent")
            if tensor.policy == "exact":
                exact.append(_cast(array, tensor).tobytes())
            else:
                with np.errstate(over="ignore"):
                    vector[at : at + tensor.size] = array.ravel()
                if array.dtype.itemsize > 4 and not np.isfinite(vector[at : at + tensor.size]).all():
                    raise DivergedError(f"tensor {tensor.name!r} holds a value beyond float32")
                at += tensor.size
        return vector, b"".join(exact)

    def unflatten(self, vector: Vector, exact: bytes) -> dict[str, NDArray[Any]]:
        """Return the tensors but the local ones, in their order and dtypes; none shares memory with the arguments."""
        whole, at = self.unflatten_exact(exact), 0
        arrays: dict[str, NDArray[Any]] = {}
        for tensor in self.tensors:
            if tensor.policy == "compressed":
                with np.errstate(over="ignore"):
                    arrays[tensor.name] = vector[at : at + tensor.size].astype(tensor.dtype).reshape(tensor.shape)
                at += tensor.size
            elif tensor.policy == "exact":
                arrays[tensor.name] = whole[tensor.name]
        return arrays

    def unflatten_exact(self, exact: bytes) -> dict[str, NDArray[Any]]:
        """Return the exact tensors."""
        arrays, at = {}, 0
        for tensor in self.tensors:
            if tensor.policy == "exact":
                flat = np.frombuffer(exact, tensor.wire_dtype, tensor.size, at).astype(tensor.dtype)
                arrays[tensor.name] = flat.reshape(tensor.shape)
                at += flat.size * tensor.wire_dtype.itemsize
        return arrays

    def check_exact(self, exact: bytes) -> None:
        """Refuse exact tensors that hold NaN or infinity, or a bool that is neither 0 nor 1."""
        for name, array in self.unflatten_exact(exact).items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise CorruptError(f"the exact tensor {name!r} holds NaN or infinity")
            if array.dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
                raise CorruptError(f"the exact tensor {name!r} holds a bool that is neither 0 nor 1")

    def name_at(self, index: int) -> str:
        """Return the name of the tensor that holds entry `index` of the vector."""
        for tensor in self.tensors:
            if tensor.policy == "compressed":
                if index < tensor.size:
                    return tensor.name
                index -= tensor.size
        raise IndexError(index)


def layout_of(arrays: Mapping[str, NDArray[Any]], local: Iterable[str] = ()) -> Layout:
    """Return the layout of a state dict; tensors whose name fits a pattern of `local` (as ``"head.*"``) never travel.

    Raises `ValueError` for a dtype that cannot travel, for a pattern that fits nothing, and for a model of no parameters.
    """
    local = tuple(local)
    for pattern in local:
        if not fnmatch.filter(arrays, pattern):
            raise ValueError(f"no tensor fits the local pattern {pattern!r}; there are {', '.join(arrays)}")
    tensors = []
    for name, array in arrays.items():
        if str(array.dtype) not in DTYPES:
            raise ValueError(f"tensor {name!r} is of dtype {array.dtype}; it must be one of {', '.join(DTYPES)}")
        tensors.append(Tensor(name, tuple(array.shape), str(array.dtype), _policy(name, array.dtype, local)))
    layout = Layout(tuple(tensors))
    if not layout.n:
        raise ValueError("the model has no floating tensor to send")
    if layout.n > MAX_ENTRIES:
        raise ValueError(f"the model has {layout.n} entries to send; at most {MAX_ENTRIES} can be")
    return layout


def parse_layout(text: bytes) -> Layout:
    """Return the layout that `Layout.text` wrote; raise `FedcompError` for anything else."""
    try:
        rows = json.loads(text)
        tensors = tuple(Tensor(name, tuple(shape), dtype, policy) for name, dtype, shape, policy in rows)
        valid = all(map(_is_valid, tensors)) and len({tensor.name for tensor in tensors}) == len(tensors)
    except (ValueError, TypeError, RecursionError):
        raise CorruptError("the layout is not a JSON list of [name, dtype, shape, policy]") from None
    layout = Layout(tensors)
    if not valid or layout.text != text or not 0 < layout.n <= MAX_ENTRIES:
        raise CorruptError("the layout names a dtype, shape or policy that cannot be")
    return layout


def _is_valid(tensor: Tensor) -> bool:
    shape = all(type(side) is int and 0 <= side <= MAX_ENTRIES for side in tensor.shape) and len(tensor.shape) <= 32
    if not (isinstance(tensor.name, str) and shape and tensor.dtype in DTYPES and tensor.policy in get_args(Policy)):
        return False
    # numpy refuses the shape of an empty tensor too when its other sides are too long
    fits = math.prod(side or 1 for side in tensor.shape) <= MAX_ENTRIES
    return fits and (tensor.policy != "compressed" or tensor.dtype.startswith("float"))


def _policy(name: str, dtype: np.dtype[Any], local: tuple[str, ...]) -> Policy:
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in local):
        return "local"
    if dtype.kind != "f" or name.rsplit(".", 1)[-1] in STATISTICS:
        return "exact"
    return "compressed"


def _cast(array: NDArray[Any], tensor: Tensor) -> NDArray[Any]:
    target = tensor.wire_dtype
    if array.dtype.kind == "f" and target.kind in "iu":
        limits = np.iinfo(target)
        highest = float(limits.max)
        if highest > limits.max:  # as of 64 bits, which a float64 cannot hold: the next one below
            highest = math.nextafter(highest, 0)
        array = np.clip(np.rint(array.astype(np.float64)), limits.min, highest)
    elif array.dtype.kind == "f" and target.kind == "b":
        array = array >= 0.5
    with np.errstate(over="ignore"):
        cast = array.astype(target)
    if target.kind == "f" and not np.isfinite(cast).all():
        raise DivergedError(f"tensor {tensor.name!r} holds a value beyond {tensor.dtype}")
    return cast
