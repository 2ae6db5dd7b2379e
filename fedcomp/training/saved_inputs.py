"""The tensors that autograd saves for the backward pass: which layer's input each one is, and other forms of it.

A plug-in that stores inputs of layers in another form uses `replacing` in its `Step.forward`.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from fedcomp.training.layer_inputs import replaced_forwards
from fedcomp.training.model_checks import named_modules

Restore = Callable[[], Tensor]
"""A function that returns a saved tensor for the backward pass."""
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a module: its name in the model, the module, and its input."""

    name: str
    module: nn.Module
    x: Tensor

    def saves_input(self, tensor: Tensor) -> bool:
        """Return whether `tensor`, saved in this call, is the input, or a cast or padded copy of it, and not the weight.

        Autocast saves copies of weights, too: the gradient function of a copy leads to the gradient function of its original.
        """
        weight = getattr(self.module, "weight", None)
        if not tensor.is_floating_point() or (isinstance(weight, Tensor) and same_storage(tensor, weight)):
            return False
        if same_storage(tensor, self.x) or not isinstance(weight, Tensor) or not weight.requires_grad:
            return True
        originals = {_node(self.x): True, _node(weight): False}
        node = _node(tensor)
        while node is not None and node not in originals:
            functions = [function for function, _ in node.next_functions if function is not None]
            node = functions[0] if len(functions) == 1 else None
        return node is None or originals[node]


def _node(tensor: Tensor) -> Node | None:
    """Return the function in autograd's graph that made a tensor, or that takes the gradient of a leaf."""
    return get_gradient_edge(tensor).node if tensor.requires_grad else None


Save = Callable[[Tensor, Call | None], Restore]
"""A function of a tensor that autograd saves, and of the watched call that saves it; None outside of watched calls."""


def modules_of(model: nn.Module, kinds: Iterable[type[nn.Module]]) -> dict[str, nn.Module]:
    """Return the modules of the `kinds`, by name, without those that have a `forward` of their own: they may save anything."""
    forwards = {kind.forward for kind in kinds}
    return {
        name: module
        for name, module in named_modules(model).items()
        if type(module).forward in forwards and "forward" not in vars(module)
    }


def trained_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the convolutions and linear layers with trained weights, by name.

    The output projection of attention is left out: attention calls a function with its weight.
    """
    return {
        name: module
        for name, module in modules_of(model, LAYERS).items()
        if not isinstance(module, NonDynamicallyQuantizableLinear) and _is_trained(getattr(module, "weight", None))
    }


def _is_trained(weight: object) -> bool:
    """Return whether `weight` is a trained parameter, and not computed by a parametrization."""
    return isinstance(weight, nn.Parameter) and weight.requires_grad


@contextmanager
def replacing(
    modules: Mapping[str, nn.Module], save: Save, called: Callable[[str, nn.Module, Tensor], None] | None = None
) -> Generator[None]:
    """Return a context in which autograd keeps the result of `save` instead of each tensor, and calls it when it needs one.

    `save` gets the tensor, and the call of one of the `modules` that saves it.  `called` gets the name, the module and the
    output after each of these calls.  Of two such contexts, the inner one acts.
    """
    calls: list[Call] = []

    def pack(tensor: Tensor) -> Restore:
        return save(tensor, calls[-1] if calls else None)

    def call(
        name: str, module: nn.Module, forward: Callable[..., Tensor], *inputs: Tensor, **named_inputs: Tensor
    ) -> Tensor:
        # torch.compile cannot trace this, and calls the layer unchanged: tensors that compiled code saves are not seen.
        if torch.compiler.is_compiling():
            raise ValueError(
                f"{name} is called in compiled code; what layers save is changed without torch.compile only"
            )
        calls.append(Call(name, module, inputs[0] if inputs else named_inputs["input"]))
        try:
            output = forward(*inputs, **named_inputs)
        finally:
            calls.pop()
        if called is not None:
            called(name, module, output)
        return output

    # In place of hooks: those of other plug-ins may change the input, and have run by the time of this call.
    forwards = ((module, partial(call, name, module, module.forward)) for name, module in modules.items())
    with replaced_forwards(forwards), torch.autograd.graph.saved_tensors_hooks(pack, lambda restore: restore()):
        yield


def exact(tensor: Tensor) -> Restore:
    """Return a function that returns `tensor`, or raises `RuntimeError` if it was changed in place, as autograd does."""
    # Autograd returns the tensor itself, and does not check it any more: without `detach` an output would hold itself.
    held, saved_version = tensor.detach(), version(tensor)

    def restore() -> Tensor:
        if version(held) != saved_version:
            shape = tuple(held.shape)
            raise RuntimeError(f"a tensor {shape} that the gradient needs was changed in place after it was saved")
        return held

    return restore


def version(tensor: Tensor) -> int:
    """Return how many times the memory of a tensor was changed in place."""
    return tensor._version  # noqa: SLF001 - torch has no other name for it


def same_storage(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors share their memory."""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
