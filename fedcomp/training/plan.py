"""A plan of plug-ins: how a node trains."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor, nn

from fedcomp.core import check_int, format_call
from fedcomp.training.local_round import LocalRound
from fedcomp.training.model_checks import NOTHING_TO_CHANGE, check_shapes, check_trained
from fedcomp.training.step import Step, Tensors

State = Mapping[str, Tensors]
"""The state of plug-ins on a node between rounds: tensors by name, by the text of the plug-in."""

SEEDS = (-(2**63), 2**64 - 1)
"""The least and the largest seed of torch."""

Begin = Callable[[nn.Module, Tensors, Generator], Step]
"""A function of the model, the tensors kept from the last round, and the random numbers of the round, on the CPU."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A `Begin` for prepared models: ``prepare(model, seed)`` changes a new model in place, equally for equal seeds."""

    begin: Begin
    prepare: Callable[[nn.Module, int], None]

    def __call__(self, model: nn.Module, kept: Tensors, generator: Generator) -> Step:
        """Return the plug-in's `Step` for a round."""
        return self.begin(model, kept, generator)


@dataclass(frozen=True, slots=True)
class PlugIn:
    """A plug-in with its settings, as its text names them.

    `begin` raises `ValueError` for a model that the plug-in does not fit.  In a plan, a plug-in acts on the loss after the
    plug-ins of lower `rank`, and on the gradients before them: a plug-in that scales the loss must see it last.  With
    `inference`, the trained model is meant to be used with the weights and in the context of the plug-in's `Step.inference`.
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
    """How a node trains: an ordinary loop with these plug-ins.  Without plug-ins, a step is a step of the optimizer.

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
        """Refuse a plug-in that occurs twice, and two plug-ins of which one would undo the other."""
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
        """Return `model` with the additions of plug-ins, such as masks; server and nodes call this before the first round.

        The model is changed in place, equally everywhere for equal seeds; `seed` is at least 0.  Raises `ValueError` for a
        plug-in that does not fit.
        """
        for plugin in self.plugins:
            if isinstance(plugin.begin, Prepared):
                check_shapes(model)
                plugin.begin.prepare(model, seed)
        return model

    def begin(self, model: nn.Module, state: State | None = None, *, seed: int = 0) -> LocalRound:
        """Return a round of training for `model`, which has the server's weights.

        `state` is the state that the node's last round returned.  The state of plug-ins that are not in this plan, or had other
        settings, is ignored.  `seed` decides all random numbers.  Raises `ValueError` for a plug-in that does not fit the
        model, and for a model that trains no weights.
        """
        check_int("seed", seed, *SEEDS)
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
            training.end()  # of the plug-ins that have begun
            raise
        return training

    def inference(self, model: nn.Module) -> nn.Module:
        """Return `model` as it is meant to be used after training: a module that calls it, for example with quantized weights.

        The result follows later changes of the weights, and the modes of `model`.  Without such plug-ins, it is `model` itself.
        Frozen weights stay as they are.  Raises `ValueError` for a plug-in that does not fit the model, and for a model whose
        weights are all frozen.
        """
        plugins = tuple(plugin for plugin in self.plugins if plugin.inference)
        if not plugins:
            return model
        check_trained(model, NOTHING_TO_CHANGE)
        return Inference(model, Plan(plugins))

    def check(self, model: nn.Module, x: Tensor, y: Tensor) -> None:
        """Raise `ValueError` for a plug-in that does not fit the model, or a batch of samples `x` with labels `y`."""
        training = self.begin(model)
        try:
            training.samples(x, y)
        finally:
            training.end()


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
        """Return the model's state dict with the weights of its calls."""
        # A shared weight has several names, and is used equally under each of them.
        named = dict(self.model.named_parameters(remove_duplicate=False))
        with torch.no_grad():
            used = {named[name]: weight.detach() for name, weight in self._round.weights().items()}
        renamed = {name: used[parameter] for name, parameter in named.items() if parameter in used}
        return dict(self.model.state_dict()) | renamed
