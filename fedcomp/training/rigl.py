"""RigL: weights of a fixed sparsity, whose positions the server chooses by the gradients that nodes report."""

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from fedcomp.core import check_bool, check_choice, check_range
from fedcomp.training.model_checks import check_dense_gradients
from fedcomp.training.plan import Begin, Prepared
from fedcomp.training.registry import register
from fedcomp.training.step import Step, Tensors
from fedcomp.training.straight_through import matrices
from fedcomp.wire import MASK, unpack_mask

Shape = tuple[int, ...]


def densities(shapes: Mapping[str, Shape], density: float, layers: str) -> dict[str, float]:
    """Return the density of each weight: ``density`` of all entries in total (``"erk"``), or of each weight (``"uniform"``).

    With ``"erk"`` the density of a weight is proportional to the sum of its sides over their product.  Weights whose density
    would be above 1 are dense, and the others share the rest (Evci et al., ICML 2020, section 3.1).  With ``"uniform"`` the
    first weight is dense.
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    if layers == "uniform":
        first = next(iter(shapes))
        return {name: 1.0 if name == first else density for name in shapes}
    dense: set[str] = set()
    while True:
        raw = {name: sum(shapes[name]) / sizes[name] for name in shapes if name not in dense}
        left = density * sum(sizes.values()) - sum(sizes[name] for name in dense)
        factor = left / sum(raw[name] * sizes[name] for name in raw) if raw else 0.0
        above = {name for name in raw if factor * raw[name] > 1}
        if not above:
            return {name: 1.0 if name in dense else factor * raw[name] for name in shapes}
        dense |= above


class SparseWeights(Step):
    """Keeps weights outside their masks at zero, and sums their gradients: the server uses them to choose new positions."""

    def __init__(
        self, candidates: float | str, regrow: bool, model: nn.Module, _kept: Tensors, _generator: Generator
    ) -> None:
        check_dense_gradients(model, "rigl")
        names = masked(model, matrices(model, "rigl"))
        if not names:
            raise ValueError(
                "rigl() needs a model with masks; Plan.prepare(model, seed) adds them before the first round"
            )
        self._candidates, self._regrow = candidates, regrow
        self._weights = {name: model.get_parameter(name) for name in names}
        self._model, self._steps = model, 0
        self._masks: dict[str, Tensor] = {}
        self._sums: dict[str, Tensor] = {}

    def forward(self) -> AbstractContextManager[object]:
        """Make weights outside the masks zero before the first step; the context does nothing."""
        if not self._masks:
            self._masks = masks_of(self._model, self._weights)
            self._sums = {name: torch.zeros_like(weight.detach()) for name, weight in self._weights.items()}
            self._apply()
        return nullcontext()

    def gradients(self) -> bool:
        """Keep gradients within the masks, so that new momentum stays there too; sum up the other gradients, or all."""
        self._steps += 1
        for name, mask in self._masks.items():
            gradient = self._weights[name].grad
            if gradient is not None:
                if gradient.is_sparse:
                    raise ValueError(
                        f"rigl() needs dense gradients; {name} has a sparse one, from an embedding with sparse=True"
                    )
                # A step that overflows with mixed precision has infinities here, and another plug-in leaves it out.
                self._sums[name].add_(
                    torch.nan_to_num(gradient if self._regrow else gradient.masked_fill(mask, 0), 0, 0, 0)
                )
                gradient.masked_fill_(~mask, 0)
        return True

    def stepped(self) -> None:
        """Keep the weights within their masks."""
        self._apply()

    def inference(self) -> Step:
        """Return a step that zeroes weights outside the masks; a lossy downlink may have left residues there."""
        return MaskedCall(self._model, self._weights)

    def report(self) -> Tensors:
        """Return the largest mean gradients of weights outside their masks: `candidates` for each weight inside.

        With `regrow`, return also the gradients of the same number of the smallest weights inside.
        """
        reported: dict[str, Tensor] = {}
        for name, total in self._sums.items():
            mean = total / max(1, self._steps)
            if self._candidates != "all":
                mask = self._masks[name]
                count = math.ceil(float(self._candidates) * int(mask.sum()))
                chosen = _first(mean.abs().masked_fill(mask, -1), count)
                if self._regrow:
                    magnitudes = self._weights[name].detach().abs()
                    chosen |= _first(-magnitudes.masked_fill(~mask, torch.inf), min(count, int(mask.sum())))
                mean = mean.masked_fill(~chosen, 0)
            reported[name] = mean
        return reported

    @torch.no_grad()
    def _apply(self) -> None:
        for name, mask in self._masks.items():
            self._weights[name].masked_fill_(~mask, 0)


def _first(values: Tensor, count: int) -> Tensor:
    """Return a mask of the `count` largest values, or of all values if there are fewer."""
    flat = values.flatten()
    mask = torch.zeros_like(flat, dtype=torch.bool)
    mask[flat.topk(min(count, len(flat)), sorted=False).indices] = True
    return mask.view_as(values)


class MaskedCall(Step):
    """Calls the model with the weights inside their masks."""

    def __init__(self, model: nn.Module, weights: Tensors) -> None:
        self._model, self._weights = model, weights

    def weights(self, weights: Tensors) -> Tensors:
        """Return the weights with zeros outside the current masks of the model."""
        masks = masks_of(self._model, self._weights)
        return {name: weight * masks[name] if name in masks else weight for name, weight in weights.items()}


def masked(model: nn.Module, names: Iterable[str]) -> list[str]:
    """Return those of the weights that have a mask: a buffer as `Plan.prepare` adds it.

    Raises `ValueError` if a module has something else under the name of a mask.
    """
    buffers, found = dict(model.named_buffers()), list[str]()
    for name in names:
        mask, size = buffers.get(name + MASK), -(-model.get_parameter(name).numel() // 8)
        if mask is not None and mask.dtype == torch.uint8 and mask.shape == (size,):
            found.append(name)
            continue
        owner, _, own_name = name.rpartition(".")
        if hasattr(model.get_submodule(owner), own_name + MASK):
            raise ValueError(
                f"the model has a {name}{MASK} that is no mask of rigl(), which is uint8 of the shape ({size},); that name"
                " must be free: rename yours"
            )
    return found


def masks_of(model: nn.Module, weights: Tensors) -> dict[str, Tensor]:
    """Return the masks of these weights as bool, by their names."""
    return {name: unpacked(model.get_buffer(name + MASK), weight) for name, weight in weights.items()}


def unpacked(mask: Tensor, weight: Tensor) -> Tensor:
    """Return the bits of a mask as bool, of the shape and on the device of `weight`."""
    return torch.from_numpy(unpack_mask(mask.cpu().numpy(), weight.numel())).view(weight.shape).to(weight.device)


@torch.no_grad()
def _prepare(density: float, layers: str, model: nn.Module, seed: int) -> None:
    """Give each weight matrix that is not dense a random mask, and zero the weights outside.

    The weights inside are divided by the root of their share, so that outputs keep their variance (Evci et al., AAAI 2022).  A
    model that has masks keeps them.  Raises `ValueError` if no matrix becomes sparse, or if the name of a mask is taken.
    """
    names = matrices(model, "rigl")
    if masked(model, names):
        return
    named = {name: model.get_parameter(name) for name in names}
    chosen = densities({name: tuple(weight.shape) for name, weight in named.items()}, density, layers)
    counts = {name: max(1, round(chosen[name] * weight.numel())) for name, weight in named.items()}
    if all(counts[name] == weight.numel() for name, weight in named.items()):
        raise ValueError(
            f"density is {density:g}; with layers={layers!r} no weight matrix of this model becomes sparse"
        )
    for number, (name, weight) in enumerate(named.items()):
        if (count := counts[name]) == weight.numel():
            continue
        bits: NDArray[np.bool_] = np.zeros(weight.numel(), np.bool_)
        bits[np.random.default_rng([seed, number]).permutation(weight.numel())[:count]] = True
        owner, _, own_name = name.rpartition(".")
        mask = torch.from_numpy(np.packbits(bits)).to(weight.device)
        model.get_submodule(owner).register_buffer(own_name + MASK, mask)
        weight.mul_(unpacked(mask, weight) * math.sqrt(weight.numel() / count))


@register(
    "Evci et al., ICML 2020",
    "a fixed share of the weights, moved to where gradients are large",
    measured="Fashion-MNIST, CNN, a tenth of the weights: 83.2 % with 11.6 times fewer bytes up; 86.1 % dense",
    inference=True,
)
def rigl(
    density: float = 0.1,
    layers: Literal["erk", "uniform"] = "erk",
    candidates: float | Literal["all"] = 0.3,
    regrow: bool = False,
) -> Begin:
    """Train a share `density` (0 to 1) of the weights; the others are zero, and the server moves them by gradients.

    `Plan.prepare` gives the model its masks, a random mask for each weight matrix.  With ``"erk"`` small matrices have a larger
    share of entries; with ``"uniform"`` all matrices but the first have the same share, in the order of the model's parameters.
    A round trains inside the masks.

    Every few rounds, the strategy `RigL` drops the smallest weights, and adds weights outside with the largest gradients.  For
    this, nodes report the largest gradients outside, up to `candidates` (0 to 1) for each weight inside, or ``"all"``, as in
    the paper.  With `regrow` they also report gradients of the smallest weights inside, and a weight stays if its gradient is
    among the largest, as in the paper.  Updates contain no positions: both sides know the masks.  Evci et al., ICML 2020.
    """
    check_range("density", density, above=0, most=1)
    check_choice("layers", layers, ("erk", "uniform"))
    if isinstance(candidates, str):
        check_choice("candidates", candidates, ("all",))
    else:
        check_range("candidates", candidates, above=0, most=1)
    check_bool("regrow", regrow)
    return Prepared(partial(SparseWeights, candidates, regrow), partial(_prepare, density, layers))
