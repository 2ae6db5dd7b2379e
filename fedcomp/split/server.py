"""The server's half of split training: one upper part for all nodes, and for each node the memory that both ends hold.

The server repeats the gradient of a node's last batch until the node has answered with the next batch.  So a lost message, or
a lost answer, costs only the bytes of the messages.
"""

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.core import Arrays, Vector, on_host
from fedcomp.errors import CorruptError, StaleError, VersionError
from fedcomp.split.activations import Activations, read_activations
from fedcomp.split.bounds import BatchBounds
from fedcomp.split.gradients import write_gradient
from fedcomp.split.memory import RAM_BYTES, ActivationMemory
from fedcomp.split.modes import fixed_modules, restored_modes, set_training
from fedcomp.split.random_numbers import seeded
from fedcomp.split.settings import Answer, SplitSettings
from fedcomp.split.weights import device_of, read_key_frame
from fedcomp.sync import derive_seed, first_number, resync
from fedcomp.wire import Ack, Frame, Kind, Layout, ServerMessage, ack_of, parse_single_frame

MAX_SAMPLES = 1 << 20
Loss = Callable[[Tensor, Tensor], Tensor]
"""A function of the outputs (N, classes) and the labels, int64 (N,), that returns their mean loss."""


@dataclass(slots=True)
class SplitTraffic:
    """Measured bytes: sums of ``len(bytes)`` of the messages both ways.

    `first_bytes` of the uplink are activations in full and labels, at the first visit of a sample or to repair a memory.
    `weight_bytes` are the key frames of lower parts, both ways.  The dense bytes count the same batches and the same lower
    parts as plain float32 arrays.
    """

    uplink_bytes: int = 0
    downlink_bytes: int = 0
    first_bytes: int = 0
    weight_bytes: int = 0
    dense_uplink_bytes: int = 0
    dense_downlink_bytes: int = 0

    @property
    def sent_bytes(self) -> int:
        """The bytes both ways."""
        return self.uplink_bytes + self.downlink_bytes

    @property
    def dense_bytes(self) -> int:
        """The dense bytes both ways."""
        return self.dense_uplink_bytes + self.dense_downlink_bytes


@dataclass(slots=True)
class SplitNodeRecord:
    """What the server knows of a node: its end of the memory, the labels by sample id, and how far it is in the round.

    `number`: the number of the newest message to the node, which `is_open` until the node answers.  `acked`: the last batch
    taken.  `gradient`: the frame that answers that batch.  `weights`: the key frame that starts the node's round, sent until
    the node `has_begun`.  `steps`: batches trained this round.  `samples`: samples in them; restarts at 0 if the node lost its
    state.  `place`: the number of nodes that were known before this one.
    """

    memory: ActivationMemory
    labels: dict[int, int] = field(default_factory=dict[int, int])
    number: int = 0
    is_open: bool = False
    acked: Ack = field(default_factory=Ack)
    gradient: bytes = b""
    weights: bytes = b""
    has_begun: bool = False
    wants_full: bool = False
    round_number: int = 0
    steps: int = 0
    samples: int = 0
    place: int = 0


