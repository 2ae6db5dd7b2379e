"""Learning without a server: nodes on a graph exchange compressed models with their neighbours."""

from fedcomp.gossip.choco import Choco
from fedcomp.gossip.deep_squeeze import DeepSqueeze
from fedcomp.gossip.momentum import quasi_global_momentum
from fedcomp.gossip.network import Exchanged, Network
from fedcomp.gossip.nodes import Method, Node
from fedcomp.gossip.parsing import parse_method
from fedcomp.gossip.step_size import find_step_size, with_step_size
from fedcomp.gossip.topology import TOPOLOGIES, Topology, parse_topology

__all__ = [
    "TOPOLOGIES",
    "Choco",
    "DeepSqueeze",
    "Exchanged",
    "Method",
    "Network",
    "Node",
    "Topology",
    "find_step_size",
    "parse_method",
    "parse_topology",
    "quasi_global_momentum",
    "with_step_size",
]
