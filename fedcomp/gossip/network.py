"""A graph of nodes in one process, for studies and tests: deterministic, with the bytes that separate nodes would send."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Shapes, Vector
from fedcomp.gossip.nodes import Method, Node
from fedcomp.gossip.shared_tensors import SharedTensors
from fedcomp.gossip.step_size import with_step_size
from fedcomp.gossip.topology import Topology
from fedcomp.sync import derive_seed

NOBODY: Collection[int] = ()
DENSE_BYTES = 4


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The traffic of a round: the bytes of all messages, and the bytes of the same number of dense float32 models."""

    sent_bytes: int
    dense_bytes: int


class Network:
    """The nodes of a `topology`, which all start from the same model.

    Floating tensors are exchanged.  Whole numbers, bools and BatchNorm statistics stay on their node, with their last values.

    Examples:
        >>> import numpy as np
        >>> import fedcomp
        >>> from fedcomp.gossip import Choco, Network, parse_topology
        >>> method = Choco(fedcomp.topk(density=0.5, feedback=False), step_size=0.5)
        >>> network = Network(parse_topology("ring()", 4), {"w": np.zeros(10, np.float32)}, method)
        >>> trained = [{"w": network.model(node)["w"] + np.float32(node)} for node in range(4)]
        >>> network.exchange(trained).sent_bytes > 0
        True
        >>> bool(np.isclose(np.mean([network.model(node)["w"] for node in range(4)]), 1.5))
        True

    """

    def __init__(self, topology: Topology, model: Mapping[str, NDArray[Any]], method: Method, seed: int = 0) -> None:
        """Make the nodes; `seed` drives compressors that draw random numbers.

        If `method` has no step size, `find_step_size` finds it, which takes seconds; ``self.method`` has it.  Raises
        `ValueError` for a model without floating tensors, or with values that are not finite, and if no step size brings the
        nodes' models together.
        """
        self.topology, self.round, self._seed = topology, 0, seed
        self._tensors = SharedTensors.of(model)
        self._own = [self._tensors.own_of(model) for _ in range(topology.num_nodes)]
        layout, vector = self._tensors.layout, self._tensors.vector(model)
        self.method: Method = with_step_size(topology, method, layout.shapes)
        self.nodes: list[Node] = [
            self.method.start(layout, vector, topology.weights(node)) for node in range(topology.num_nodes)
        ]

    @staticmethod
    def shapes(model: Mapping[str, NDArray[Any]]) -> Shapes:
        """Return the shapes of the tensors of a model that nodes exchange; raise `ValueError` if there are none."""
        return SharedTensors.of(model).layout.shapes

    def model(self, node: int) -> dict[str, NDArray[Any]]:
        """Return the tensors of a node's model, in the order and the dtypes of the first model."""
        return self._tensors.arrays(self.nodes[node].model, self._own[node])

    def exchange(self, trained: Sequence[Mapping[str, Any]], absent: Collection[int] = NOBODY) -> Exchanged:
        """End a round: each node sends the model that it `trained`, numpy or torch by name, to its neighbours, and mixes.

        Nodes that are `absent` keep the model of the previous round; their neighbours mix without them.

        Raises `ValueError` if there is not one model for each node, if a model does not fit or is not finite, and for absent
        nodes that do not exist.  Then nothing has changed.
        """
        if len(trained) != len(self.nodes):
            raise ValueError(f"{len(trained)} trained models of {len(self.nodes)} nodes; one for each is needed")
        if strangers := set(absent) - set(range(len(self.nodes))):
            raise ValueError(f"absent is {sorted(strangers)}; nodes are 0 to {len(self.nodes) - 1}")
        present = [node for node in range(len(self.nodes)) if node not in absent]
        vectors: dict[int, Vector] = {}
        for node in present:
            try:
                vectors[node] = self._tensors.vector(trained[node])
            except ValueError as error:
                raise ValueError(f"node {node}: {error}") from error
        self.round += 1
        for node, vector in vectors.items():
            self.nodes[node].publish(vector, self.round, derive_seed(self._seed, self.round, node))
            self._own[node] = self._tensors.own_of(trained[node])
        sent_bytes = messages = 0
        active = {node: [other for other in self.topology.neighbors[node] if other in vectors] for node in present}
        for node, neighbors in active.items():
            for other in neighbors:
                frames = self.nodes[other].frames_from(self.nodes[node].place_of(other))
                self.nodes[node].take(other, frames)
                sent_bytes += sum(map(len, frames))
                messages += 1
        for node, neighbors in active.items():
            self.nodes[node].mix(neighbors)
        return Exchanged(sent_bytes, messages * DENSE_BYTES * self._tensors.layout.n)

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean of the nodes' models, float64 (n,)."""
        return np.asarray(np.mean([node.model for node in self.nodes], axis=0, dtype=np.float64))

    @property
    def mean_model(self) -> dict[str, NDArray[Any]]:
        """The tensors of the mean of the nodes' models; tensors that are not exchanged come from the first node."""
        return self._tensors.arrays(self.mean.astype(np.float32), self._own[0])

    @property
    def consensus_distance(self) -> float:
        """The root mean square, over the nodes, of the l2 distance between a node's model and the mean."""
        mean = self.mean
        return float(np.sqrt(np.mean([np.square(node.model - mean).sum() for node in self.nodes])))
