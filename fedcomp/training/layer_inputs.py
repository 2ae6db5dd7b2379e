"""Layers that get other inputs than the model hands them."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

MATRIX_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase)
"""Layers that multiply their inputs by weight matrices."""
ChangeInput = Callable[[nn.Module, Tensor], Tensor]
"""A function of a layer and its input that returns what the layer gets instead, of the same shape."""


def changed_inputs(layers: Iterable[nn.Module], change: ChangeInput) -> ExitStack:
    """Return a context in which each of the `layers` gets its changed first input; of a packed sequence, its data change."""
    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_forward_pre_hook(partial(_hook, change), with_kwargs=True).remove)
        return stack.pop_all()


def _hook(
    change: ChangeInput, layer: nn.Module, inputs: tuple[Any, ...], named_inputs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def changed(x: Tensor | PackedSequence) -> Tensor | PackedSequence:
        return x._replace(data=change(layer, x.data)) if isinstance(x, PackedSequence) else change(layer, x)

    if not inputs:
        return inputs, named_inputs | {"input": changed(named_inputs["input"])}
    return (changed(inputs[0]), *inputs[1:]), named_inputs
