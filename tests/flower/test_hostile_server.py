"""Damaged server messages, through mod and app: the node refuses them, loses nothing, and follows the genuine one."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from random import Random

import numpy as np
from flwr.app import Message, RecordDict

import fedcomp
from fedcomp import errors
from fedcomp.flower import CompressedStrategy, LocalGrid, records
from fedcomp.flower.compat import make_message
from fedcomp.wire import server_message
from fedcomp.wire.frame import HEAD, Kind, parse_single_frame
from tests.flower.toy import Watching, app, floats, model, state_of, sum_of_updates
from tests.wire.mutations import disturb, disturb_head, seal_frame, seal_server_message

DAMAGED, ATTACKED = 60, range(3, 8)
"""The number of damaged messages before the genuine one, and the rounds in which they arrive."""
REFUSALS = tuple(name for name in vars(errors) if name.endswith("Error"))


class Misled(LocalGrid):
    """A grid in which node 1 gets damaged copies of its message, and then the genuine one."""

    def __init__(self) -> None:
        super().__init__(app(), 3)
        self.rng, self.round = Random(11), 0
        self.lost = self.raised = self.followed = 0

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        messages = list(messages)
        self.round += bool(messages)
        if self.round in ATTACKED:
            for message in messages:
                if message.metadata.dst_node_id == 1:
                    self.mislead(message)
        return super().send_and_receive(messages, timeout=timeout)

    def mislead(self, message: Message) -> None:
        found = records.packed(message.content)
        assert found is not None
        key, data = found
        for _ in range(DAMAGED):
            content = RecordDict(dict(message.content.items()) | {key: records.pack(self.damaged(data))})
            (reply,) = super().send_and_receive([make_message(message.metadata, content)])
            if reply.has_error():
                assert any(f"errors.{name}'" in str(reply.error.reason) for name in REFUSALS), reply.error.reason
                self.raised += 1
                continue
            answer = records.packed(reply.content)
            assert answer is not None
            if parse_single_frame(answer[1]).kind is Kind.RESYNC:
                self.lost += 1
            else:
                self.followed += 1
            state = state_of(self.contexts[1])
            assert np.isfinite(state.held.vector).all()

    def damaged(self, data: bytes) -> bytes:
        """Return the message with damage anywhere, or with a damaged frame and valid checksums.

        Damage may write what is there already, once in some hundred runs: then it is damaged again.
        """
        while (spoiled := self.disturbed(data)) == data:
            pass
        return spoiled

    def disturbed(self, data: bytes) -> bytes:
        """Return the message after one attempt at damage."""
        if self.rng.random() < 0.3:
            return disturb(self.rng, data)
        request, frames = server_message.parse_server_message(data)
        spoiled = []
        for frame in frames:
            whole = frame.to_bytes()
            if self.rng.random() < 0.5:
                whole = disturb_head(self.rng, whole)
            spoiled.append(seal_frame(whole[: HEAD.size] + disturb(self.rng, whole[HEAD.size :])))
        return seal_server_message(replace(request, frames=tuple(spoiled)).to_bytes())


def test_a_node_refuses_damaged_messages_and_ends_in_the_published_model() -> None:
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    grid = Misled()
    inner = Watching(fraction_train=1.0, fraction_evaluate=0.0)
    strategy = CompressedStrategy(inner, uplink=fedcomp.stc(density=0.1), downlink=fedcomp.stc(density=0.1))
    strategy.start(grid, model(), num_rounds=10)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    assert grid.lost > 100
    assert grid.raised > 20
    assert grid.followed < 20, (
        "no damaged frame has a valid fingerprint, so only frames that change nothing are followed"
    )

    inner.fraction_evaluate, inner.min_evaluate_nodes = 1.0, 3
    strategy.start(grid, model(), num_rounds=1)
    for node, context in grid.contexts.items():
        state = state_of(context)
        assert state.held.version == strategy.version
        np.testing.assert_array_equal(state.held.vector.astype(np.float64), floats(strategy.arrays))
        target = sum_of_updates(context)
        assert not state.pending
        np.testing.assert_allclose(
            inner.acked[node] + state.memory["residual"], target, atol=1e-5, err_msg=f"node {node}"
        )
