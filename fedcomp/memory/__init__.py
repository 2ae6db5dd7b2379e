"""What a sender remembers between rounds, one idea per file."""

from fedcomp.memory.ef21 import Ef21
from fedcomp.memory.hinting import Regularized, WarmStart
from fedcomp.memory.linear_feedback import LinearFeedback
from fedcomp.memory.momentum_correction import MomentumCorrection
from fedcomp.memory.protocol import Incremental, Memory, NoMemory, State, check_state

__all__ = [
    "Ef21",
    "Incremental",
    "LinearFeedback",
    "Memory",
    "MomentumCorrection",
    "NoMemory",
    "Regularized",
    "State",
    "WarmStart",
    "check_state",
]
