"""Everything that a node must not lose, in one file that is replaced atomically."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedcomp.core import Arrays, below, from_json, read_archive, to_json, write_archive
from fedcomp.errors import CORRUPTION_ERRORS, CorruptError
from fedcomp.gossip.nodes import Difference, Method, Node, under
from fedcomp.gossip.shared_tensors import SharedTensors
from fedcomp.gossip.topology import Topology

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Doubt:
    """An edge that the other end may have used in `round`, and the difference that this end owes if it did."""

    round: int
    difference: Difference


@dataclass(slots=True)
class PeerState:
    """A node between two messages.

    `round` is the round of its newest message, 0 before the first; while the round is `open`, the node has not mixed in it.
    `own` are the tensors that stay on the node, and `kept` are the arrays that the task keeps.  For each neighbour with a
    higher number, `last_used` is the last round in which the edge was used.  For neighbours with a lower number, `doubts` are
    the rounds that are not settled yet.
    """

    node: Node
    own: Arrays
    kept: Arrays = field(default_factory=dict[str, np.ndarray])
    round: int = 0
    open: bool = False
    last_used: dict[int, int] = field(default_factory=dict[int, int])
    doubts: dict[int, Doubt] = field(default_factory=dict[int, Doubt])

    def used(self) -> set[int]:
        """Return the higher neighbours whose edges are used in the newest round."""
        return {neighbor for neighbor, number in self.last_used.items() if number == self.round}

    def save(self, path: Path, training: int, number: int) -> None:
        """Write the state of the node with this `number`, in this `training`, to `path`."""
        plain = {
            "format": FORMAT,
            "training": str(training),
            "number": number,
            "round": self.round,
            "open": self.open,
            "last_used": list(self.last_used.items()),
            "doubts": [(neighbor, doubt.round) for neighbor, doubt in self.doubts.items()],
        }
        arrays = under("node/", self.node.to_arrays()) | under("own/", self.own) | under("kept/", self.kept)
        arrays |= {f"doubt/{neighbor}": doubt.difference for neighbor, doubt in self.doubts.items()}
        write_archive(path, arrays | {"plain": to_json(plain)})

    @classmethod
    def load(
        cls, path: Path, training: int, tensors: SharedTensors, method: Method, topology: Topology, number: int
    ) -> "PeerState":
        """Return the state that `save` wrote for the node with this `number`.

        Raises `CorruptError` for a file that is missing, damaged, of another training or of another node, and `OSError` if the
        file cannot be opened.
        """
        try:
            arrays = read_archive(path)
            plain = from_json(arrays["plain"])
            if plain["format"] != FORMAT:
                raise CorruptError(f"format {plain['format']}; this version reads format {FORMAT}")
            if plain["training"] != str(training):
                raise CorruptError(
                    "it is of another graph, method, seed or first model; the same ones, or another state-dir, are needed"
                )
            if (found := plain["number"]) != number:
                raise CorruptError(f"it is of node {found}; the state of node {number} is needed")
            node = method.restore(tensors.layout, below(arrays, "node/"), topology.weights(number))
            if not (np.isfinite(node.model).all() and np.isfinite(node.trained).all()):
                raise CorruptError("a stored model with NaN or infinity")
            neighbors = topology.neighbors[number]
            rounds = _rounds(plain["doubts"], neighbors)
            doubts = {neighbor: Doubt(each, arrays[f"doubt/{neighbor}"]) for neighbor, each in rounds.items()}
            if any(doubt.difference.shape != (tensors.layout.n,) for doubt in doubts.values()):
                raise CorruptError("a stored difference of another model")
            own = {tensor.name: below(arrays, "own/")[tensor.name] for tensor in tensors.own}
            last_used = _rounds(plain["last_used"], neighbors)
            newest = _whole(plain["round"])
            return cls(node, own, below(arrays, "kept/"), newest, plain["open"] is True, last_used, doubts)
        except CORRUPTION_ERRORS as error:
            raise CorruptError(f"{path} is not the state of this node: {error}") from error


def _rounds(pairs: Any, neighbors: Collection[int]) -> dict[int, int]:
    found = {neighbor: _whole(number) for neighbor, number in pairs}
    if strangers := found.keys() - set(neighbors):
        raise CorruptError(f"a round of node {min(strangers)}, which is no neighbour")
    return found


def _whole(number: object) -> int:
    if not isinstance(number, int) or number < 0:
        raise CorruptError(f"the round {number!r}; a whole number is needed")
    return number
