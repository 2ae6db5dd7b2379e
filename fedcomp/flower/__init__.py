"""The only door to Flower: a strategy that wraps any strategy, a mod for any ClientApp, and a grid without Ray.

Beside Flower's own strategies there are those that the compression papers step with.
"""

from fedcomp.flower.dynamic_sampling import DynamicSampling
from fedcomp.flower.ef21 import EF21
from fedcomp.flower.fedams import FedAMS
from fedcomp.flower.held_array import to_record
from fedcomp.flower.ledger import Ledger
from fedcomp.flower.local_grid import LocalGrid
from fedcomp.flower.majority_vote import MajorityVote
from fedcomp.flower.mod import CompressionMod
from fedcomp.flower.proximal import QcmdAdagrad, QrdaAdagrad
from fedcomp.flower.strategy import CompressedStrategy

__all__ = [
    "EF21",
    "CompressedStrategy",
    "CompressionMod",
    "DynamicSampling",
    "FedAMS",
    "Ledger",
    "LocalGrid",
    "MajorityVote",
    "QcmdAdagrad",
    "QrdaAdagrad",
    "to_record",
]
