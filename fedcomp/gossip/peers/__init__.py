"""Nodes as processes that talk over gRPC with TLS: ``python -m fedcomp.gossip node.toml`` runs one."""

try:
    import grpc as grpc
    import grpc_health as grpc_health
    import grpc_reflection as grpc_reflection
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".")[0] not in ("grpc", "grpc_health", "grpc_reflection"):
        raise
    text = f"fedcomp.gossip.peers needs {error.name}, which is not installed; pip install 'fedcomp[gossip]' installs it"
    raise ModuleNotFoundError(text, name=error.name) from None

from fedcomp.gossip.peers.links import RefusedError
from fedcomp.gossip.peers.loop import run
from fedcomp.gossip.peers.settings import PeerSettings, read_settings
from fedcomp.gossip.peers.task import Kept, Model, Task

__all__ = ["Kept", "Model", "PeerSettings", "RefusedError", "Task", "read_settings", "run"]
