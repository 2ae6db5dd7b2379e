"""The server's side of split learning in Flower: rounds over the nodes of a grid."""

import math
import time
from collections.abc import Callable, Collection, Iterable
from logging import ERROR, INFO, WARNING
from typing import Literal, get_args

import torch
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.core import Arrays, check_choice, check_int, check_range
from fedcomp.errors import FedcompError
from fedcomp.flower import records
from fedcomp.flower.compat import GridWrapper, log
from fedcomp.split import (
    MAX_SAMPLES,
    RAM_BYTES,
    Loss,
    RoundBounds,
    SplitServer,
    SplitSettings,
    SplitTraffic,
    activation_shape,
    check_apart,
    key_frame,
    layout_of_part,
    load_weights,
    mean_weights,
    restored_modes,
    weights_of,
    with_scaled_change,
)

ACTION = "query.split"
"""The type of the messages."""
MAX_ABSENCE = 10
"""After this number of rounds without a node, its activations are forgotten: a node that restarts may have another id."""
POLL_S = 0.5
LowerParts = Literal["averaged", "in-turn"]
DEFAULTS = SplitSettings()


class SplitTraining:
    """Trains a model that is cut in two: `lower` on the nodes, on their samples, and `upper` here, for all of them.

    The upper part is one for all nodes, and takes a step for each of their batches.  The lower parts of a round start from the
    same weights and are averaged after it, by the samples they were trained on, while all nodes train at the same time
    (``"averaged"``: SplitFed's second version; Thapa et al., AAAI 2022, arXiv:2004.12088).  Or one node after the other
    trains the lower part and hands it on (``"in-turn"``).  Both parts hold the trained weights after each round, and their
    modules are in the modes in which they were.

    Args:
        lower: The lower part, as `fedcomp.split.cut` returns it.
        upper: The upper part, which returns outputs (N, classes).
        example: Samples (N, ...) like those of the nodes; their values do not matter.
        settings: How both parts train, and the compressors.
        lower_parts: ``"averaged"`` or ``"in-turn"``.
        loss: The mean loss of outputs (N, classes) and labels, int64 (N,).
        seed: Decides all random numbers.
        timeout_s: The longest wait for answers; None for no bound.
        attempts: A node is left out of the round after so many messages in a row without an answer that can be used.
        max_samples: Nodes number their samples from 0, and have at most as many.
        ram_bytes: The memory that the activations of a node take here; what is beyond goes to a temporary file.

    Raises:
        ValueError: The two parts do not fit each other, or a setting is not possible.

    Examples:
        >>> import torch
        >>> from torch import nn
        >>> from fedcomp.flower.split import SplitTraining
        >>> from fedcomp.split import cut
        >>> lower, upper = cut(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)), "1")
        >>> training = SplitTraining(lower, upper, torch.zeros(1, 64))
        >>> training.shape
        (32,)

    """

    def __init__(
        self,
        lower: nn.Module,
        upper: nn.Module,
        example: Tensor,
        settings: SplitSettings = DEFAULTS,
        *,
        lower_parts: LowerParts = "averaged",
        loss: Loss = functional.cross_entropy,
        seed: int = 0,
        timeout_s: float | None = 3600.0,
        attempts: int = 5,
        max_samples: int = MAX_SAMPLES,
        ram_bytes: int = RAM_BYTES,
    ) -> None:
        check_choice("lower_parts", lower_parts, get_args(LowerParts))
        check_int("seed", seed, 0, 2**63 - 1)
        check_int("attempts", attempts, 1, 1_000_000)
        check_int("max_samples", max_samples, 1, 2**62)
        check_int("ram_bytes", ram_bytes, 0, 2**62)
        if timeout_s is not None:
            check_range("timeout_s", timeout_s, above=0)
        if not isinstance(settings, SplitSettings):
            raise ValueError(f"settings is {settings!r}; SplitSettings are needed")
        for name, part in (("lower", lower), ("upper", upper)):
            if not any(weight.requires_grad for weight in part.parameters()):
                raise ValueError(f"the {name} part has no trained weights; both parts need some")
        check_apart(lower, upper)
        self._layout = layout_of_part(lower)
        self.shape = activation_shape(lower, example)
        _check_upper(upper, self.shape, loss)
        self._lower, self._lower_parts = lower, lower_parts
        self._timeout_s, self._attempts = timeout_s, attempts
        limits = {"max_samples": max_samples, "ram_bytes": ram_bytes}
        self._server = SplitServer(upper, settings, self.shape, self._layout, loss=loss, seed=int(seed), **limits)
        names = lower.named_parameters(remove_duplicate=False)
        self._bounds = RoundBounds(settings.clip, [name for name, weight in names if weight.requires_grad])
        self._round = 0

    @property
    def settings(self) -> SplitSettings:
        """How both parts train."""
        return self._server.settings

    @property
    def traffic(self) -> SplitTraffic:
        """The bytes of all messages so far."""
        return self._server.traffic

    def run(
        self,
        grid: Grid,
        num_rounds: int,
        *,
        min_nodes: int = 1,
        node_timeout_s: float = 60.0,
        on_round: Callable[[int], object] | None = None,
    ) -> None:
        """Train for `num_rounds` rounds on all nodes of `grid`, once it has `min_nodes`; later calls continue.

        A node that does not answer is left out of its round.  `on_round` is called with the number of each round after it.
        Raises `TimeoutError` if there are fewer nodes after `node_timeout_s` seconds.
        """
        check_int("num_rounds", num_rounds, 1, 1_000_000)
        check_int("min_nodes", min_nodes, 1, 1_000_000)
        check_range("node_timeout_s", node_timeout_s, least=0)
        grid = GridWrapper(grid)  # which asks for replies more often
        for _ in range(num_rounds):
            nodes = _wait_for_nodes(grid, min_nodes, node_timeout_s)
            self._round += 1
            self._forget_absent(nodes)
            groups = [nodes] if self._lower_parts == "averaged" else [[node] for node in nodes]
            for group in groups:
                finished, records_of = self._train(grid, group), self._server.nodes
                trained = {node: weights for node, weights in finished.items() if records_of[node].samples}
                if trained:  # the others lost their state, and have not trained since
                    parts = [(records_of[node].samples, weights) for node, weights in self._bounded(trained).items()]
                    load_weights(self._lower, mean_weights(parts))
            traffic = self.traffic
            text = "fedcomp: round %d: %d bytes up and %d down so far, %.1f times fewer than as float32"
            ratio = traffic.dense_bytes / traffic.sent_bytes
            log(INFO, text, self._round, traffic.uplink_bytes, traffic.downlink_bytes, ratio)
            if on_round is not None:
                on_round(self._round)

    def _forget_absent(self, nodes: Collection[int]) -> None:
        """Forget the nodes that are not among `nodes`, and have not been for `MAX_ABSENCE` rounds."""
        last = {node: record.round_number for node, record in self._server.nodes.items() if node not in nodes}
        absent = [node for node, number in last.items() if self._round - number > MAX_ABSENCE]
        self._server.forget(absent)
        self._bounds.forget(absent)

    def _train(self, grid: Grid, nodes: Collection[int]) -> dict[int, Arrays]:
        """Train a round on `nodes` at the same time; return the lower weights of those that finished it."""
        weights = key_frame(self._layout, weights_of(self._lower), self._round)
        for node in nodes:
            self._server.begin(node, weights)
        attempts, finished = dict.fromkeys(nodes, 0), dict[int, Arrays]()
        while attempts:
            messages = [self._message(node) for node in attempts]
            progress = self._take(grid.send_and_receive(messages, timeout=self._timeout_s))
            for node in list(attempts):
                attempts[node] = 0 if node in progress else attempts[node] + 1
                result = progress.get(node)
                if result is not None:
                    finished[node] = result
                if result is not None or attempts[node] >= self._attempts:
                    del attempts[node]
        for node in set(nodes) - finished.keys():
            log(WARNING, "fedcomp: node %d did not finish round %d", node, self._round)
        if not finished:
            log(ERROR, "fedcomp: no node finished round %d; the lower part is as it was", self._round)
        return finished

    def _bounded(self, finished: dict[int, Arrays]) -> dict[int, Arrays]:
        """Return the lower weights of a round, those moved back that are far from where they started."""
        start = weights_of(self._lower)
        factors = self._bounds.factors(start, finished)
        for node, by_name in factors.items():
            name, factor = min(by_name.items(), key=lambda item: item[1])
            if factor < 1:
                name = "its trained weights" if name in self._bounds.trained else name
                text = (
                    "fedcomp: round %d: node %d changed %s %.3g times as far as is possible; the change is scaled down"
                )
                log(WARNING, text, self._round, node, name, 1 / factor if factor else math.inf)
        return {node: with_scaled_change(start, weights, factors[node]) for node, weights in finished.items()}

    def _message(self, node: int) -> Message:
        content = RecordDict({records.KEY: records.pack(self._server.message(node))})
        return Message(content, dst_node_id=node, message_type=ACTION, group_id=str(self._round))

    def _take(self, replies: Iterable[Message]) -> dict[int, Arrays | None]:
        """Return node -> its lower weights if it ended the round, or None after a batch, of all answers that can be used.

        The order of the nodes decides that of the steps of the upper part.
        """
        progress: dict[int, Arrays | None] = {}
        for reply in sorted(replies, key=lambda reply: reply.metadata.src_node_id):
            node = reply.metadata.src_node_id
            if not reply.has_content():
                log(WARNING, "fedcomp: node %d failed: %s", node, reply.error.reason)
                continue
            try:
                packed = records.packed(reply.content)
                result = self._server.take(node, packed[1] if packed else b"")
            except FedcompError as error:
                if node not in progress:
                    log(WARNING, "fedcomp: the answer of node %d is not used: %s", node, error)
                continue
            progress[node] = result
        return progress


