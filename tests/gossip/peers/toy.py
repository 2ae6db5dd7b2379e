"""A task whose training is the same numbers each time, graphs of nodes that run it, and their settings."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deploy.keys import make_peer
from fedcomp.gossip import Network, parse_method, parse_topology
from fedcomp.gossip.peers import Kept, Model

N = 400
Arrays = dict[str, NDArray[Any]]


class Toy:
    """Adds noise of the node and the round, and keeps the rounds that it trained."""

    def __init__(self, node: int, num_nodes: int, seed: int) -> None:
        self.node, self.seed = node, seed

    def first_model(self) -> Arrays:
        return {"w": np.linspace(-1, 1, N, dtype=np.float32), "steps": np.array(0)}

    def train(self, model: Mapping[str, NDArray[Any]], kept: Kept, round_number: int) -> tuple[Model, Kept]:
        noise = np.random.default_rng([self.seed, self.node, round_number]).standard_normal(N, np.float32)
        return {"w": model["w"] + noise, "steps": model["steps"] + 1}, {
            "rounds": np.append(kept.get("rounds", np.zeros(0, np.int64)), round_number)
        }

    def evaluate(self, model: Mapping[str, NDArray[Any]], round_number: int) -> dict[str, float]:
        return {"loss": float(np.abs(model["w"]).mean())}


class Slow(Toy):
    """Takes time, so that the node is killed in a round."""

    def evaluate(self, model: Mapping[str, NDArray[Any]], round_number: int) -> dict[str, float]:
        time.sleep(0.1)
        return super().evaluate(model, round_number)


class Ending(Toy):
    """Raises an exception in its first training: `text` in two lines, or the end by a signal if that is empty."""

    def __init__(self, node: int, num_nodes: int, seed: int, text: str) -> None:
        super().__init__(node, num_nodes, seed)
        self.text = text

    def train(self, model: Mapping[str, NDArray[Any]], kept: Kept, round_number: int) -> tuple[Model, Kept]:
        if not self.text:
            raise KeyboardInterrupt
        raise RuntimeError(f"{self.text}\nhere")


def Narrow(node: int, num_nodes: int, seed: int, size: int) -> Toy:
    """Need a setting."""
    return Toy(node, num_nodes, seed + size)


def alone(topology: str, num_nodes: int, method: str, rounds: int, seed: int = 0) -> list[Arrays]:
    """Return the models of the same nodes in one process."""
    tasks = [Toy(node, num_nodes, seed) for node in range(num_nodes)]
    network = Network(parse_topology(topology, num_nodes), tasks[0].first_model(), parse_method(method), seed)
    for number in range(1, rounds + 1):
        network.exchange([task.train(network.model(task.node), {}, number)[0] for task in tasks])
    return [network.model(node) for node in range(num_nodes)]


def write_settings(folder: Path, node: int, ports: list[int], tls: str = "insecure = true", **changes: object) -> Path:
    """Write the settings of a node of a ring and return their path; `changes` replace some."""
    num_nodes = len(ports)
    values: dict[str, object] = {
        "node": node,
        "nodes": num_nodes,
        "listen": f"127.0.0.1:{ports[node]}",
        "topology": "ring()",
        "method": "choco(topk(density=0.1, feedback=False), step_size=0.3)",
        "rounds": 5,
        "state-dir": f"node-{node}",
        "task": "tests.gossip.peers.toy:Toy",
        "silence": 30.0,
    } | changes
    neighbors = parse_topology(str(values["topology"]), num_nodes).neighbors[node]
    lines = [
        f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for key, value in values.items()
    ]
    lines += [tls] if tls.startswith("insecure") else []
    lines += ["[neighbors]", *(f"{each} = '127.0.0.1:{ports[each]}'" for each in neighbors)]
    lines += [] if tls.startswith("insecure") else ["[tls]", tls]
    path = folder / f"node-{node}.toml"
    path.write_text("\n".join(lines))
    return path


def tls(folder: Path, node: int) -> str:
    """Return the settings of the keys that `make_keys` makes."""
    return f"ca = 'keys/ca.pem'\ncertificate = 'keys/node-{node}.pem'\nkey = 'keys/node-{node}.key'"


def make_keys(folder: Path, count: int) -> None:
    """Make the keys of an authority and `count` nodes."""
    for node in range(count):
        make_peer(folder / "keys", node)
