"""Devices that are not there: torch tensors that claim to be on one, and a count of the bytes that leave it for the host."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE, SECOND_DEVICE = torch.device("xla", 0), torch.device("xla", 1)
HOST = torch.device("cpu")


class OtherTensor(torch.Tensor):
    """A tensor on one of the devices, with the values of `numbers`.  torch takes it for a meta tensor, which has none."""

    numbers: torch.Tensor
    place: torch.device
    device = property(lambda tensor: tensor.place)
    is_meta = False

    @staticmethod
    def __new__(cls: type["OtherTensor"], numbers: torch.Tensor, place: torch.device) -> "OtherTensor":
        make: Any = torch.Tensor._make_wrapper_subclass  # noqa: SLF001
        tensor: OtherTensor = make(cls, numbers.shape, strides=numbers.stride(), dtype=numbers.dtype, device="meta")
        tensor.numbers, tensor.place = numbers, place
        return tensor

    @classmethod
    def __torch_dispatch__(cls, *_: Any) -> Any:
        raise NotImplementedError("a tensor on the other device, used outside `OtherDevice`")


class OtherDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, tensors can be moved to the devices and work there; `to_host` counts the bytes that came from it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.to_host = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation on the numbers; its result is on the device if an argument is, unless the call names another."""
        kwargs = dict(kwargs or {})
        places = [each.place for each in tree_leaves((args, kwargs)) if isinstance(each, OtherTensor)]
        place = torch.device(kwargs["device"]) if kwargs.get("device") is not None else (*places, HOST)[0]
        if "device" in kwargs:
            kwargs["device"] = HOST
        result = func(*tree_map(_numbers, tuple(args)), **tree_map(_numbers, kwargs))
        if places and not isinstance(result, torch.Tensor):  # a number of Python
            self.to_host += 8
        elif places and place == HOST:
            self.to_host += result.nbytes
        return result if place == HOST else tree_map(lambda each: _placed(each, place), result)


def _numbers(value: Any) -> Any:
    return value.numbers if isinstance(value, OtherTensor) else value


def _placed(value: Any, place: torch.device) -> Any:
    return OtherTensor(value, place) if isinstance(value, torch.Tensor) else value
