"""What a node of a graph remembers, sends and does with what its neighbours send: CHOCO-SGD and Deep-Squeeze.

A round of a node: it trains its model x to y, publishes a compressed message for all neighbours, takes theirs, and mixes.  Both
methods leave the mean of all nodes' models as it is, to rounding, however lossy the messages are: what a node adds for a
neighbour, the neighbour subtracts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedcomp.compressor import Compressor
from fedcomp.core import Vector, build, check_range
from fedcomp.errors import CorruptError, LayoutError, VersionError
from fedcomp.memory import State
from fedcomp.methods import METHODS as COMPRESSORS
from fedcomp.methods import parse
from fedcomp.quantized import QuantizedVector
from fedcomp.sync import Publisher, Replica, apply_frame, start_replica
from fedcomp.wire import (
    NO_BODY,
    Frame,
    Kind,
    Layout,
    codec_id,
    decode_body,
    parse_frames,
    parse_single_frame,
    tightened,
)

OF_A_SERVER = ("auto", "balanced")
"""Compressors that a server chooses anew in each round."""
Place = tuple[int, int]
"""The version of a neighbour's messages that a node holds, and its fingerprint."""


class Node(Protocol):
    """One node of a graph; `model` is its x, float32 (n,)."""

    model: Vector

    def publish(self, trained: Vector, round_number: int, seed: int) -> None:
        """End the training of a round with the model `trained`, float32 (n,), and make the message about it."""
        ...

    def place_of(self, neighbor: int) -> Place:
        """Return what this node holds of a neighbour's messages."""
        ...

    def frames_from(self, place: Place) -> tuple[bytes, ...]:
        """Return the frames that lead a neighbour from the `place` that it holds to the newest message of this node."""
        ...

    def take(self, neighbor: int, frames: Sequence[bytes]) -> None:
        """Follow the frames of a neighbour.

        Raises `FedcompError` for others; what is held is then that of the last frame that could be followed.
        """
        ...

    def mix(self, present: Iterable[int]) -> None:
        """Mix the trained model with those neighbours that exchanged messages with this node in this round, both ways."""
        ...


class Method(Protocol):
    """Frozen settings of a way to exchange models; `start` makes its nodes."""

    def start(self, layout: Layout, vector: Vector, weights: Mapping[int, float]) -> Node:
        """Return a node with the model `vector`, with which all nodes start, and the mixing weights of its neighbours."""
        ...


@dataclass(frozen=True, slots=True)
class Choco:
    """CHOCO-SGD: nodes send what the neighbours' estimate of their model lacks.  Koloskova, Stich and Jaggi, ICML 2019, Alg. 2.

    Node i: ``h_i += C(y_i - h_i)``, and ``x_i = y_i + step_size sum_j w_ij (h_j - h_i)``.  The estimates h of all neighbours
    are held here, and are the same bits there.  What C leaves out is in the next difference, so C has no memory of its own.
    """

    compressor: Compressor
    step_size: float = 1.0

    def __post_init__(self) -> None:
        """Raise `ValueError` for a compressor with a memory, and for a step size outside (0, 1]."""
        if self.compressor.init(1):
            raise ValueError(
                f"{self.compressor} remembers what it leaves out; CHOCO needs a compressor without memory, "
                "such as topk(density=0.01, feedback=False)"
            )
        _check_settings(self.compressor, self.step_size)

    def __str__(self) -> str:
        return f"choco({self.compressor}, step_size={self.step_size!r})"

    def start(self, layout: Layout, vector: Vector, weights: Mapping[int, float]) -> "ChocoNode":
        """Return a node."""
        return ChocoNode.start(self, layout, vector, weights)


@dataclass(slots=True)
class ChocoNode:
    """A node of CHOCO-SGD: the publisher of its own estimate, and a replica of each neighbour's."""

    settings: Choco
    model: Vector
    weights: Mapping[int, float]
    publisher: Publisher
    held: dict[int, Replica]
    _trained: Vector

    @classmethod
    def start(cls, settings: Choco, layout: Layout, vector: Vector, weights: Mapping[int, float]) -> "ChocoNode":
        """Return a node whose neighbours hold its first model, as it holds theirs."""

        def replica() -> Replica:
            return start_replica(layout, layout.unflatten(vector, b""))

        held = {neighbor: replica() for neighbor in weights}
        return cls(settings, vector.copy(), weights, Publisher.begin(replica()), held, vector.copy())

    def publish(self, trained: Vector, round_number: int, seed: int) -> None:
        """Publish the compressed difference of `trained` to the estimate of this node."""
        self.publisher.publish(trained - self.publisher.replica.vector, b"", self.settings.compressor, seed)
        self._trained = trained

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

    def mix(self, present: Iterable[int]) -> None:
        """Move the trained model towards the neighbours' estimates, as far as they differ from its own estimate."""
        own = self.publisher.replica.vector
        differences = (
            (self.weights[neighbor], np.subtract(self.held[neighbor].vector, own, dtype=np.float64))
            for neighbor in present
        )
        self.model = _moved(self._trained, differences, self.settings.step_size)


