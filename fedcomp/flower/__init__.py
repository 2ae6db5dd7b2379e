"""The only door to Flower: a strategy that wraps any strategy, a mod for any ClientApp, and a grid without Ray.

Beside Flower's own strategies there are those that the compression papers step with.
"""

from fedcomp.flower.client.mod import CompressionMod
from fedcomp.flower.grid_wrapper import GridWrapper
from fedcomp.flower.lazy_array import to_record
from fedcomp.flower.local_grid import LocalGrid
from fedcomp.flower.server.participation import NodeState
from fedcomp.flower.server.strategy import CompressedStrategy, check_links
from fedcomp.flower.strategies.dynamic_sampling import DynamicSampling
from fedcomp.flower.strategies.ef21_server import EF21
from fedcomp.flower.strategies.fedams import FedAMS
from fedcomp.flower.strategies.majority_vote import MajorityVote
from fedcomp.flower.strategies.proximal import QcmdAdagrad, QrdaAdagrad
from fedcomp.sync import Ledger

__all__ = [
    "EF21",
    "CompressedStrategy",
    "CompressionMod",
    "DynamicSampling",
    "FedAMS",
    "GridWrapper",
    "Ledger",
    "LocalGrid",
    "MajorityVote",
    "NodeState",
    "QcmdAdagrad",
    "QrdaAdagrad",
    "check_links",
    "to_record",
]
