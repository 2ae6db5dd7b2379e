"""An app as Flower's quickstarts are written, to be run as it is and compressed."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from flwr.serverapp.strategy import FedAvg, Strategy

from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid
from fedcomp.sync import Traffic

NODES = 5
Handler = Callable[[Message, Context], Message]


@dataclass(frozen=True)
class Quickstart:
    """What the author of an app writes, and how the result is judged.

    `score` judges the final arrays: an accuracy from 0 to 1, or, if `is_loss`, a loss.  `settings` are arguments of
    `CompressedStrategy` that its log advises for such an app.  `min_ratio` is the least compression ratio that is accepted, of
    both directions together.
    """

    initial: Callable[[], ArrayRecord]
    train: Handler
    score: Callable[[ArrayRecord], float]
    is_loss: bool = False
    evaluate: Handler | None = None
    mods: Sequence[Mod] = ()
    strategy: Callable[[], Strategy] = lambda: FedAvg(fraction_evaluate=0.0)
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rounds: int = 10
    min_ratio: float = 5.0

    def run(self, *, compress: bool) -> tuple[float, Traffic]:
        """Return the score of a run, and its traffic if it was compressed."""
        random.seed(1)
        np.random.seed(1)  # Flower's noise comes from there
        torch.manual_seed(1)
        app = ClientApp(mods=[CompressionMod(), *self.mods] if compress else [*self.mods])
        app.train()(self.train)
        if self.evaluate is not None:
            app.evaluate()(self.evaluate)
        strategy = compressed(self.strategy(), **self.settings) if compress else self.strategy()
        result = strategy.start(LocalGrid(app, NODES), self.initial(), num_rounds=self.rounds)
        traffic = strategy.ledger.total() if isinstance(strategy, CompressedStrategy) else Traffic()
        return self.score(result.arrays), traffic


def compressed(strategy: Strategy, **settings: Any) -> CompressedStrategy:
    """Return `strategy` as the README wraps it: without a compressor; `settings` are those that an app needs."""
    return CompressedStrategy(strategy, **settings)
