"""Cut a model in two: the layers on the node, and the layers on the server."""

import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node, Proxy, Tracer
from torch.fx.proxy import TraceError

from fedcomp.split.modes import restored_modes

FREE = ("call_function", "call_method")
"""Operations without weights; they stay with the layer before them."""
REMEDY = "or write the two parts as modules of their own"


def cut(model: nn.Module, name: str) -> tuple[nn.Module, nn.Module]:
    """Return the lower and the upper part of `model`: the lower part ends with the layer `name`.

    Operations after that layer that have no weights and no module, such as the choice of an LSTM's last state, belong to the
    lower part.  Both parts share their weights and buffers with `model`, under the same names: training the parts trains the
    model.

    Raises:
        ValueError: There is no such layer, or more than its output crosses the cut, as in the middle of a residual block.
            A part has no weights, or both parts share weights.  Or torch.fx cannot trace the `forward` of the model, or traces
            another one in training than in evaluation, or in each call, as with random numbers.

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
    trace = _trace(model, name)
    with _restored_attributes(model):
        vars(model).update(trace.constants)
        parts = _parts(model, name, trace.nodes)
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


def _parts(model: nn.Module, name: str, nodes: list[Node]) -> tuple[GraphModule, GraphModule]:
    """Return the lower and the upper part of the operations `nodes` of `model`."""
    calls = [place for place, node in enumerate(nodes) if node.op == "call_module" and node.target == name]
    if len(calls) != 1:
        raise ValueError(f"the model calls the layer {name!r} {len(calls)} times; once is needed")
    end = calls[0] + 1
    while nodes[end].op in FREE:
        end += 1
    first = set(nodes[:end])
    below = [node for node in nodes[:end] if node.op != "get_attr" or first & node.users.keys()]
    inside = set(below)
    above = [node for node in nodes if node not in inside]  # with what is read early, and used there alone
    crossing = [node for node in below if node.users.keys() - inside]
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
    return GraphModule(model, lower), GraphModule(model, upper)


class _Tracer(Tracer):
    """Enters all modules except those without children and the module at the cut; reads buffers in each call."""

    proxy_buffer_attributes = True

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        is_inner = next(m.children(), None) is not None
        return module_qualified_name == self._name or not is_inner or super().is_leaf_module(m, module_qualified_name)

    def create_proxy(self, *args: Any, **kwargs: Any) -> Proxy:
        if not torch.is_grad_enabled():
            raise TraceError("it uses torch.no_grad(), which its two parts would not")
        return super().create_proxy(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class _Trace:
    """The operations of a call, and what they read: `constants` that the call has made, by name, and the `values` of tensors.

    `texts` say what the operations do.  Values are copies, without parameters.
    """

    nodes: list[Node]
    constants: dict[str, object]
    texts: list[str]
    values: list[Tensor]
    is_random: bool

    def is_like(self, other: "_Trace") -> bool:
        """Return whether both compute the same."""
        return self.texts == other.texts and all(map(_are_equal, self.values, other.values))


def _trace(model: nn.Module, name: str) -> _Trace:
    """Return the operations of a call of `model`; raise `ValueError` if they depend on the call or on the mode of `model`."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), restored_modes(model):
        training, again = _trace_twice(model.train(), name)
        evaluation, later = _trace_twice(model.eval(), name)
    if training.is_random or evaluation.is_random or not training.is_like(again) or not evaluation.is_like(later):
        raise ValueError(
            "the forward of the model computes something new in each call, such as random numbers, which would be fixed in its "
            f"two parts; do so in a module without submodules, {REMEDY}"
        )
    if not training.is_like(evaluation):
        raise ValueError(
            "the forward of the model reads self.training, which would be fixed in its two parts; call a module such as "
            f"nn.Dropout instead, {REMEDY}"
        )
    return training


def _trace_twice(model: nn.Module, name: str) -> tuple[_Trace, _Trace]:
    """Return the operations of two calls in a row, which set attributes of `model` for that time."""
    with _restored_attributes(model):
        return _trace_once(model, name), _trace_once(model, name)


def _trace_once(model: nn.Module, name: str) -> _Trace:
    attributes, buffers, random_state = set(vars(model)), dict(model.named_buffers()), torch.get_rng_state()
    try:
        nodes = list(_Tracer(name).trace(model).nodes)
    except (TraceError, TypeError, ValueError, RuntimeError, AttributeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        text = f"the model cannot be traced ({reason}); write its two parts as modules of their own"
        raise ValueError(text) from error
    for key, buffer in model.named_buffers():
        if buffer is not buffers.get(key):
            raise ValueError(
                f"the forward of the model assigns the buffer {key!r}, which its two parts would not; change it in place, such "
                f"as by add_(), {REMEDY}"
            )
    constants = {key: value for key, value in vars(model).items() if key not in attributes}
    read = [attrgetter(str(node.target))(model) for node in nodes if node.op == "get_attr"]
    values = [each.detach().clone() for each in read if isinstance(each, Tensor) and not isinstance(each, nn.Parameter)]
    is_random = not torch.equal(torch.get_rng_state(), random_state)
    return _Trace(nodes, constants, list(map(_text, nodes)), values, is_random)


def _text(node: Node) -> str:
    """Return what a node does; constants get another number in each trace."""
    return re.sub(r"_tensor_constant\d+", "", f"{node.op} {node.target} {node.args} {node.kwargs}")


def _are_equal(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are of the same values, NaN included."""
    is_alike = one.dtype == other.dtype and one.shape == other.shape
    return is_alike and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


@contextmanager
def _restored_attributes(model: nn.Module) -> Generator[None]:
    """Let the block set attributes and buffers of the modules in `model`, and restore them afterwards."""
    spaces = [space for module in model.modules() for space in (vars(module), vars(module).get("_buffers", {}))]
    before = [dict(space) for space in spaces]
    try:
        yield
    finally:
        for space, old in zip(spaces, before, strict=True):
            space.clear()
            space.update(old)
