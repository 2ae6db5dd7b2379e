"""signSGD with majority vote: each node has one vote for each entry, whatever its data and the size of its update."""

from typing import Any, ClassVar

import numpy as np

from fedcomp.core import check_range
from fedcomp.flower.strategies.reply_use import ReplyUse
from fedcomp.flower.strategies.server_optimizer import RoundResult, ServerOptimizer, Sums


class MajorityVote(ServerOptimizer):
    """model = published + step sign(sum over nodes of sign(update)).

    Bernstein et al., ICML 2018, algorithm 3; Bernstein et al., ICLR 2019, on its robustness against a minority of adversaries.
    An update of 0 is no vote, and a tie leaves the entry as it is.  Votes have no weights; counters, BatchNorm statistics and
    metrics are weighted means.
    """

    reply_use: ClassVar[ReplyUse] = ReplyUse.DIFFERENCES
    settings: ClassVar[tuple[str, ...]] = ("step",)

    def __init__(self, *, step: float = 1e-3, **fedavg: Any) -> None:
        """Make the strategy with the size of a step, above 0, and the settings of FedAvg."""
        super().__init__(**fedavg)
        check_range("step", step, above=0)
        self.step = step

    def apply(self, result: RoundResult) -> Sums:
        """Return the published parameters, each moved by one step in the direction of most votes."""
        parameters: Sums = {}
        for name in result.parameters:
            votes = np.zeros(result.published[name].shape, np.int32)
            for difference in result.differences(name):
                votes += difference > 0
                votes -= difference < 0
            parameters[name] = result.start(name) + self.step * np.sign(votes)
        return parameters
