"""signSGD with majority vote: each node one vote an entry, whatever its data and however loud its update."""

import math
from logging import INFO
from typing import Any, ClassVar

import numpy as np

from fedcomp.flower._compat import log
from fedcomp.flower.strategies.reply_use import ReplyUse
from fedcomp.flower.strategies.server_optimizer import RoundResult, ServerOptimizer, Sums


class MajorityVote(ServerOptimizer):
    """model = published + step sign(sum over nodes of sign(their model - published)).

    Bernstein et al., ICML 2018, algorithm 3; ICLR 2019 on why a minority of liars cannot turn it.  An entry that a node left
    as it was is no vote, and a tie moves nothing.  Votes are not weighted; counters, BatchNorm statistics and metrics are.
    """

    reply_use: ClassVar[ReplyUse] = ReplyUse.DIFFERENCES

    def __init__(self, *, step: float = 1e-3, **fedavg: Any) -> None:
        """Make it; what FedAvg takes, it takes as well.  Raises `ValueError` for a step out of range."""
        super().__init__(**fedavg)
        if not 0 < step < math.inf:
            raise ValueError(f"step is {step}; a finite number above 0 is needed")
        self.step = step

    def summary(self) -> None:
        """Log the step."""
        log(INFO, "\t├──> Majority vote: step %g", self.step)
        super().summary()

    def moved(self, step: RoundResult) -> Sums:
        """Return the parameters one step on towards where most nodes go."""
        moved: Sums = {}
        for name in step.parameters:
            votes = np.zeros(step.published[name].shape, np.int32)
            for difference in step.differences(name):
                votes += difference > 0
                votes -= difference < 0
            moved[name] = step.begin(name) + self.step * np.sign(votes)
        return moved
