"""ADMM: weights are trained to come close to the few values to which they are rounded at the end."""

from collections.abc import Mapping
from functools import partial
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from fedcomp.core import check_bool, check_choice, check_int, check_range
from fedcomp.training.plan import Begin
from fedcomp.training.registry import register
from fedcomp.training.step import Step, Tensors
from fedcomp.training.straight_through import matrices

TABLES: Mapping[str, tuple[float, ...]] = {"binary": (1,), "ternary": (0, 1), "shift": (0, 1, 2, 4)}
"""Table -> the magnitudes of its entries; each entry has both signs."""
MAX_ALTERNATIONS = 30
"""Most vectors converge sooner.  In a large vector a few entries may still move, which changes the distance by < 1/1000."""
MAX_RHO = 1e6
MAX_INTERVAL = 1_000_000_000


class Admm(Step):
    """Adds ``rho / 2 |W - alpha Q + lambda|^2`` to the loss for each weight matrix W, and updates alpha, Q and lambda."""

    def __init__(
        self, table: str, rho: float, interval: int, rows: bool, model: nn.Module, kept: Tensors, _generator: Generator
    ) -> None:
        names = matrices(model, "admm")
        self._rounded = Rounded(names, table, rows)
        self._rho, self._interval = rho, interval
        self._steps = 0  # since the last update
        named = dict(model.named_parameters())
        self._weights = {name: named[name] for name in names} if rho else {}
        self._duals = {name: torch.zeros_like(weight.detach()) for name, weight in self._weights.items()}
        for name, dual in self._duals.items():
            if name in kept and kept[name].shape == dual.shape:
                dual.copy_(kept[name])
        self._targets = {name: self._nearest(name) for name in self._weights}

    def loss(self, loss: Tensor) -> Tensor:
        """Return `loss` with the penalties."""
        for name, weight in self._weights.items():
            loss = loss + self._rho / 2 * (weight - self._targets[name] + self._duals[name]).square().sum()
        return loss

    def stepped(self) -> None:
        """Update alpha, Q and lambda after each `interval` steps."""
        self._steps += 1
        if self._steps == self._interval:
            self._update()

    def end(self) -> Tensors:
        """Return lambda of each weight matrix, updated for the steps since its last update."""
        if self._steps:
            self._update()
        return self._duals

    def inference(self) -> Step:
        """Return the step that rounds the weights to alpha Q."""
        return self._rounded

    @torch.no_grad()
    def _update(self) -> None:
        self._steps = 0
        for name, weight in self._weights.items():
            self._targets[name] = self._nearest(name)
            self._duals[name] += weight - self._targets[name]

    @torch.no_grad()
    def _nearest(self, name: str) -> Tensor:
        return self._rounded.nearest(self._weights[name] + self._duals[name])


class Rounded(Step):
    """Calls the model with its weight matrices rounded to alpha Q, without lambda."""

    def __init__(self, names: list[str], table: str, rows: bool) -> None:
        self._names, self._magnitudes, self._rows = set(names), TABLES[table], rows

    def weights(self, weights: Tensors) -> Tensors:
        """Return the weights with the matrices rounded; biases are unchanged."""
        return {
            name: self.nearest(weight.detach()) if name in self._names else weight for name, weight in weights.items()
        }

    def nearest(self, values: Tensor) -> Tensor:
        """Return alpha Q for `values` (rows, ...): one alpha for each row, or for all."""
        vectors = values.reshape(len(values) if self._rows else 1, -1)
        alpha, entries = project(vectors, self._magnitudes)
        return (alpha * entries).reshape(values.shape)


def project(
    vectors: Tensor, magnitudes: tuple[float, ...], alternations: int = MAX_ALTERNATIONS
) -> tuple[Tensor, Tensor]:
    """Return alpha (rows, 1) and Q, of the shape of `vectors` V (rows, n), such that alpha Q is close to each row.

    The entries of Q have these ascending `magnitudes`, and either sign.  alpha starts from half the mean magnitude.  Then Q and
    alpha are fitted in turns until Q stays: Q becomes the nearest to V / alpha entry by entry, where a tie takes the smaller
    magnitude, and alpha = <V, Q> / <Q, Q>.  |V - alpha Q| never increases, and ends in a local minimum (Leng et al., AAAI
    2018).
    """
    levels = vectors.new_tensor(magnitudes)
    signs = torch.where(vectors < 0, -1.0, 1.0).to(vectors.dtype)
    tiny = torch.finfo(vectors.dtype).tiny
    alpha = vectors.abs().mean(1, keepdim=True) / 2
    entries = torch.zeros_like(vectors)
    for _ in range(alternations):
        last = entries
        ratios = vectors.abs() / alpha.clamp(min=tiny)
        entries = signs * levels[torch.bucketize(ratios, (levels[:-1] + levels[1:]) / 2)]
        if torch.equal(entries, last):
            break
        alpha = (vectors * entries).sum(1, keepdim=True) / entries.square().sum(1, keepdim=True).clamp(min=tiny)
    return alpha, entries


@register(
    "Xu et al., ICASSP 2020, arXiv 2111.14836",
    "weights trained towards few values by ADMM",
    measured="ternary char_lstm, 13.6 times smaller: perplexity 8.67; rounded after training 9.78, float32 6.90",
    inference=True,
)
def admm(
    table: Literal["binary", "ternary", "shift"] = "ternary", rho: float = 0.002, interval: int = 50, rows: bool = False
) -> Begin:
    """Train float32 weights towards alpha Q, to which they are rounded when the model is used.

    The entries of Q are -1 and 1 (``"binary"``), also 0 (``"ternary"``), or 0, +-1, +-2 and +-4 (``"shift"``).  Each weight
    matrix has one alpha; with `rows`, each row of it has its own.  ``rho / 2 |W - alpha Q + lambda|^2`` is added to the loss,
    with `rho` 0 to 10^6.

    Every `interval` steps, and at the end of a round, alpha and Q are fitted to W + lambda, and lambda becomes the remainder,
    W + lambda - alpha Q.  A node keeps lambda between rounds; a round fits alpha and Q to the server's weights plus lambda.

    With ``rho=0`` training is as without the plug-in, and the result is rounded.  Xu et al., ICASSP 2020, arXiv 2111.14836.
    """
    check_choice("table", table, tuple(TABLES))
    check_range("rho", rho, least=0, most=MAX_RHO)
    check_int("interval", interval, 1, MAX_INTERVAL)
    check_bool("rows", rows)
    return partial(Admm, table, rho, interval, rows)