class SplitServer:
    """The upper part, its optimizer, and the records of nodes.

    Args:
        upper: The upper part, trained in place.
        settings: How both parts train.
        shape: The shape of one activation.
        layout: The layout of the lower part's weights.
        loss: The loss of outputs and labels.
        seed: Decides all random numbers of server and nodes.
        max_samples: Nodes number their samples from 0; ids from this number on are refused.
        ram_bytes: The memory of activations of each node; rows beyond this go to a temporary file.

    """

    def __init__(
        self,
        upper: nn.Module,
        settings: SplitSettings,
        shape: Sequence[int],
        layout: Layout,
        *,
        loss: Loss = functional.cross_entropy,
        seed: int = 0,
        max_samples: int = MAX_SAMPLES,
        ram_bytes: int = RAM_BYTES,
    ) -> None:
        self.upper, self.settings, self.traffic = upper, settings, SplitTraffic()
        self._fixed = fixed_modules(upper)
        self.training_id = 1 + secrets.randbelow(2**64 - 1)
        self.nodes: dict[int, SplitNodeRecord] = {}
        self._shape, self._layout, self._loss, self._seed = tuple(shape), layout, loss, seed
        self._row_size = 0 if settings.direct else int(np.prod(self._shape))
        self._max_samples, self._ram_bytes = max_samples, ram_bytes
        self.optimizer = torch.optim.SGD(upper.parameters(), settings.learning_rate, settings.momentum)
        self.bounds = BatchBounds(settings.clip)
        self._places = 0
        self._number = first_number()

    def begin(self, node: int, weights: Frame) -> None:
        """Begin a round of a node from the key frame `weights`."""
        if node not in self.nodes:
            self.nodes[node] = SplitNodeRecord(ActivationMemory(self._row_size, self._ram_bytes), place=self._places)
            self._places += 1
        record = self.nodes[node]
        record.weights, record.round_number = weights.to_bytes(), weights.version
        record.has_begun, record.gradient, record.steps, record.samples = False, b"", 0, 0
        self.traffic.dense_downlink_bytes += self._weight_size

    def forget(self, nodes: Iterable[int]) -> None:
        """Drop the records of `nodes`, and their activations; one that returns sends them again."""
        for node in nodes:
            record = self.nodes.pop(node)
            record.memory.close()
            self.bounds.forget(record.place)

    def message(self, node: int) -> bytes:
        """Return the next message to a node; answers to earlier messages are refused from now on."""
        record = self.nodes[node]
        self._number += 1
        record.number, record.is_open = self._number, True
        parts = [b"" if record.has_begun else record.weights, record.gradient]
        parts.append(resync(0) if record.wants_full else b"")
        text = self.settings.text(self._awaited(record))
        frames = tuple(part for part in parts if part)
        newest = (record.round_number, 0)
        data = ServerMessage(self._number, record.acked, *newest, self._seed, text, frames, self.training_id).to_bytes()
        self.traffic.downlink_bytes += len(data)
        self.traffic.weight_bytes += len(parts[0])
        return data

    def take(self, node: int, data: bytes) -> Arrays | None:
        """Train the upper part on the batch in a node's answer, or return the lower weights with which it ends its round.

        Raises `FedcompError` for an answer that cannot be used; then only the request of the next message has changed.
        """
        self.traffic.uplink_bytes += len(data)
        if (record := self.nodes.get(node)) is None:
            raise StaleError(f"node {node} has not been asked for anything")
        frame = parse_single_frame(data)
        if not record.is_open:
            raise StaleError(f"message {record.number} was answered before")
        if frame.kind is Kind.KEY:
            return self._take_weights(record, frame)
        if frame.after != record.number:
            raise StaleError(f"it answers message {frame.after}; the newest to this node is {record.number}")
        if frame.kind is Kind.RESYNC:
            record.has_begun, record.gradient, record.samples = False, b"", 0
            raise VersionError("the node has no lower part of this training; it begins the round again")
        if self._awaited(record) == "weights":
            raise CorruptError(f"a frame of kind {frame.kind.name}; the node's weights are needed")
        try:
            limits = {"max_batch": self.settings.batch_size + 1, "max_samples": self._max_samples}
            batch = read_activations(frame, record.memory, self._shape, direct=self.settings.direct, **limits)
        except VersionError:
            record.wants_full = True
            raise
        self._train(record, batch)
        record.acked = ack_of(record.number, data)
        return None

    def _take_weights(self, record: SplitNodeRecord, frame: Frame) -> Arrays:
        if self._awaited(record) != "weights" or frame.version != record.round_number:
            found = f"the weights of round {frame.version}"
            raise StaleError(f"{found}; {self._awaited(record)} of round {record.round_number} are needed")
        weights = read_key_frame(frame, self._layout)
        record.is_open = False
        self.traffic.weight_bytes += frame.size
        self.traffic.dense_uplink_bytes += self._weight_size
        return weights

    def _train(self, record: SplitNodeRecord, batch: Activations) -> None:
        new = dict(zip(batch.ids[batch.first].tolist(), batch.labels.tolist(), strict=True))
        labels = np.array([new[each] if each in new else record.labels[each] for each in batch.ids.tolist()], np.int64)
        gradient = self._step(record, batch.rows, labels)
        frame = write_gradient(
            gradient,
            self.settings.backward,
            shape=self._shape,
            number=record.number,
            round_number=record.round_number,
            seed=self._batch_seed(record),
        )
        record.memory.put(batch.ids, batch.rows[:, : self._row_size])
        record.labels |= new
        record.gradient, record.is_open, record.has_begun, record.wants_full = frame.to_bytes(), False, True, False
        record.steps, record.samples = record.steps + 1, record.samples + len(labels)
        self.traffic.first_bytes += batch.first_bytes
        self.traffic.dense_uplink_bytes += batch.rows.nbytes
        self.traffic.dense_downlink_bytes += gradient.nbytes

    def _step(self, record: SplitNodeRecord, rows: Vector, labels: NDArray[np.int64]) -> Vector:
        """Train the upper part on activations (B, F); return the gradient of the loss with respect to them.

        A refused batch leaves buffers unchanged, too: the forward pass moves the means of batch normalization.
        """
        size = self.bounds.check_activations(rows)
        before = [(buffer, buffer.clone()) for buffer in self.upper.buffers()]
        try:
            with restored_modes(self.upper), seeded(self._batch_seed(record, 1), device_of(self.upper)):
                gradient, norm = self._train_upper(rows, labels)
        except (CorruptError, ValueError) as error:  # batch normalization refuses a batch of one with a ValueError
            for buffer, value in before:
                buffer.copy_(value)
            raise CorruptError(str(error)) from error
        finally:
            self.optimizer.zero_grad()
        self.bounds.add(record.place, size, norm)
        return gradient

    def _train_upper(self, rows: Vector, labels: NDArray[np.int64]) -> tuple[Vector, float]:
        """Return the gradient of the activations, and the norm of the weights' gradient before it was clipped."""
        device = device_of(self.upper)
        activations = torch.from_numpy(rows).reshape(-1, *self._shape).to(device).requires_grad_()
        set_training(self.upper, self._fixed)
        self.optimizer.zero_grad()
        outputs = self.upper(activations)
        if labels.max() >= outputs.shape[1]:
            raise CorruptError(f"the label {labels.max()}; the model has {outputs.shape[1]} classes")
        loss = self._loss(outputs, torch.from_numpy(labels).to(device))
        loss.backward()  # type: ignore[no-untyped-call]
        found: list[Tensor] = []
        for weight in self.upper.parameters():
            if weight.grad is not None:
                weight.grad = weight.grad.to_dense()  # torch computes no norm of the sparse one of an embedding
                found.append(weight.grad)
        finite = (bool(torch.isfinite(each).all()) for each in (loss, activations.grad, *found) if each is not None)
        if activations.grad is None or not all(finite):
            raise CorruptError("activations whose loss or gradient is not finite; finite ones are needed")
        norm = self.bounds.clip_gradients(found)
        self.bounds.check_step(self.optimizer)
        self.optimizer.step()
        return on_host(activations.grad).reshape(len(labels), -1), norm

    def _batch_seed(self, record: SplitNodeRecord, *use: int) -> int:
        """Return the seed of one use of random numbers for the next batch of a node."""
        return derive_seed(self._seed, record.place, record.round_number, record.steps, *use)

    def _awaited(self, record: SplitNodeRecord) -> Answer:
        return "weights" if record.steps >= self.settings.steps else "activations"

    @property
    def _weight_size(self) -> int:
        return self._layout.exact_size + sum(t.size * t.wire_dtype.itemsize for t, _ in self._layout.parts)
