"""Nodes as processes that talk over gRPC with TLS: ``fedcomp gossip node.toml`` runs one."""

from fedcomp.core import required

with required("fedcomp.gossip.peers", "gossip", "grpc", "grpc_health", "grpc_reflection"):
    import grpc as grpc
    import grpc_health as grpc_health
    import grpc_reflection as grpc_reflection

from fedcomp.gossip.peers.links import RefusedError
from fedcomp.gossip.peers.loop import run
from fedcomp.gossip.peers.settings import PeerSettings, read_settings
from fedcomp.gossip.peers.task import Kept, Model, Task

__all__ = ["Kept", "Model", "PeerSettings", "RefusedError", "Task", "read_settings", "run"]
