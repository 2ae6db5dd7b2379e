"""CHOCO-SGD: a node sends the difference of its model to the estimate that its neighbours hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedcomp.compressor import Compressor
from fedcomp.core import Arrays, Vector, below, from_json, octets, to_json, use_python_numbers
from fedcomp.errors import LayoutError, VersionError
from fedcomp.gossip.nodes import (
    Difference,
    Place,
    check_settings,
    method_text,
    moved,
    named_step_size,
    stored_vector,
    under,
)
from fedcomp.sync import (
    History,
    Publisher,
    Replica,
    apply_frame,
    from_stored,
    start_replica,
    stored_arrays,
    stored_place,
)
from fedcomp.wire import Layout, parse_frames


@dataclass(frozen=True, slots=True)
class Choco:
    """CHOCO-SGD: a node sends the compressed difference of its model to the estimate that its neighbours hold.

    Node i: ``h_i += C(y_i - h_i)``, and ``x_i = y_i + step_size sum_j w_ij (h_j - h_i)``.  A node holds the estimates h of all
    its neighbours, with the same bits as the neighbours themselves.  The error of C is part of the next difference, so C has
    no memory, and it is a contraction (`Compressor.contracting`).  If `step_size` is None, a network finds it with
    `find_step_size`.  Koloskova, Stich and Jaggi, ICML 2019, Algorithm 2.
    """

    compressor: Compressor
    step_size: float | None = None

    def __post_init__(self) -> None:
        use_python_numbers(self)
        if self.compressor.init(1):
            raise ValueError(
                f"{self.compressor} remembers what it leaves out; CHOCO needs a compressor without memory, "
                "such as topk(density=0.01, feedback=False)"
            )
        check_settings(self.compressor, self.step_size)

    def __str__(self) -> str:
        return method_text("choco", self.compressor, self.step_size)

    def start(self, layout: Layout, vector: Vector, weights: Mapping[int, float]) -> "ChocoNode":
        """Return a node that holds the first models of its neighbours, and whose neighbours hold its first model."""

        def replica() -> Replica:
            return start_replica(layout, layout.unflatten(vector, b""))

        held = {neighbor: replica() for neighbor in weights}
        return ChocoNode(self, vector.copy(), vector.copy(), weights, Publisher.begin(replica()), held)

    def restore(self, layout: Layout, arrays: Arrays, weights: Mapping[int, float]) -> "ChocoNode":
        """Return the node whose `to_arrays` these are."""
        replica = _restored(layout, below(arrays, "own/"))
        history = History(replica.key_frame().size, parse_frames(arrays["history"].tobytes()))
        held = {neighbor: _restored(layout, below(arrays, f"held/{neighbor}/")) for neighbor in weights}
        model, trained = (stored_vector(arrays, name, layout.n) for name in ("model", "trained"))
        return ChocoNode(self, model, trained, weights, Publisher(replica, history), held)


@dataclass(slots=True)
class ChocoNode:
    """A node of CHOCO-SGD: the publisher of its own estimate, and a replica of each neighbour's."""

    settings: Choco
    model: Vector
    trained: Vector
    weights: Mapping[int, float]
    publisher: Publisher
    held: dict[int, Replica]

    def publish(self, trained: Vector, round_number: int, seed: int) -> None:
        """Publish the compressed difference of `trained` to the estimate of this node."""
        compressor = self.settings.compressor.contracting()
        self.publisher.publish(trained - self.publisher.replica.vector, b"", compressor, seed)
        self.trained = trained

    def place_of(self, neighbor: int) -> Place:
        """Return the place of the estimate of a neighbour."""
        return self.held[neighbor].place

    def frames_from(self, place: Place) -> tuple[bytes, ...]:
        """Return the cheapest route from `place` to the newest estimate: a delta, or a replay, or a key frame."""
        return self.publisher.route(*place).frames

    def take(self, neighbor: int, frames: Sequence[bytes]) -> None:
        """Follow the estimate of a neighbour."""
        before = self.held[neighbor].place
        for frame in parse_frames(b"".join(frames)):
            replica = apply_frame(self.held[neighbor], frame)
            if replica.layout.digest != self.publisher.replica.layout.digest:
                raise LayoutError("a key frame of another model")
            self.held[neighbor] = replica
        if self.held[neighbor].place == before:
            raise VersionError(f"nothing new after version {before[0]}; each round has a message")

    def difference(self, neighbor: int) -> Difference:
        """Return the weighted difference of the neighbour's estimate to this node's own estimate."""
        own, held = self.publisher.replica.vector, self.held[neighbor].vector
        weight = named_step_size(self.settings.step_size) * self.weights[neighbor]
        return weight * np.subtract(held, own, dtype=np.float64)

    def mix(self, present: Iterable[int]) -> None:
        """Add the weighted differences of the neighbours' estimates and this node's estimate to the trained model."""
        self.model = moved(self.trained, map(self.difference, present))

    def to_arrays(self) -> Arrays:
        """Return the model, the publisher and the replicas."""
        arrays: Arrays = {"model": self.model, "trained": self.trained}
        arrays["history"] = octets(b"".join(frame.to_bytes() for frame in self.publisher.history.frames()))
        arrays |= under("own/", _stored(self.publisher.replica))
        for neighbor, replica in self.held.items():
            arrays |= under(f"held/{neighbor}/", _stored(replica))
        return arrays


def _stored(replica: Replica) -> Arrays:
    return stored_arrays(replica) | {"place": to_json(stored_place(replica))}


def _restored(layout: Layout, arrays: Arrays) -> Replica:
    replica = from_stored(from_json(arrays["place"]), arrays)
    if replica.layout.digest != layout.digest:
        raise LayoutError("a stored replica of another model")
    return replica
