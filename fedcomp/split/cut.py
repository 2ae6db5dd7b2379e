"""Cut a model in two: the layers on the node, and the layers on the server."""

import re
from collections.abc import Iterable
from typing import cast

from torch import nn
from torch.fx import Graph, GraphModule, Node, Tracer
from torch.fx.proxy import TraceError

from fedcomp.split.modes import restored_modes

FREE = ("call_function", "call_method")
"""Operations without weights; they stay with the layer before them."""


def cut(model: nn.Module, name: str) -> tuple[nn.Module, nn.Module]:
    """Return the lower and the upper part of `model`: the lower part ends with the layer `name`.

    Operations after that layer that have no weights and no module, such as the choice of an LSTM's last state, belong to the
    lower part.  Both parts share their weights with `model`, under the same names: training the parts trains the model.

    Raises:
        ValueError: There is no such layer, or more than its output crosses the cut, as in the middle of a residual block.
            A part has no weights, or both parts share weights.  Or torch.fx cannot trace the `forward` of the model, or traces
            another one in training than in evaluation.

    Examples:
        >>> from torch import nn
        >>> from fedcomp.split import cut
        >>> lower, upper = cut(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)), "1")
        >>> list(lower.state_dict()), list(upper.state_dict())
        (['0.weight', '0.bias'], ['2.weight', '2.bias'])

    """
    layers = [each for each, _ in cast("Iterable[tuple[str, nn.Module]]", model.named_modules()) if each]
    if name not in layers:
        raise ValueError(f"the model has no layer {name!r}; its layers are {', '.join(map(repr, layers)) or 'none'}")
    nodes = _trace(model, name)
    calls = [place for place, node in enumerate(nodes) if node.op == "call_module" and node.target == name]
    if len(calls) != 1:
        raise ValueError(f"the model calls the layer {name!r} {len(calls)} times; once is needed")
    end = calls[0] + 1
    while nodes[end].op in FREE:
        end += 1
    below, above = nodes[:end], nodes[end:]
    crossing = [node for node in below if any(user in above for user in node.users)]
    if len(crossing) != 1 or crossing[0].op == "placeholder":
        names = ", ".join(repr(node.name) for node in crossing) or "nothing"
        raise ValueError(f"behind the layer {name!r}, {names} crosses the cut; its output alone may")
    lower, upper = Graph(), Graph()
    copies: dict[Node, Node] = {}
    for node in below:
        copies[node] = lower.node_copy(node, copies.__getitem__)
    lower.output(copies[crossing[0]])
    copies[crossing[0]] = upper.placeholder("activations")
    for node in above:
        copies[node] = upper.node_copy(node, copies.__getitem__)
    parts = GraphModule(model, lower), GraphModule(model, upper)
    for part, what in zip(parts, ("below", "above"), strict=True):
        for buffer_name in part.state_dict().keys() - model.state_dict().keys():  # torch.fx has made these persistent
            owner, _, leaf = buffer_name.rpartition(".")
            module, buffer = part.get_submodule(owner), part.get_buffer(buffer_name)
            delattr(module, leaf)
            module.register_buffer(leaf, buffer, persistent=False)
        if not any(weight.requires_grad for weight in part.parameters()):
            raise ValueError(f"no trained weights are {what} the cut behind {name!r}; both parts need some")
    check_apart(*parts)
    return parts


def check_apart(lower: nn.Module, upper: nn.Module) -> None:
    """Raise `ValueError` if weights or buffers are in both parts: node and server would train different copies."""
    memory = {
        tensor.untyped_storage().data_ptr() for tensor in (*lower.parameters(), *lower.buffers()) if tensor.numel()
    }
    for name, tensor in (*upper.named_parameters(), *upper.named_buffers()):
        if tensor.numel() and tensor.untyped_storage().data_ptr() in memory:
            raise ValueError(f"{name} is on both sides of the cut; each side trains weights of its own")


class _Tracer(Tracer):
    """Enters all modules except those without children and the module at the cut."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        is_inner = next(m.children(), None) is not None
        return module_qualified_name == self._name or not is_inner or super().is_leaf_module(m, module_qualified_name)


def _trace(model: nn.Module, name: str) -> list[Node]:
    """Return the operations of a call of `model`; raise `ValueError` if they depend on its mode, which a graph cannot."""
    try:
        with restored_modes(model):
            training, evaluation = (list(_Tracer(name).trace(model.train(mode)).nodes) for mode in (True, False))
    except (TraceError, TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        text = f"the model cannot be traced ({reason}); write its two parts as modules of their own"
        raise ValueError(text) from error
    if list(map(_text, training)) != list(map(_text, evaluation)):
        raise ValueError(
            "the forward of the model reads self.training, which would be fixed in its two parts; call a module such as "
            "nn.Dropout instead, or write the two parts as modules of their own"
        )
    return training


def _text(node: Node) -> str:
    """Return what a node does; constants get another number in each trace."""
    return re.sub(r"_tensor_constant\d+", "", f"{node.op} {node.target} {node.args} {node.kwargs}")
