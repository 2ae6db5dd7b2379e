"""Bounds on the effect of one node on the parts that all nodes share, derived from the batches of the other nodes.

A bound is a multiple of a median in which each node counts once, so a minority of the nodes cannot move it far.
"""

import math
import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedcomp.core import Arrays, Vector
from fedcomp.errors import CorruptError

MAX_ACTIVATION_RATIO = 30.0
"""Activations whose root mean square exceeds this multiple of the median are refused."""
MAX_STEP_RATIO = 2.0
"""No step of the upper part is longer than this multiple of its norm, or of 1 if that is larger."""
MAX_ROUND_RATIO = 10.0
"""The same bound for the change of a lower part's trained weights in a round."""
RECENT = 16
"""The number of newest sizes of each node that count."""


@dataclass(slots=True)
class Sizes:
    """The newest sizes of something that each node sends."""

    by_node: dict[int, deque[float]] = field(default_factory=dict[int, deque[float]])
    largest_median: float = 0.0

    def add(self, node: int, size: float) -> None:
        """Add a size of a node."""
        self.by_node.setdefault(node, deque(maxlen=RECENT)).append(size)
        self.largest_median = max(self.largest_median, self.median)

    def forget(self, node: int) -> None:
        """Drop the sizes of a node, if there are any."""
        self.by_node.pop(node, None)

    @property
    def median(self) -> float:
        """The median over the nodes of the median of each node's newest sizes; 0 before the first size."""
        medians = [statistics.median(sizes) for sizes in self.by_node.values()]
        return statistics.median(medians) if medians else 0.0


class BatchBounds:
    """Bounds the batches that train an upper part, unless `clip` is 0.

    A gradient of the upper part is at most `clip` times as long as the largest median so far, taken over all nodes.
    """

    def __init__(self, clip: float) -> None:
        self._clip, self._activations, self.gradients = clip, Sizes(), Sizes()

    def check_activations(self, rows: Vector) -> float:
        """Return the root mean square of activations; raise `CorruptError` if it is far beyond earlier ones."""
        size, usual = math.sqrt(float(np.square(rows, dtype=np.float64).mean())), self._activations.median
        if self._clip and 0 < MAX_ACTIVATION_RATIO * usual < size:
            raise CorruptError(
                f"activations of root mean square {size:.3g}; those before have {usual:.3g}, and at most "
                f"{MAX_ACTIVATION_RATIO:g} times that is trained with"
            )
        return size

    def clip_gradients(self, gradients: Iterable[Tensor]) -> float:
        """Scale the gradients of the upper part down to the bound, in place; return their norm before."""
        found = list(gradients)
        norm = norm_of(found)
        bound = self._clip * self.gradients.largest_median
        if 0 < bound < norm:
            for gradient in found:
                gradient.mul_(bound / norm)
        return norm

    def check_step(self, optimizer: torch.optim.SGD) -> None:
        """Raise `CorruptError` if the next step would be too long (`MAX_STEP_RATIO`); the weights are unchanged."""
        if not self._clip:
            return
        group = optimizer.param_groups[0]
        weights = [weight for weight in group["params"] if weight.grad is not None]
        buffers = [optimizer.state[each].get("momentum_buffer") for each in weights if each in optimizer.state]
        last = norm_of([buffer for buffer in buffers if buffer is not None])
        length = group["lr"] * (group["momentum"] * last + norm_of([weight.grad for weight in weights]))
        most = MAX_STEP_RATIO * max(1.0, norm_of([weight.detach() for weight in weights]))
        if length > most:
            raise CorruptError(f"a step of length {length:.3g}; at most {most:.3g} is possible for these weights")

    def add(self, node: int, activations: float, gradient: float) -> None:
        """Add a batch that was trained with."""
        self._activations.add(node, activations)
        self.gradients.add(node, gradient)

    def forget(self, node: int) -> None:
        """Drop what is known of the batches of a node; the largest median so far stays."""
        self._activations.forget(node)
        self.gradients.forget(node)


class RoundBounds:
    """Bounds the lower parts that nodes return, unless `clip` is 0.

    The change of the `trained` weights, all together, is at most `clip` medians long.  So is the change of each other tensor,
    such as a statistic of BatchNorm, which is in units of the samples: it is compared with nothing but the same tensor of the
    other nodes.  A tensor that most nodes leave as it was stays so.
    """

    def __init__(self, clip: float, trained: Iterable[str]) -> None:
        self._clip, self.trained, self._changes = clip, frozenset(trained), Sizes()
        self._others: dict[str, dict[int, float]] = {}

    def factors(self, start: Arrays, weights: Mapping[int, Arrays]) -> dict[int, dict[str, float]]:
        """Return for each node the factor, 0 to 1, of the change of each tensor from `start`.

        `weights` are the weights of one round, of nodes that have trained.
        """
        if not self._clip:
            return {node: dict.fromkeys(start, 1.0) for node in weights}
        trained = [name for name in start if name in self.trained]
        norms = {node: _distance(arrays, start, trained) for node, arrays in weights.items()}
        for node, norm in norms.items():
            if norm:
                self._changes.add(node, norm)
        length = norm_of(torch.from_numpy(start[name]) for name in trained)
        most = min(self._clip * self._changes.median, MAX_ROUND_RATIO * max(1.0, length))
        factors = {node: dict.fromkeys(trained, _factor(norm, most)) for node, norm in norms.items()}
        for name in start.keys() - self.trained:
            norms = {node: _distance(arrays, start, [name]) for node, arrays in weights.items()}
            newest = self._others.setdefault(name, {})
            newest |= norms
            most = self._clip * statistics.median(newest.values()) if newest else 0.0
            for node, norm in norms.items():
                factors[node][name] = _factor(norm, most)
        return factors

    def forget(self, nodes: Iterable[int]) -> None:
        """Drop what is known of the changes of `nodes`."""
        for node in nodes:
            self._changes.forget(node)
            for newest in self._others.values():
                newest.pop(node, None)


def with_scaled_change(start: Arrays, weights: Arrays, factors: Mapping[str, float]) -> Arrays:
    """Return `start` plus the change to `weights`, that of each tensor times its factor; whole numbers are rounded."""
    return {name: _scaled(start[name], array, factors[name]) for name, array in weights.items()}


def _scaled(start: NDArray[Any], array: NDArray[Any], factor: float) -> NDArray[Any]:
    if factor in (0, 1):
        return array if factor else start
    moved = np.asarray(start + factor * (array.astype("f8") - start))
    return (moved if array.dtype.kind == "f" else np.rint(moved)).astype(array.dtype)


def _factor(norm: float, most: float) -> float:
    return most / norm if norm > most else 1.0


def norm_of(tensors: Iterable[Tensor]) -> float:
    """Return the l2 norm of all tensors together, complex tensors included."""
    return math.sqrt(sum(float(tensor.abs().double().square().sum()) for tensor in tensors))


def _distance(first: Arrays, second: Arrays, names: Iterable[str]) -> float:
    with np.errstate(over="ignore"):  # a float64 may be beyond any square
        return math.sqrt(sum(float(((first[name].astype("f8") - second[name]) ** 2).sum()) for name in names))
