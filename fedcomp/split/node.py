"""The node's half of split training: it answers each message of the server, and counts each batch exactly once.

A batch stays pending until the next message says whether the server took it.  If the server did, the memory takes the batch
too, and the lower part is trained with the gradient in the message.  If not, the node forgets the batch and sends it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedcomp.core import Arrays, on_host
from fedcomp.errors import CorruptError, StaleError, VersionError
from fedcomp.split.activations import MAX_LABEL, read_activations, write_activations
from fedcomp.split.gradients import read_gradient
from fedcomp.split.memory import ActivationMemory
from fedcomp.split.modes import fixed_modules, restored_modes, set_training
from fedcomp.split.random_numbers import seeded
from fedcomp.split.settings import MAX_BATCH, SplitSettings, parse_request
from fedcomp.split.weights import device_of, key_frame, layout_of_part, load_weights, read_key_frame, weights_of
from fedcomp.sync import derive_seed, resync
from fedcomp.wire import COUNTER_BITS, Frame, Kind, ServerMessage, ack_of, parse_single_frame

Frames = Mapping[Kind, Frame]


@dataclass(slots=True)
class SplitState:
    """The state of a node in one training between two messages.

    `number`: the number of the last message that the node answered.  `round_number`: the number of the round.  `visits`: how
    many samples the server took.  `weights`: the weights of the lower part, empty before the first round.  `momentum`: the
    momentum of its optimizer.  `pending`: the frame of the batch `pending_ids`, until the next message says whether the server
    took it.
    """

    memory: ActivationMemory
    training_id: int = 0
    number: int = 0
    round_number: int = 0
    visits: int = 0
    pending: bytes = b""
    pending_ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    weights: Arrays = field(default_factory=Arrays)
    momentum: Arrays = field(default_factory=Arrays)


class SplitNode:
    """The lower part of a model on a node, with the samples `x` (N, ...) and the labels `y`, int64 (N,), of the node.

    `lower` is a module to compute with; its weights come from the state.  Each label goes to the server once.  `identity`
    makes the random numbers of this node differ from those of other nodes.
    """

    def __init__(self, lower: nn.Module, x: Tensor, y: Tensor, identity: int = 0) -> None:
        if len(x) == 0 or len(x) != len(y):
            raise ValueError(f"{len(x)} samples and {len(y)} labels; equally many of both, at least 1, are needed")
        labels = np.asarray(y.cpu().numpy())
        if labels.dtype.kind not in "iu" or not 0 <= int(labels.min()) <= int(labels.max()) <= MAX_LABEL:
            raise ValueError(
                f"labels of {labels.dtype} from {labels.min()} to {labels.max()}; classes from 0 are needed"
            )
        self._lower, self._x, self._labels, self._identity = lower, x, labels.astype(np.int64), identity
        self._layout, self._fixed = layout_of_part(lower), fixed_modules(lower)
        self.shape = activation_shape(lower, x[:1])

    def row_size(self, request: ServerMessage) -> int:
        """Return the entries that the memory keeps of each activation, for the training of a message."""
        _, settings = parse_request(request.uplink)
        return 0 if settings.direct else int(np.prod(self.shape))

    def answer(self, state: SplitState, request: ServerMessage, frames: tuple[Frame, ...]) -> bytes:
        """Return the frame that answers `request`, whose `frames` are parsed, and change `state` accordingly.

        If the node has no lower weights, the answer asks for them and leaves ``state.number`` unchanged.  A repeated message
        gets the same answer.

        Raises:
            StaleError: The message is older than the last one that was answered.
            FedcompError: The message is damaged, or is for another model.  The state is unchanged, as after a `StaleError`.
            DivergedError: Activations or weights are not finite; the state is of no use.

        """
        if request.number == state.number:
            return state.pending or self._weights_frame(state)
        if request.number >> COUNTER_BITS == state.number >> COUNTER_BITS and request.number < state.number:
            raise StaleError(f"message {request.number}; message {state.number} was answered already")
        by_kind = {frame.kind: frame for frame in frames}
        if len(by_kind) < len(frames) or by_kind.keys() - {Kind.KEY, Kind.GRADIENT, Kind.RESYNC}:
            kinds = ", ".join(frame.kind.name for frame in frames)
            raise CorruptError(f"a message with the frames {kinds}; KEY, GRADIENT and RESYNC are possible, each once")
        answer, settings = parse_request(request.uplink)
        weights = read_key_frame(by_kind[Kind.KEY], self._layout) if Kind.KEY in by_kind else None
        self._settle(state, request, by_kind, settings)
        if weights is not None:
            state.weights, state.momentum, state.round_number = weights, {}, by_kind[Kind.KEY].version
        if not state.weights:
            return resync(request.number)
        state.number = request.number
        if answer == "weights":
            return self._weights_frame(state)
        state.pending_ids = self._next_batch(state, settings, request.seed)
        state.pending = self._activations_frame(state, request, settings)
        return state.pending

    def _settle(self, state: SplitState, request: ServerMessage, frames: Frames, settings: SplitSettings) -> None:
        """Count the pending batch if the server took it, and train with its gradient; otherwise forget it."""
        pending, ids, number = state.pending, state.pending_ids, state.number
        is_taken = bool(pending) and ack_of(number, pending) == request.acked
        frame = frames.get(Kind.GRADIENT) if is_taken else None
        gradient = read_gradient(frame, len(ids), self.shape, number) if frame is not None else None
        state.pending, state.pending_ids = b"", np.empty(0, np.int64)
        if gradient is not None:
            self._train(state, ids, torch.from_numpy(gradient), self._seed(state, request), settings)
        if is_taken:
            self._remember(state, parse_single_frame(pending), ids, settings)
            state.visits += len(ids)
        elif Kind.RESYNC in frames:
            state.memory.forget(ids)

    def _remember(self, state: SplitState, frame: Frame, ids: NDArray[np.int64], settings: SplitSettings) -> None:
        memory, limits = state.memory, {"max_batch": MAX_BATCH, "max_samples": len(self._x)}
        try:
            batch = read_activations(frame, memory, self.shape, direct=settings.direct, **limits)
            memory.put(ids, batch.rows[:, : memory.row_size])
        except VersionError:  # the node was killed while it wrote these rows to a file
            memory.forget(ids)

    def _train(
        self, state: SplitState, ids: NDArray[np.int64], gradient: Tensor, seed: int, settings: SplitSettings
    ) -> None:
        activations = self._forward(state, ids, seed)
        named = dict(self._lower.named_parameters())
        optimizer = torch.optim.SGD(named.values(), settings.learning_rate, settings.momentum)
        for name, array in state.momentum.items():
            buffer = torch.from_numpy(np.array(array)).to(named[name].device)
            optimizer.state[named[name]]["momentum_buffer"] = buffer
        optimizer.zero_grad()
        activations.backward(gradient.reshape(activations.shape).to(activations.device))  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        state.weights = weights_of(self._lower)
        buffers = {name: optimizer.state[weight].get("momentum_buffer") for name, weight in named.items()}
        state.momentum = {
            name: np.array(on_host(buffer.to_dense())) for name, buffer in buffers.items() if isinstance(buffer, Tensor)
        }

    def _forward(self, state: SplitState, ids: NDArray[np.int64], seed: int) -> Tensor:
        """Return the activations of samples, with the weights of the state and the random numbers of `seed`."""
        load_weights(self._lower, state.weights)
        device = device_of(self._lower)
        set_training(self._lower, self._fixed)
        with seeded(seed, device):  # dropout is the same in the pass whose output was sent
            activations: Tensor = self._lower(self._x[torch.from_numpy(ids)].to(device))
        return activations

    def _next_batch(self, state: SplitState, settings: SplitSettings, seed: int) -> NDArray[np.int64]:
        """Return the next samples of the epoch; a single remaining sample joins them: batch normalization needs two."""
        epoch, start = divmod(state.visits, len(self._x))
        order = np.random.default_rng([seed, self._identity, epoch]).permutation(len(self._x))
        end = start + settings.batch_size
        return np.asarray(order[start : end if len(order) - end > 1 else None], np.int64)

    def _activations_frame(self, state: SplitState, request: ServerMessage, settings: SplitSettings) -> bytes:
        ids, seed = state.pending_ids, self._seed(state, request)
        activations = self._forward(state, ids, seed)
        return write_activations(
            ids,
            on_host(activations).reshape(len(ids), -1),
            self._labels[ids],
            state.memory,
            settings.upward,
            shape=self.shape,
            number=request.number,
            round_number=state.round_number,
            seed=seed,
            direct=settings.direct,
        ).to_bytes()

    def _seed(self, state: SplitState, request: ServerMessage) -> int:
        """Return the seed of the next batch, the same if it is sent again."""
        return derive_seed(request.seed, self._identity, state.round_number, state.visits)

    def _weights_frame(self, state: SplitState) -> bytes:
        return key_frame(self._layout, state.weights, state.round_number).to_bytes()


def activation_shape(lower: nn.Module, x: Tensor) -> tuple[int, ...]:
    """Return the shape of one activation of the samples `x`; raise `ValueError` for a part that does not fit them."""
    try:
        with restored_modes(lower), torch.inference_mode():
            activations = lower.eval()(x.to(device_of(lower)))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"the lower part does not take samples {x.dtype} {tuple(x.shape)}: {reason}") from error
    is_float32 = isinstance(activations, Tensor) and activations.dtype == torch.float32
    if not is_float32 or activations.ndim < 2 or not activations.numel():
        found = f"{activations.dtype} {tuple(activations.shape)}" if isinstance(activations, Tensor) else "no tensor"
        raise ValueError(f"the lower part returns {found}; float32 (N, ...) is needed")
    return tuple(activations.shape[1:])
