"""Deep-Squeeze: nodes send their model, compressed with error feedback."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedcomp.compressor import Compressor
from fedcomp.core import Arrays, Vector, below, from_json, octets, to_json, use_python_numbers
from fedcomp.errors import CorruptError, LayoutError, VersionError
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
from fedcomp.memory import State, check_state
from fedcomp.quantized import QuantizedVector
from fedcomp.sync import encode_change
from fedcomp.wire import NO_BODY, Frame, Kind, Layout, decode_body, parse_single_frame, tensors_in


@dataclass(frozen=True, slots=True)
class DeepSqueeze:
    """Deep-Squeeze: nodes send their model, compressed with error feedback.  Tang et al., arXiv:1907.07346, Algorithm 1.

    Node i: ``q_i = C(y_i + e_i)``, ``e_i += y_i - q_i``, and ``x_i = y_i + step_size sum_j w_ij (q_j - q_i)``.  A message does
    not depend on earlier ones: a lost message is never repeated.  A message leaves out the tensors that still have their first
    values; all nodes share these values, and the neighbours use them.  If `step_size` is None, a network finds it with
    `find_step_size`.
    """

    compressor: Compressor
    step_size: float | None = None

    def __post_init__(self) -> None:
        use_python_numbers(self)
        if self.compressor.memory.vectors != ("residual",):
            raise ValueError(f"{self.compressor} keeps no residual; Deep-Squeeze needs error feedback, as stc() has")
        check_settings(self.compressor, self.step_size)

    def __str__(self) -> str:
        return method_text("deep_squeeze", self.compressor, self.step_size)

    def start(self, layout: Layout, vector: Vector, weights: Mapping[int, float]) -> "DeepSqueezeNode":
        """Return a node."""
        model, trained, first = (vector.copy() for _ in range(3))
        return DeepSqueezeNode(self, model, trained, first, weights, layout, self.compressor.init(layout.n))

    def restore(self, layout: Layout, arrays: Arrays, weights: Mapping[int, float]) -> "DeepSqueezeNode":
        """Return the node whose `to_arrays` these are."""
        model, trained, first = (stored_vector(arrays, name, layout.n) for name in ("model", "trained", "first"))
        node = DeepSqueezeNode(self, model, trained, first, weights, layout, below(arrays, "memory/"))
        check_state(node.memory, self.compressor.memory.vectors, layout.n)
        node.round = from_json(arrays["round"])
        if message := arrays["message"].tobytes():
            node.message = Decoded.of(parse_single_frame(message), layout)
        for name, data in below(arrays, "taken/").items():
            node.taken[int(name)] = Decoded.of(parse_single_frame(data.tobytes()), layout)
        return node


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """A message: its frame, and the quantized vector that was decoded from it."""

    frame: Frame
    vector: QuantizedVector

    @classmethod
    def of(cls, frame: Frame, layout: Layout) -> "Decoded":
        """Return the message of a frame; raise `FedcompError` for a damaged body."""
        return cls(frame, decode_body(frame.codec, frame.payload, layout))


@dataclass(slots=True)
class DeepSqueezeNode:
    """A node of Deep-Squeeze: its residual, its message of the round, and the messages of its neighbours.

    `first`, float32 (n,), is the model with which all nodes start.
    """

    settings: DeepSqueeze
    model: Vector
    trained: Vector
    first: Vector
    weights: Mapping[int, float]
    layout: Layout
    memory: State
    round: int = 0
    message: Decoded | None = None
    taken: dict[int, Decoded] = field(default_factory=dict[int, Decoded])

    def publish(self, trained: Vector, round_number: int, seed: int) -> None:
        """Compress `trained` plus the residual."""
        compressor = self.settings.compressor.contracting()
        self.round = round_number
        change = trained - self.first
        codec, body, self.memory = encode_change(
            compressor, trained, self.memory, self.layout, moved=change, seed=seed, server_round=self.round
        )
        frame = Frame(Kind.UPDATE, codec, 0, self.round, self.round, self.layout.digest, 0, 0, body)
        self.message = Decoded.of(frame, self.layout)
        self.taken, self.trained = {}, trained

    def place_of(self, neighbor: int) -> Place:
        """Return the round: a message does not depend on earlier ones."""
        return self.round, 0

    def frames_from(self, place: Place) -> tuple[bytes, ...]:
        """Return the message of this round."""
        return () if self.message is None else (self.message.frame.to_bytes(),)

    def take(self, neighbor: int, frames: Sequence[bytes]) -> None:
        """Hold the message of a neighbour for this round."""
        frame = parse_single_frame(b"".join(frames))
        if frame.kind is not Kind.UPDATE or frame.codec == NO_BODY:
            raise CorruptError(f"a frame of kind {frame.kind.name}; an update is needed")
        if frame.layout != self.layout.digest:
            raise LayoutError("an update of another model")
        if frame.version != self.round:
            raise VersionError(f"the update of round {frame.version}; that of round {self.round} is needed")
        self.taken[neighbor] = Decoded.of(frame, self.layout)

    def difference(self, neighbor: int) -> Difference:
        """Return the weighted difference of the neighbour's message to this node's own message."""
        return self._difference(neighbor, self._dense(self.message))

    def mix(self, present: Iterable[int]) -> None:
        """Move the trained model by the differences of the messages."""
        own = self._dense(self.message)
        self.model = moved(self.trained, (self._difference(neighbor, own) for neighbor in present))

    def to_arrays(self) -> Arrays:
        """Return the model, the residual and the messages of the round."""
        arrays: Arrays = {"model": self.model, "trained": self.trained, "first": self.first}
        arrays["round"] = to_json(self.round)
        arrays["message"] = octets(b"" if self.message is None else self.message.frame.to_bytes())
        arrays |= under("memory/", {name: np.asarray(array) for name, array in self.memory.items()})
        return arrays | {f"taken/{each}": octets(taken.frame.to_bytes()) for each, taken in self.taken.items()}

    def _difference(self, neighbor: int, own: Difference) -> Difference:
        weight = named_step_size(self.settings.step_size) * self.weights[neighbor]
        return weight * (self._dense(self.taken[neighbor]) - own)

    def _dense(self, message: Decoded | None) -> Difference:
        vector = np.zeros(self.layout.n)
        if message is not None:
            message.vector.add_to(vector)
            sent = tensors_in(message.frame.codec, message.frame.payload, self.layout)
            for (_, part), is_sent in zip(self.layout.filled, sent, strict=True):
                if not is_sent:
                    vector[part] = self.first[part]
        return vector
