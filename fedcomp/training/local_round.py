"""A round of training with the plug-ins of a plan: the user's loop calls `LocalRound.step` for each batch."""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from inspect import signature
from logging import getLogger
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.module import register_module_forward_pre_hook

from fedcomp.core import check_range
from fedcomp.training.model_checks import named_modules
from fedcomp.training.step import Step, Tensors

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""A function of the model's outputs (N, ...) and the labels (N, ...) that returns their mean loss."""


class Optimizer(Protocol):
    """The methods of an optimizer that a step needs; the optimizers of `torch.optim` have them."""

    def zero_grad(self) -> object:
        """Drop the gradients of the last step."""

    def step(self) -> object:
        """Change the weights by their gradients."""


class LocalRound:
    """One round of training on a node; `model` is trained in place."""

    def __init__(self, model: nn.Module, steps: dict[str, Step]) -> None:
        self._model = model
        self._steps = steps
        self._within_step = False
        self._trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
        self._padding = _padding_rows(model)

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

        A step may have several batches (gradient accumulation).  With ``last=False`` the gradients of the batches are added up,
        and the optimizer changes nothing until the last batch.  `share`, above 0 and at most 1, multiplies the batch's loss and
        penalties: 1/4 for each of four batches gives the gradient of their mean.

        Raises `ValueError` for an optimizer that computes the loss itself, as LBFGS does, and for an optimizer that keeps the
        gradients of the last step.
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
        with self._no_repeated_calls():
            (loss if share == 1 else share * loss).backward()  # type: ignore[no-untyped-call]
        self._within_step = not last
        # If a plug-in leaves the step out, later plug-ins do not see the gradients, which may be infinite.
        if last and all(each.gradients() for each in self._last_first()):
            optimizer.step()
            for each in self._last_first():
                each.stepped()
        return plain.detach().to(torch.promote_types(plain.dtype, torch.float32))

    def report(self) -> dict[str, Tensor]:
        """Return the tensors that the server may use in addition to the weights, by name."""
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
        """Return the tensors that replace the weights in a call, by name, of those that were trained when the round began."""
        named = dict(self._model.named_parameters())
        weights: Tensors = {name: named[name] for name in self._trained}
        for each in self._steps.values():
            weights = each.weights(weights)
        padded = {name: row for name, row in self._padding.items() if weights.get(name) is not named[name]}
        return {**weights, **{name: _with_row(weights[name], named[name], row) for name, row in padded.items()}}

    def end(self) -> dict[str, Tensors]:
        """End the round, and return the state that the node keeps for its next round."""
        if self._within_step:
            self._within_step = False
            getLogger("fedcomp").warning(
                "a round ends within a step: no batch of it was the last, and its gradients are dropped"
            )
        kept = {text: each.end() for text, each in reversed(self._steps.items())}
        return {text: tensors for text, tensors in kept.items() if tensors}

    def _drop_gradients(self, optimizer: Optimizer) -> None:
        """Let the optimizer drop the gradients of the last step; raise `ValueError` if all of them are still present."""
        groups: list[dict[str, Any]] = getattr(optimizer, "param_groups", [])
        own = {id(weight) for group in groups for weight in group["params"]}  # a model may have several optimizers
        weights = [
            weight for weight in self._model.parameters() if weight.grad is not None and (not own or id(weight) in own)
        ]
        optimizer.zero_grad()
        if weights and all(weight.grad is not None and not _is_zero(weight.grad) for weight in weights):
            raise ValueError(
                f"zero_grad() of {type(optimizer).__name__} keeps all gradients of the last step; to add up those of several"
                " batches, call step(..., last=False) for all of them but the last"
            )

    @contextmanager
    def _no_repeated_calls(self) -> Generator[None]:
        """Raise `ValueError` if a module of the model is called in the block, and a plug-in would be missing in that call."""
        missing = [text for text, each in self._steps.items() if not each.recomputable or _replaces_weights(each)]
        if not missing:
            yield
            return
        names = {module: name for name, module in named_modules(self._model).items()}

        def refuse(module: nn.Module, _inputs: object) -> None:
            if module in names:
                what = f"the module {names[module]!r}" if names[module] else "the model"
                raise ValueError(
                    f"{what} is called again in the backward pass, as by gradient checkpointing, and there without "
                    f"{' and '.join(missing)}: its gradients would be wrong; train without checkpointing"
                )

        handle = register_module_forward_pre_hook(refuse)
        try:
            yield
        finally:
            handle.remove()

    def _outputs(self, x: Tensor) -> Tensor:
        outputs: Tensor
        if any(map(_replaces_weights, self._steps.values())):
            outputs = functional_call(self._model, dict(self.weights()), (x,))
        else:
            outputs = self._model(x)
        return outputs

    def _last_first(self) -> Iterator[Step]:
        return reversed(self._steps.values())


def _padding_rows(model: nn.Module) -> dict[str, int]:
    """Return the row of padding in each trained embedding, by the name of its weight."""
    rows = {
        id(module.weight): module.padding_idx
        for module in model.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.padding_idx is not None
    }
    named = model.named_parameters()
    return {name: rows[id(weight)] for name, weight in named if weight.requires_grad and id(weight) in rows}


def _with_row(weight: Tensor, original: Tensor, row: int) -> Tensor:
    """Return `weight` with one row of the `original`: padding must not count in sums over a sequence."""
    place = torch.tensor([row], device=weight.device)
    return weight.index_copy(0, place, original[row : row + 1].to(weight.dtype))


def _replaces_weights(step: Step) -> bool:
    return type(step).weights is not Step.weights


def _is_zero(gradient: Tensor) -> bool:
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return not bool(values.any())


@cache
def _needs_closure(optimizer: type[Optimizer]) -> bool:
    """Return whether ``step`` requires an argument: a closure that computes the loss."""
    step = getattr(optimizer, "step", None)  # an instance may have its own
    parameters = signature(step).parameters.values() if step is not None else ()
    return sum(each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters) > 1
