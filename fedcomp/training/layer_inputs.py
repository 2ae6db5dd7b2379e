"""Contexts in which layers get other inputs than those of the model, or call other functions."""

from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.utils.rnn import PackedSequence

MATRIX_LAYERS = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.RNNBase,
    nn.MultiheadAttention,
)
"""Layers that multiply their inputs by weight matrices."""
ATTENTION_INPUTS = ("query", "key", "value")
ChangeInput = Callable[[nn.Module, Tensor], Tensor]
"""A function of a layer and its input that returns the new input, of the same shape."""


def matrix_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers of the model that multiply their inputs by weight matrices.

    The output projection of attention is part of its layer: attention calls a function with the projection's weight.
    """
    return [
        module
        for module in model.modules()
        if isinstance(module, MATRIX_LAYERS) and not isinstance(module, NonDynamicallyQuantizableLinear)
    ]


def changed_inputs(layers: Iterable[nn.Module], change: ChangeInput) -> ExitStack:
    """Return a context in which each of the `layers` gets its changed input.

    The input is the first argument; for a packed sequence it is its data, and for attention the query, the keys and the values.
    """
    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_forward_pre_hook(partial(_hook, change), with_kwargs=True).remove)
        return stack.pop_all()


@contextmanager
def replaced_forwards(forwards: Iterable[tuple[nn.Module, Callable[..., Any]]]) -> Generator[None]:
    """Return a context in which each module calls the given function instead of its `forward`, which is restored afterwards."""
    with ExitStack() as stack:
        for module, forward in forwards:
            own = vars(module)
            if "forward" in own:
                stack.callback(own.update, forward=own["forward"])
            else:
                stack.callback(own.pop, "forward")
            own["forward"] = forward
        yield


def _hook(
    change: ChangeInput, layer: nn.Module, inputs: tuple[Any, ...], named_inputs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    names = ATTENTION_INPUTS if isinstance(layer, nn.MultiheadAttention) else ("input",)
    seen: dict[int, Tensor | PackedSequence] = {}

    def changed(x: Tensor | PackedSequence) -> Tensor | PackedSequence:
        if id(x) not in seen:  # self-attention gets one tensor three times, and is faster if it stays one tensor
            seen[id(x)] = x._replace(data=change(layer, x.data)) if isinstance(x, PackedSequence) else change(layer, x)
        return seen[id(x)]

    return (
        tuple(changed(x) if place < len(names) else x for place, x in enumerate(inputs)),
        {name: changed(x) if name in names else x for name, x in named_inputs.items()},
    )
