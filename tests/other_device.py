"""A device that is not there: torch tensors that claim to be on it, and a count of the bytes that leave it for the host."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("xla", 0)


class OtherTensor(torch.Tensor):
    """A tensor on `DEVICE`; its values are those of `numbers`.  torch itself takes it for a meta tensor, which has none."""

    numbers: torch.Tensor
    device = property(lambda _: DEVICE)  # pyright: ignore[reportAssignmentType]
    is_meta = False

    @staticmethod
    def __new__(cls: type["OtherTensor"], numbers: torch.Tensor) -> "OtherTensor":
        make: Any = torch.Tensor._make_wrapper_subclass  # noqa: SLF001
        tensor: OtherTensor = make(cls, numbers.shape, strides=numbers.stride(), dtype=numbers.dtype, device="meta")
        tensor.numbers = numbers
        return tensor

    @classmethod
    def __torch_dispatch__(cls, *_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise NotImplementedError("a tensor on the other device, used outside `OtherDevice`")


class OtherDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, tensors can be moved to `DEVICE` and work there; `to_host` counts the bytes that came from it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.to_host = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation on the numbers; its result is on the device if an argument is, unless the call names another."""
        kwargs = dict(kwargs or {})
        was_there = any(isinstance(each, OtherTensor) for each in tree_leaves((args, kwargs)))
        is_there = was_there
        if kwargs.get("device") is not None:
            is_there = torch.device(kwargs["device"]) == DEVICE
            kwargs["device"] = torch.device("cpu") if is_there else kwargs["device"]
        result = func(*tree_map(_numbers, tuple(args)), **tree_map(_numbers, kwargs))
        if not isinstance(result, torch.Tensor):  # a number of Python
            self.to_host += 8 * was_there
        elif was_there and not is_there:
            self.to_host += result.nbytes
        return tree_map(_tensor, result) if is_there else result


def _numbers(value: Any) -> Any:
    return value.numbers if isinstance(value, OtherTensor) else value


def _tensor(value: Any) -> Any:
    return OtherTensor(value) if isinstance(value, torch.Tensor) else value
