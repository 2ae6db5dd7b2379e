"""The only door to Flower: a strategy that wraps any strategy, a mod for any ClientApp, and a grid without Ray.

The server strategies of the compression papers are here too.
"""

from fedcomp.core import required

with required("fedcomp.flower", "flower", "filelock", "flwr"):
    import filelock as filelock
    import flwr as flwr

from fedcomp.flower.client.mod import CompressionMod
from fedcomp.flower.compat import GridWrapper, NodeSpeed, Speeds, to_record, to_torch
from fedcomp.flower.local_grid import Fault, LocalGrid
from fedcomp.flower.records import round_model
from fedcomp.flower.server.async_mode import AsyncMode, check_async, parse_mode
from fedcomp.flower.server.links.checks import check_links
from fedcomp.flower.server.model.checkpoint import Checkpoint
from fedcomp.flower.server.rounds.participation import NodeState
from fedcomp.flower.server.rounds.round_hook import Round
from fedcomp.flower.server.strategy import CompressedStrategy
from fedcomp.flower.strategies.dynamic_sampling import DynamicSampling
from fedcomp.flower.strategies.optimizers import EF21, FedAMS, MajorityVote
from fedcomp.flower.strategies.proximal import QcmdAdagrad, QrdaAdagrad
from fedcomp.flower.strategies.reply_use import DifferenceRecord, ReplyDeclaration, ReplyUse
from fedcomp.flower.strategies.rigl import GROWTH, RigL
from fedcomp.flower.strategies.state import StatefulStrategy
from fedcomp.flower.training_state import load_training_state, save_training_state
from fedcomp.sync import Clipping, Ledger, Traffic

__all__ = [
    "EF21",
    "GROWTH",
    "AsyncMode",
    "Checkpoint",
    "Clipping",
    "CompressedStrategy",
    "CompressionMod",
    "DifferenceRecord",
    "DynamicSampling",
    "Fault",
    "FedAMS",
    "GridWrapper",
    "Ledger",
    "LocalGrid",
    "MajorityVote",
    "NodeSpeed",
    "NodeState",
    "QcmdAdagrad",
    "QrdaAdagrad",
    "ReplyDeclaration",
    "ReplyUse",
    "RigL",
    "Round",
    "Speeds",
    "StatefulStrategy",
    "Traffic",
    "check_async",
    "check_links",
    "load_training_state",
    "parse_mode",
    "round_model",
    "save_training_state",
    "to_record",
    "to_torch",
]
