"""A plan of plug-ins, and a round of training with it: the user's loop calls `LocalRound.step` for each batch."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from logging import getLogger
from typing import Protocol

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from fedcomp.core import check_range, format_call
from fedcomp.training.model_checks import check_shapes, check_trained

Tensors = Mapping[str, Tensor]
State = Mapping[str, Tensors]
"""What plug-ins keep on a node between rounds: tensors by name, by the text of the plug-in."""
LossFunction = Callable[[Tensor, Tensor], Tensor]
"""A function of the model's outputs (N, ...) and the labels (N, ...) that returns their mean loss."""


class Optimizer(Protocol):
    """What a step needs of an optimizer; those of `torch.optim` have it."""

    def zero_grad(self) -> object:
        """Drop the gradients of the last step."""

    def step(self) -> object:
        """Change the weights by their gradients."""


class Step:
    """What a plug-in does in the steps of one round; each of these does nothing.

    `LocalRound.step` calls them in this order: `started`, `samples`, `forward`, `weights`, `loss`, `gradients`, `stepped`.  A
    step on several batches calls those from `samples` to `loss` for each of them.
    """

    def started(self) -> None:
        """Note that a step of the optimizer begins."""

    def samples(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the samples and labels to train on in place of the batch `x`, `y`."""
        return x, y

    def forward(self) -> AbstractContextManager[object]:
        """Return the context in which model and loss function are called."""
        return nullcontext()

    def weights(self, weights: Tensors) -> Tensors:
        """Return the tensors to call the model with in place of its `weights` by name; gradients flow through them.

        The result has all names of `weights`, and may share tensors with it.
        """
        return weights

    def loss(self, loss: Tensor) -> Tensor:
        """Return the scalar to differentiate in place of `loss`."""
        return loss

    def gradients(self) -> bool:
        """Change the weights' gradients in place; return False to leave the optimizer's step out.

        After a plug-in that leaves the step out, those of lower rank are not called.
        """
        return True

    def stepped(self) -> None:
        """Change the weights after the optimizer's step; not called if it was left out."""

    def report(self) -> Tensors:
        """Return what the server wants to know of the round besides the weights, float32 and by name."""
        return {}

    def inference(self) -> "Step":
        """Return the step in whose `forward` and `weights` the trained model is called, for a plug-in with `inference`."""
        return self

    def end(self) -> Tensors:
        """Undo all changes to the model other than its weights; return the tensors to keep for the node's next round.

        It is called after an error too.  The dtypes are those of numpy.
        """
        return {}


Begin = Callable[[nn.Module, Tensors, Generator], Step]
"""A function of the model, what the last round kept, and the random numbers of the round, on the CPU."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A `Begin` for models that were prepared: ``prepare(model, seed)`` changes a new model in place, the same by each seed."""

    begin: Begin
    prepare: Callable[[nn.Module, int], None]

    def __call__(self, model: nn.Module, kept: Tensors, generator: Generator) -> Step:
        """Return what the plug-in does in a round."""
        return self.begin(model, kept, generator)


@dataclass(frozen=True, slots=True)
class PlugIn:
    """A plug-in with its settings, as its text names them.

    `begin` raises `ValueError` for a model that the plug-in does not fit.  In a plan, a plug-in acts on the loss after those of
    lower `rank`, and on the gradients before them: one that scales the loss must be the last to see it.  With `inference`, the
    model is meant to be used with the weights and in the context of its `Step.inference`: as it was trained, or otherwise.
    """

    name: str
    settings: tuple[tuple[str, object], ...]
    begin: Begin = field(compare=False, repr=False)
    rank: int = field(default=0, compare=False, repr=False)
    inference: bool = field(default=False, compare=False, repr=False)
    saving: bool = field(default=False, compare=False, repr=False)

    def __str__(self) -> str:
        return format_call(self.name, dict(self.settings))


@dataclass(frozen=True, slots=True)
class Plan:
    """How a node trains: an ordinary loop with these plug-ins.  Without any, a step is a step of the optimizer.

    Examples:
        >>> import torch
        >>> from torch.nn import functional
        >>> from fedcomp.training import parse
        >>> plan = parse("fedprox(mu=0.1)")
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> state = {}  # of this node, from its last round
        >>> x, y = torch.randn(8, 4), torch.randint(2, (8,))
        >>> training = plan.begin(model, state)
        >>> for rows in torch.arange(8).split(4):
        ...     loss = training.step(optimizer, x[rows], y[rows], functional.cross_entropy)
        >>> state = training.end()

    """

    plugins: tuple[PlugIn, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a plug-in that is there twice, and two of which one would undo what the other does."""
        names = [plugin.name for plugin in self.plugins]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{self} has {name} {names.count(name)} times; once is possible")
        for what, deciding in (
            ("the weights that the model is called with", [plugin.name for plugin in self.plugins if plugin.inference]),
            ("what autograd saves", [plugin.name for plugin in self.plugins if plugin.saving]),
        ):
            if len(deciding) > 1:
                raise ValueError(f"{' and '.join(deciding)} each decide {what}; one of them is possible")

    def __add__(self, other: "Plan") -> "Plan":
        return Plan(self.plugins + other.plugins)

    def __str__(self) -> str:
        return " + ".join(map(str, self.plugins))

    def prepare(self, model: nn.Module, seed: int) -> nn.Module:
        """Return `model` with what plug-ins add to a new model, such as masks: server and nodes call it before the first round.

        It is changed in place, the same everywhere by each `seed` from 0.  Raises `ValueError` for a plug-in that does not fit.
        """
        for plugin in self.plugins:
            if isinstance(plugin.begin, Prepared):
                check_shapes(model)
                plugin.begin.prepare(model, seed)
        return model

    def begin(self, model: nn.Module, state: State | None = None, *, seed: int = 0) -> "LocalRound":
        """Return a round of training for `model`, whose weights are those of the server.

        `state` is what the node's last round returned; that of plug-ins that are not in this plan, or had other settings, is
        left out.  `seed` decides all random numbers.  Raises `ValueError` for a plug-in that does not fit the model, and for a
        model that trains no weights.
        """
        check_trained(model)
        if self.plugins:
            check_shapes(model)
        generator = torch.Generator().manual_seed(seed)
        kept = state or {}
        begun: dict[str, Step] = {}
        training = LocalRound(model, begun)
        try:
            for plugin in sorted(self.plugins, key=lambda plugin: plugin.rank):
                begun[str(plugin)] = plugin.begin(model, kept.get(str(plugin), {}), generator)
        except BaseException:
            training.end()  # of those that have begun
            raise
        return training

    def inference(self, model: nn.Module) -> nn.Module:
        """Return `model` as it is meant to be used after training: a module that calls it, for example with quantized weights.

        It sees later changes of the weights, and has the modes of `model`.  Without such plug-ins, it is `model` itself.
        Raises `ValueError` for a plug-in that does not fit the model.
        """
        plugins = tuple(plugin for plugin in self.plugins if plugin.inference)
        return Inference(model, Plan(plugins)) if plugins else model

    def check(self, model: nn.Module, x: Tensor, y: Tensor) -> None:
        """Raise `ValueError` for a plug-in that does not fit the model, or a batch of samples `x` with labels `y`."""
        training = self.begin(model)
        try:
            training.samples(x, y)
        finally:
            training.end()


class LocalRound:
    """One round of training on a node; `model` is trained in place."""

    def __init__(self, model: nn.Module, steps: dict[str, Step]) -> None:
        self._model = model
        self._steps = steps
        self._within_step = False

    def samples(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the samples and labels that a step trains on if it gets the batch `x`, `y`."""
        for each in self._steps.values():
            x, y = each.samples(x, y)
        return x, y

    def step(
        self,
        optimizer: Optimizer,
        x: Tensor,
        y: Tensor,
        loss_function: LossFunction,
        *,
        share: float = 1.0,
        last: bool = True,
    ) -> Tensor:
        """Train on a batch, and return its loss before the step: a scalar of at least 32 bits, without penalties or graph.

        A step may have several batches (gradient accumulation): with ``last=False`` the gradients of a batch are added to the
        others, and the optimizer changes nothing until the last batch.  `share`, above 0 to 1, multiplies the batch's loss
        with its penalties: 1/4 for each of four batches gives the gradient of their mean.

        Raises `ValueError` for an optimizer that computes the loss itself, as LBFGS does, and for one that keeps the gradients
        of the last step.
        """
        if _needs_closure(type(optimizer)):
            raise ValueError(
                f"{type(optimizer).__name__} computes the loss several times in a step; an optimizer whose step() needs"
                " no closure, such as SGD or Adam, is needed"
            )
        check_range("share", share, above=0, most=1)
        if not self._within_step:
            self._drop_gradients(optimizer)
            for each in self._steps.values():
                each.started()
        self._within_step = False  # after an error, the next batch begins another step
        x, y = self.samples(x, y)
        with ExitStack() as stack:
            for each in self._steps.values():
                stack.enter_context(each.forward())
            plain = loss_function(self._outputs(x), y)
        loss = plain
        for each in self._steps.values():
            loss = each.loss(loss)
        (loss if share == 1 else share * loss).backward()  # type: ignore[no-untyped-call]
        self._within_step = not last
        # Those after a plug-in that leaves the step out do not see the gradients, which may be infinite.
        if last and all(each.gradients() for each in self._last_first()):
            optimizer.step()
            for each in self._last_first():
                each.stepped()
        return plain.detach().to(torch.promote_types(plain.dtype, torch.float32))

    def report(self) -> dict[str, Tensor]:
        """Return what the server may want to know of the round besides the weights, by name."""
        return {name: tensor for each in self._steps.values() for name, tensor in each.report().items()}

    def inference(self) -> "LocalRound":
        """Return a round of the steps in which the trained model is called."""
        return LocalRound(self._model, {text: each.inference() for text, each in self._steps.items()})

    def outputs(self, x: Tensor) -> Tensor:
        """Return the model's outputs for `x` in the context of the plug-ins, and with their weights."""
        with ExitStack() as stack:
            for each in self._steps.values():
                stack.enter_context(each.forward())
            return self._outputs(x)

    def weights(self) -> Tensors:
        """Return the tensors that stand for the model's trained weights in a call, by name."""
        weights: Tensors = {name: weight for name, weight in self._model.named_parameters() if weight.requires_grad}
        for each in self._steps.values():
            weights = each.weights(weights)
        return weights

    def end(self) -> dict[str, Tensors]:
        """End the round, and return what the node keeps for its next one."""
        if self._within_step:
            self._within_step = False
            getLogger("fedcomp").warning(
                "a round ends within a step: no batch of it was the last, and its gradients are dropped"
            )
        kept = {text: each.end() for text, each in reversed(self._steps.items())}
        return {text: tensors for text, tensors in kept.items() if tensors}

    def _drop_gradients(self, optimizer: Optimizer) -> None:
        """Have the optimizer drop the gradients of the last step; raise `ValueError` if all of them are still there."""
        weights = [weight for weight in self._model.parameters() if weight.grad is not None]
        optimizer.zero_grad()
        if weights and all(weight.grad is not None and not _is_zero(weight.grad) for weight in weights):
            raise ValueError(
                f"zero_grad() of {type(optimizer).__name__} keeps all gradients of the last step; to add up those of several"
                " batches, call step(..., last=False) for all of them but the last"
            )

    def _outputs(self, x: Tensor) -> Tensor:
        outputs: Tensor
        if any(type(each).weights is not Step.weights for each in self._steps.values()):
            outputs = functional_call(self._model, dict(self.weights()), (x,))
        else:
            outputs = self._model(x)
        return outputs

    def _last_first(self) -> Iterator[Step]:
        return reversed(self._steps.values())


def _is_zero(gradient: Tensor) -> bool:
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return not bool(values.any())


@cache
def _needs_closure(optimizer: type[Optimizer]) -> bool:
    """Return whether ``step`` has an argument without a default besides the object: a closure that computes the loss."""
    step = getattr(optimizer, "step", None)  # an object may get it elsewhere
    parameters = signature(step).parameters.values() if step is not None else ()
    return sum(each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters) > 1


class Inference(nn.Module):
    """Calls a model as the plug-ins of a plan do."""

    def __init__(self, model: nn.Module, plan: Plan) -> None:
        super().__init__()
        self.model = model
        self.training = model.training
        self._round = plan.begin(model).inference()

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the model for its inputs `x`."""
        return self._round.outputs(x)

    def tensors(self) -> dict[str, Tensor]:
        """Return the model's state dict with the weights that it is called with."""
        # A shared weight has several names, and is used the same under each.
        named = dict(self.model.named_parameters(remove_duplicate=False))
        with torch.no_grad():
            used = {named[name]: weight.detach() for name, weight in self._round.weights().items()}
        renamed = {name: used[parameter] for name, parameter in named.items() if parameter in used}
        return dict(self.model.state_dict()) | renamed
