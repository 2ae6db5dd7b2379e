"""Learning without a server: nodes on a graph exchange compressed models with their neighbours."""

from fedcomp.gossip.network import Exchanged, Network
from fedcomp.gossip.nodes import Choco, DeepSqueeze, Method, Node
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
    "parse_topology",
]
