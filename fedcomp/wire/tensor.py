"""One tensor of a model: its name, shape and dtype, how it travels, and how values are rounded to its dtype."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedcomp.entropy import MAX_ENTRIES
from fedcomp.errors import DivergedError
from fedcomp.wire.dtypes import (
    BFLOAT16,
    COMPLEX,
    DTYPES,
    FLOATS,
    bfloat16_to_float32,
    dtype_of,
    float32_to_bfloat16,
    is_bfloat16,
)

Policy = Literal["compressed", "exact", "local", "tied"]
"""How a tensor travels: in the compressed vector, unchanged, not at all, or under the name of another tensor."""
TIED = "tied:"
"""In the text of a layout, precedes the name of the tensor to which another tensor is tied."""
MAX_DIMENSIONS = 32


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of a state dict.  `dtype` is one of `DTYPES`; arrays of bfloat16 have the numpy dtype `BFLOAT16`.

    `tied_to` names the tensor that holds the values of a tied tensor.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    policy: Policy
    tied_to: str = ""

    @property
    def policy_text(self) -> str:
        """The policy as a layout's text holds it."""
        return TIED + self.tied_to if self.policy == "tied" else self.policy

    @property
    def size(self) -> int:
        """The number of entries; complex entries count twice."""
        return math.prod(self.number_shape)

    @property
    def number_shape(self) -> tuple[int, ...]:
        """The shape of the tensor as real numbers: for a complex tensor, it ends in 2."""
        return (*self.shape, 2) if self.dtype in COMPLEX else self.shape

    @property
    def array_dtype(self) -> np.dtype[Any]:
        """The dtype of the tensor's arrays; for a complex tensor, the dtype of its real parts."""
        return BFLOAT16 if self.dtype == "bfloat16" else np.dtype(COMPLEX.get(self.dtype, self.dtype))

    @property
    def wire_dtype(self) -> np.dtype[Any]:
        """The dtype on the wire: little-endian."""
        return self.array_dtype.newbyteorder("<")

    def is_valid(self) -> bool:
        """Return whether all fields have types and values that a layout can hold; before this check they may be anything."""
        sides = all(type(side) is int and 0 <= side <= MAX_ENTRIES for side in self.shape)
        if not (isinstance(self.name, str) and sides and len(self.shape) <= MAX_DIMENSIONS):
            return False
        if self.dtype not in DTYPES or self.policy not in get_args(Policy):
            return False
        if (self.policy == "tied") != bool(self.tied_to):
            return False
        # numpy also refuses the shape of an empty tensor if its other sides are too long
        fits = math.prod(side or 1 for side in self.shape) <= MAX_ENTRIES
        return fits and (self.policy != "compressed" or self.dtype in FLOATS or self.dtype in COMPLEX)

    def check_shape(self, array: Any) -> None:
        """Raise `ValueError` for another shape than the tensor's."""
        if (shape := tuple(np.shape(array))) != self.shape:
            raise ValueError(
                f"tensor {self.name!r} has shape {shape}; the model's has {self.shape}, which the first model fixed"
            )

    def not_finite(self) -> DivergedError:
        """Return the error for a tensor that holds NaN or infinity."""
        return DivergedError(f"tensor {self.name!r} holds NaN or infinity; only finite values can be sent")

    def beyond(self, dtype: str) -> DivergedError:
        """Return the error for a tensor that holds a value that `dtype` cannot."""
        return DivergedError(f"tensor {self.name!r} holds a value beyond {dtype}")

    def values_of(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return `array` as real numbers that numpy computes with; a complex entry is a pair of numbers.

        Raises `ValueError` for another shape than the tensor's and for complex numbers in a real tensor, and `DivergedError`
        for NaN or infinity.
        """
        self.check_shape(array)
        if is_bfloat16(array.dtype):
            array = bfloat16_to_float32(array)
        if self.dtype in COMPLEX:
            pairs = np.ascontiguousarray(array, np.result_type(array, np.complex64))
            part = np.float64 if pairs.dtype == np.complex128 else np.float32
            array = pairs.reshape(self.shape)[..., np.newaxis].view(part)
        elif array.dtype.kind == "c":
            raise ValueError(f"tensor {self.name!r} is {array.dtype}; the model's is {self.dtype}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise self.not_finite()
        return array

    def first_rounded(self, array: NDArray[Any]) -> float | None:
        """Return the first number of `array` that `round` changes, for a tensor of integers or bools; None if all stay."""
        values = self.values_of(array)
        if self.array_dtype.kind not in "iub" or values.dtype.kind == "b":
            return None
        changed = values[self.round(values) != values]
        return float(changed.flat[0]) if changed.size else None

    def round(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return `values` in the dtype of the tensor: integers to the nearest within its range, bools from 0.5 up.

        Raises `DivergedError` for a floating value beyond the dtype of a floating tensor.
        """
        target = self.array_dtype
        if values.dtype.kind in "iu" and target.kind in "iu" and values.dtype != target:
            limits, given = np.iinfo(target), np.iinfo(values.dtype)
            values = np.clip(values, max(limits.min, given.min), min(limits.max, given.max))
        elif values.dtype.kind == "f" and target.kind in "iu":
            limits = np.iinfo(target)
            highest = float(limits.max)
            if highest > limits.max:  # float64 cannot hold the largest integers of 64 bits: take the next one below
                highest = math.nextafter(highest, 0)
            values = np.clip(np.rint(values.astype(np.float64)), limits.min, highest)
        elif values.dtype.kind in "iuf" and target.kind == "b":
            values = values >= 0.5
        rounded = self.cast(values)
        if (self.dtype in FLOATS or self.dtype in COMPLEX) and not np.isfinite(
            bfloat16_to_float32(rounded) if target == BFLOAT16 else rounded
        ).all():
            raise self.beyond(self.dtype)
        return rounded

    def cast(self, values: NDArray[Any], *, copy: bool = True) -> NDArray[Any]:
        """Return `values` in the dtype of the tensor; a float beyond it becomes infinite.

        Without `copy`, values of that dtype are returned themselves.
        """
        with np.errstate(over="ignore"):
            if self.dtype == "bfloat16":
                return float32_to_bfloat16(values.astype(np.float32))
            return values.astype(self.array_dtype, copy=copy)

    def shaped(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return `numbers`, real and in order, in the tensor's shape; two numbers make a complex entry."""
        if self.dtype in COMPLEX:
            numbers = numbers.reshape(self.number_shape).view(np.result_type(numbers, np.complex64))
        return numbers.reshape(self.shape)

    def as_held(self, values: NDArray[np.float32]) -> NDArray[Any]:
        """Return `values` as a model of this dtype holds them: rounded, but in a dtype that numpy computes with."""
        rounded = self.cast(values)
        return bfloat16_to_float32(rounded) if self.dtype == "bfloat16" else rounded


def tensor_of(name: str, array: NDArray[Any], policy: Policy = "compressed") -> Tensor:
    """Return the description of `array`, which travels by `policy`; integers and bools that would be compressed are exact.

    Raises `ValueError` for a dtype that cannot travel.
    """
    dtype = dtype_of(array)
    if dtype not in DTYPES:
        hint = "; view bfloat16 as fedcomp.wire.BFLOAT16, or send float32" if array.dtype.kind == "V" else ""
        raise ValueError(f"tensor {name!r} is of dtype {dtype}; it must be one of {', '.join(DTYPES)}{hint}")
    if policy == "compressed" and dtype not in (*FLOATS, *COMPLEX):
        policy = "exact"
    return Tensor(name, tuple(array.shape), dtype, policy)