def _check_upper(upper: nn.Module, shape: tuple[int, ...], loss: Loss) -> None:
    device = next(upper.parameters()).device
    try:
        with restored_modes(upper), torch.inference_mode():
            outputs = upper.eval()(torch.zeros(1, *shape, device=device))
    except (RuntimeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"the upper part does not take activations {(1, *shape)}: {reason}") from error
    if not isinstance(outputs, Tensor) or outputs.ndim != 2:
        found = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(f"the upper part returns {found}; outputs (N, classes) are needed")
    try:
        value = loss(outputs, torch.zeros(1, dtype=torch.int64, device=device))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"loss is {loss!r}, which takes no outputs (N, classes) and labels (N,): {reason}") from error
    if not isinstance(value, Tensor) or value.ndim:
        found = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise ValueError(f"loss is {loss!r}, which returns {found}; one number, the mean, is needed")


def _wait_for_nodes(grid: Grid, min_nodes: int, timeout_s: float) -> list[int]:
    """Return the ids of all nodes, ascending, once there are `min_nodes`; raise `TimeoutError` otherwise."""
    deadline = time.monotonic() + timeout_s
    while len(nodes := sorted(grid.get_node_ids())) < min_nodes:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(nodes)} nodes after {timeout_s:g} s; {min_nodes} are needed")
        time.sleep(POLL_S)
    return nodes