@dataclass(frozen=True, slots=True)
class DeepSqueeze:
    """Deep-Squeeze: nodes send their model, compressed with error feedback.  Tang et al., arXiv:1907.07346, Algorithm 1.

    Node i: ``q_i = C(y_i + e_i)``, ``e_i += y_i - q_i``, and ``x_i = y_i + step_size sum_j w_ij (q_j - q_i)``.  A message
    stands for itself: one that is lost is never repeated.
    """

    compressor: Compressor
    step_size: float = 1.0

    def __post_init__(self) -> None:
        """Raise `ValueError` for a compressor without a residual, and for a step size outside (0, 1]."""
        if self.compressor.memory.vectors != ("residual",):
            raise ValueError(f"{self.compressor} keeps no residual; Deep-Squeeze needs error feedback, as stc() has")
        _check_settings(self.compressor, self.step_size)

    def __str__(self) -> str:
        return f"deep_squeeze({self.compressor}, step_size={self.step_size!r})"

    def start(self, layout: Layout, vector: Vector, weights: Mapping[int, float]) -> "DeepSqueezeNode":
        """Return a node."""
        return DeepSqueezeNode(self, vector.copy(), weights, layout, self.compressor.init(layout.n), vector.copy())


@dataclass(slots=True)
class DeepSqueezeNode:
    """A node of Deep-Squeeze: its residual, its message of the round and those of its neighbours."""

    settings: DeepSqueeze
    model: Vector
    weights: Mapping[int, float]
    layout: Layout
    memory: State
    _trained: Vector
    round: int = 0
    _frame: bytes = b""
    _own: QuantizedVector | None = None
    _taken: dict[int, QuantizedVector] = field(default_factory=dict[int, QuantizedVector])

    def publish(self, trained: Vector, round_number: int, seed: int) -> None:
        """Compress `trained` plus the residual."""
        compressor = self.settings.compressor
        self.round = round_number
        body, self.memory = compressor.encode(
            trained, self.memory, seed, server_round=self.round, shapes=self.layout.shapes
        )
        codec, body = tightened(codec_id(compressor.entropy), body, self.layout.n)
        self._frame = Frame(Kind.UPDATE, codec, 0, self.round, self.round, self.layout.digest, 0, 0, body).to_bytes()
        self._own, self._taken, self._trained = decode_body(codec, body, self.layout), {}, trained

    def place_of(self, neighbor: int) -> Place:
        """Return the round: a message needs none before it."""
        return self.round, 0

    def frames_from(self, place: Place) -> tuple[bytes, ...]:
        """Return the message of this round."""
        return (self._frame,)

    def take(self, neighbor: int, frames: Sequence[bytes]) -> None:
        """Hold the message of a neighbour for this round."""
        frame = parse_single_frame(b"".join(frames))
        if frame.kind is not Kind.UPDATE or frame.codec == NO_BODY:
            raise CorruptError(f"a frame of kind {frame.kind.name}; an update is needed")
        if frame.layout != self.layout.digest:
            raise LayoutError("an update of another model")
        if frame.version != self.round:
            raise VersionError(f"the update of round {frame.version}; that of round {self.round} is needed")
        self._taken[neighbor] = decode_body(frame.codec, frame.payload, self.layout)

    def mix(self, present: Iterable[int]) -> None:
        """Move the trained model by the differences of the messages."""
        own = _dense(self._own, self.layout.n)
        differences = (
            (self.weights[neighbor], _dense(self._taken[neighbor], self.layout.n) - own) for neighbor in present
        )
        self.model = _moved(self._trained, differences, self.settings.step_size)


def _check_settings(compressor: Compressor, step_size: float) -> None:
    if compressor.name in OF_A_SERVER:
        raise ValueError(
            f"{compressor} follows a server's rounds; a method that compresses alike in each round is needed"
        )
    check_range("step_size", step_size, above=0, most=1)


def choco(compressor: str, step_size: float = 1.0) -> Choco:
    """Return `Choco` with the compressor of this text."""
    return Choco(parse(compressor), step_size)


def deep_squeeze(compressor: str, step_size: float = 1.0) -> DeepSqueeze:
    """Return `DeepSqueeze` with the compressor of this text."""
    return DeepSqueeze(parse(compressor), step_size)


METHODS: Mapping[str, Callable[..., Choco | DeepSqueeze]] = {"choco": choco, "deep_squeeze": deep_squeeze}
"""Name -> maker of each way to exchange models."""


def parse_method(text: str) -> Choco | DeepSqueeze:
    """Return the method that `text` names, as ``"choco(topk(density=0.01, feedback=False), step_size=0.1)"``.

    Raises `ValueError` for another form, an unknown name, and settings that do not fit.
    """
    return build(text, METHODS, "gossip method", COMPRESSORS)


def _dense(quantized: QuantizedVector | None, n: int) -> NDArray[np.float64]:
    vector = np.zeros(n)
    if quantized is not None:
        quantized.add_to(vector)
    return vector


def _moved(trained: Vector, differences: Iterable[tuple[float, NDArray[np.float64]]], step_size: float) -> Vector:
    """Return `trained` plus ``step_size`` times the weighted sum of `differences`, computed in float64."""
    total: NDArray[Any] = trained.astype(np.float64)
    for weight, difference in differences:
        total += step_size * weight * difference
    return total.astype(np.float32)
