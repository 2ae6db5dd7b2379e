"""A node and the server: exactly once under any faults, memories that differ are found and repaired, and hostile answers."""

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedcomp
from fedcomp.errors import CorruptError, FedcompError, LayoutError, StaleError, VersionError
from fedcomp.split import (
    ActivationMemory,
    SplitNode,
    SplitSettings,
    SplitState,
    key_frame,
    weights_of,
    write_activations,
    write_gradient,
)
from fedcomp.sync import resync
from fedcomp.wire import Kind, layout_of, parse_server_message, parse_single_frame
from tests.split.pair import Pair, model, samples

SETTINGS = SplitSettings(fedcomp.cgx(bits=2), fedcomp.cgx(bits=4), batch_size=8, steps=12, momentum=0.5)
MAX_MESSAGES = 400


class Faults:
    """Loses and repeats messages and answers, ends processes before and after they have saved their state; all by a seed."""

    def __init__(self, pair: Pair, seed: int, *, forgetting: bool = False) -> None:
        self.pair, self.rng, self.refused = pair, np.random.default_rng(seed), 0
        self.kinds = [
            "none",
            "message lost",
            "reply lost",
            "message twice",
            "reply twice",
            "killed",
            "late",
            "late reply",
        ]
        self.kinds += ["forgotten", "older state"] if forgetting else []
        self.messages, self.replies, self.states = list[bytes](), list[bytes](), list[SplitState]()
        self.seen = set[str]()

    def round(self) -> None:
        self.pair.begin()
        for _ in range(MAX_MESSAGES):
            message = self.pair.server.message(1)
            kind = str(self.rng.choice(self.kinds))
            for reply in self.deliver(message, kind):
                try:
                    weights = self.pair.server.take(1, reply)
                except FedcompError:
                    self.refused += 1
                    continue
                if weights is not None:
                    self.pair.finish(weights)
                    return
            self.messages.append(message)
            self.seen.add(kind)
        raise AssertionError(f"{MAX_MESSAGES} messages are not enough for a round")

    def deliver(self, message: bytes, kind: str) -> list[bytes]:
        if kind == "message lost":
            return []
        if kind == "forgotten":
            self.pair.state = None
        if kind == "older state" and self.states:
            self.pair.state = copy.deepcopy(self.states[int(self.rng.integers(len(self.states)))])
        if kind == "late" and self.messages:
            with suppress(StaleError):  # unless it is the last one again, or newer than that because that got lost
                self.replies.append(self.pair.answer(self.messages[int(self.rng.integers(len(self.messages)))]))
        before = copy.deepcopy(self.pair.state)
        reply = self.pair.answer(message)
        if kind == "killed":  # before its state is saved
            self.pair.state = before
            return []
        if kind == "message twice":
            assert self.pair.answer(message) == reply
        if before is not None:
            self.states.append(before)
        self.replies.append(reply)
        if kind == "reply lost":
            return []
        late = [self.replies[int(self.rng.integers(len(self.replies)))]] if kind == "late reply" else []
        return [*late, reply, *([reply] if kind == "reply twice" else [])]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "settings", [SETTINGS, SplitSettings(fedcomp.cgx(bits=2), direct=True, batch_size=8, steps=12)]
)
@pytest.mark.parametrize("seed", range(3))
def test_any_faults_end_in_the_bits_of_a_quiet_run(settings: SplitSettings, seed: int) -> None:
    quiet, pair = Pair(settings), Pair(settings)
    quiet.run(rounds=3)
    faults = Faults(pair, seed)
    for _ in range(3):
        faults.round()
    assert faults.seen >= set(faults.kinds)
    assert pair.bits() == quiet.bits()
    assert pair.rows() == quiet.rows()
    ids, here, there = pair.rows()
    assert here == there
    assert len(ids) == 20
    assert pair.server.traffic.dense_bytes == quiet.server.traffic.dense_bytes, "each batch counts once"
    assert pair.server.traffic.sent_bytes > quiet.server.traffic.sent_bytes


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_lost_its_state_or_got_an_old_one_back_is_repaired(seed: int) -> None:
    pair = Pair(SETTINGS)
    faults = Faults(pair, seed, forgetting=True)
    for _ in range(4):
        faults.round()
    assert faults.seen >= set(faults.kinds)
    pair.run(rounds=1)  # 12 batches of 8 visit all 20 samples
    ids, here, there = pair.rows()
    assert len(ids) == 20
    assert here == there


def test_an_old_state_costs_one_refused_batch_and_one_full_send() -> None:
    pair = Pair(SETTINGS)
    pair.run(rounds=1)
    old = copy.deepcopy(pair.state)
    pair.run(rounds=1)
    pair.state = old
    pair.begin()
    with pytest.raises(VersionError, match="memories"):
        pair.server.take(1, pair.answer(pair.server.message(1)))
    before = pair.server.traffic.first_bytes
    message = pair.server.message(1)
    assert [frame.kind for frame in parse_server_message(message)[1]] == [Kind.KEY, Kind.RESYNC]
    assert pair.server.take(1, pair.answer(message)) is None
    assert pair.server.traffic.first_bytes - before == 8 * (6 * 4 + 1), "six float32 and a label of each sample"


def test_a_message_that_is_older_than_the_last_one_is_refused() -> None:
    pair = Pair(SETTINGS)
    pair.begin()
    messages = [pair.server.message(1) for _ in range(2)]
    pair.answer(messages[1])
    with pytest.raises(StaleError):
        pair.answer(messages[0])


def test_the_gradient_is_repeated_until_the_next_batch_arrives() -> None:
    pair = Pair(SETTINGS)
    pair.begin()
    pair.server.take(1, pair.answer(pair.server.message(1)))
    kinds = [[frame.kind for frame in parse_server_message(pair.server.message(1))[1]] for _ in range(3)]
    assert kinds == [[Kind.GRADIENT]] * 3
    pair.server.take(1, pair.answer(pair.server.message(1)))
    request, frames = parse_server_message(pair.server.message(1))
    assert [frame.kind for frame in frames] == [Kind.GRADIENT]
    assert frames[0].after == request.acked.number


def test_a_second_node_shares_the_upper_part_and_nothing_else() -> None:
    pair = Pair(SETTINGS)
    pair.run()
    pair.server.begin(2, key_frame(pair.layout, weights_of(pair.lower), 1))
    other = SplitNode(copy.deepcopy(pair.lower), *samples(12, seed=4), identity=1)
    request, frames = parse_server_message(pair.server.message(2))
    state = SplitState(ActivationMemory(6))
    before = copy.deepcopy(pair.server.upper.state_dict())
    assert pair.server.take(2, other.answer(state, request, frames)) is None
    assert any(not torch.equal(before[name], tensor) for name, tensor in pair.server.upper.state_dict().items())
    assert pair.server.nodes[2].memory.ids.size == 8
    assert pair.server.nodes[1].memory.ids.size == 20


class Noisy(nn.Module):
    """A lower part with dropout and statistics of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)
        self.last = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.last(self.drop(self.norm(self.first(x))))
        return outputs


def test_statistics_of_batches_count_each_batch_once_and_travel_with_the_weights() -> None:
    pair = Pair(SETTINGS, Noisy(), "drop")
    faults = Faults(pair, seed=3)
    faults.round()
    assert int(pair.model.state_dict()["norm.num_batches_tracked"]) == SETTINGS.steps
    assert pair.model.state_dict()["norm.running_mean"].abs().sum() > 0


def test_dropout_is_the_same_when_the_gradient_arrives() -> None:
    """Without compression, a dropped activation is sent as 0, and no gradient may flow through it."""
    settings = SplitSettings(fedcomp.dense(), fedcomp.dense(), batch_size=20, steps=1, learning_rate=1.0)
    whole = nn.Sequential(nn.Linear(4, 6, bias=False), nn.Dropout(0.5), nn.Linear(6, 3))
    pair = Pair(settings, whole, "1")
    pair.begin()
    start = weights_of(pair.lower)["0.weight"]
    pair.server.take(1, pair.answer(pair.server.message(1)))
    sent = pair.server.nodes[1].memory.rows(range(20))
    request, frames = parse_server_message(pair.server.message(1))
    gradient = np.frombuffer(frames[0].payload, "<f4").reshape(20, 6)
    torch.rand(3)  # someone else draws meanwhile
    weights = pair.server.take(1, pair.answer(request.to_bytes()))
    assert weights is not None
    assert pair.state is not None
    x = samples()[0].numpy()
    order = np.random.default_rng([0, 0, 0]).permutation(20)
    expected = start - np.where(sent[order] != 0, 2 * gradient, 0).T @ x[order]
    np.testing.assert_allclose(weights["0.weight"], expected, rtol=1e-4, atol=1e-6)


def _labelled(pair: Pair, label: int) -> bytes:
    number = pair.server.nodes[1].number
    rows = np.zeros((1, 6), np.float32)
    return write_activations([3], rows, [label], ActivationMemory(6), fedcomp.dense(), number=number).to_bytes()


def _huge(pair: Pair) -> bytes:
    frame = parse_single_frame(_labelled(pair, 1))
    return replace(frame, payload=frame.payload[:-4] + np.float32(3e38).tobytes()).to_bytes()


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (lambda pair: b"", FedcompError, "0 bytes"),
        (lambda pair: resync(7), StaleError, "message 7"),
        (lambda pair: resync(pair.server.nodes[1].number), VersionError, "no lower part"),
        (lambda pair: _labelled(pair, 3), CorruptError, "the label 3; the model has 3 classes"),
        (lambda pair: _labelled(pair, 2**40), CorruptError, "the label 1099511627776"),
        (_huge, CorruptError, "magnitude 3e.38"),
        (
            lambda pair: key_frame(pair.layout, weights_of(pair.lower), 1).to_bytes(),
            StaleError,
            "activations of round 1",
        ),
    ],
)
def test_answers_that_cannot_be_used_are_refused_and_change_nothing(
    answer: Callable[[Pair], bytes], error: type[FedcompError], text: str
) -> None:
    pair = Pair(SETTINGS)
    pair.begin()
    message = pair.server.message(1)
    before = pair.bits()
    with pytest.raises(error, match=text):
        pair.server.take(1, answer(pair))
    assert pair.bits() == before
    assert pair.server.nodes[1].memory.ids.size == 0
    assert pair.server.take(1, pair.answer(message)) is None, "the node's own answer is still taken"


@pytest.mark.parametrize(
    ("ids", "label", "text"), [([3, 4], 3, "the label 3; the model has 3 classes"), ([3], 1, "more than 1 value")]
)
def test_a_refused_batch_moves_no_mean_of_batch_normalization(ids: list[int], label: int, text: str) -> None:
    whole = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    pair = Pair(SETTINGS, whole)
    pair.begin()
    message = pair.server.message(1)
    rows = np.random.default_rng(0).standard_normal((len(ids), 6), np.float32)
    number = pair.server.nodes[1].number
    frame = write_activations(ids, rows, [label] * len(ids), ActivationMemory(6), fedcomp.dense(), number=number)
    before = pair.bits()
    with pytest.raises(CorruptError, match=text):
        pair.server.take(1, frame.to_bytes())
    assert pair.bits() == before
    assert pair.server.take(1, pair.answer(message)) is None
    assert pair.bits() != before


def test_an_answer_of_a_node_that_was_never_asked_is_refused() -> None:
    pair = Pair(SplitSettings(batch_size=8, steps=4))
    before = pair.server.traffic.uplink_bytes
    with pytest.raises(StaleError, match="node 77"):
        pair.server.take(77, resync(7))
    assert 77 not in pair.server.nodes
    assert pair.server.traffic.uplink_bytes > before, "its bytes have come"


def test_weights_of_other_layers_or_beyond_any_use_are_refused() -> None:
    pair = Pair(SplitSettings(steps=1))
    pair.begin()
    pair.server.take(1, pair.answer(pair.server.message(1)))
    weights = pair.server.message(1), weights_of(pair.lower)
    other = {"0.weight": np.zeros((6, 4), np.float32)}
    with pytest.raises(LayoutError):
        pair.server.take(1, key_frame(layout_of(other), other, 1).to_bytes())
    large = weights[1] | {"0.bias": np.full(6, 1e16, np.float32)}
    with pytest.raises(CorruptError, match="magnitude 1e"):
        pair.server.take(1, key_frame(pair.layout, large, 1).to_bytes())
    assert pair.server.take(1, pair.answer(weights[0])) is not None


def _key() -> bytes:
    pair = Pair(SETTINGS)
    return key_frame(pair.layout, weights_of(pair.lower), 1).to_bytes()


def _activations() -> bytes:
    return write_activations([0], np.zeros((1, 6), np.float32), [0], ActivationMemory(6), fedcomp.dense()).to_bytes()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"uplink": "stc()"}, CorruptError),
        ({"uplink": "activations(forward='stc()')"}, CorruptError),
        ({"frames": (resync(0), resync(0))}, CorruptError),
        ({"frames": (_key(), _key())}, CorruptError),
        ({"frames": (_activations(),)}, CorruptError),
    ],
)
def test_hostile_messages_are_refused_and_change_nothing(changes: dict[str, Any], error: type[FedcompError]) -> None:
    pair = Pair(SETTINGS)
    pair.begin()
    for _ in range(2):
        pair.server.take(1, pair.answer(pair.server.message(1)))
    state = copy.deepcopy(pair.state)
    message = replace(parse_server_message(pair.server.message(1))[0], **changes).to_bytes()
    assert state is not None
    assert pair.state is not None
    request, frames = parse_server_message(message)
    with pytest.raises(error):
        pair.node.answer(pair.state, request, frames)
    assert (pair.state.number, pair.state.pending, pair.state.visits) == (state.number, state.pending, state.visits)
    assert pair.rows()[1] == state.memory.rows(state.memory.ids).tobytes()
    pair.server.take(1, pair.answer(pair.server.message(1)))


def test_a_gradient_of_another_size_is_refused_and_changes_nothing() -> None:
    pair = Pair(SETTINGS)
    pair.begin()
    pair.server.take(1, pair.answer(pair.server.message(1)))
    assert pair.state is not None
    request, frames = parse_server_message(pair.server.message(1))
    short = write_gradient(np.zeros((3, 6), np.float32), fedcomp.dense(), number=frames[0].after)
    pending = pair.state.pending
    with pytest.raises(FedcompError):
        pair.node.answer(pair.state, request, (short,))
    assert pair.state.pending == pending
    assert pair.state.memory.ids.size == 0


@pytest.mark.parametrize(("count", "labels"), [(0, 0), (3, 2)])
def test_a_node_needs_samples_and_as_many_labels(count: int, labels: int) -> None:
    with pytest.raises(ValueError, match=f"{count} samples and {labels} labels"):
        SplitNode(model(), torch.zeros(count, 4), torch.zeros(labels, dtype=torch.int64))


@pytest.mark.parametrize(("labels", "text"), [([0, -1], "int64 from -1 to 0"), ([0.0, 1.0], "float32 from 0.0 to 1.0")])
def test_labels_are_classes(labels: list[float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SplitNode(model(), torch.zeros(2, 4), torch.tensor(labels))


def test_a_lower_part_that_returns_other_than_floats_is_refused() -> None:
    class Codes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            codes: torch.Tensor = self.layer(x).long()
            return codes

    with pytest.raises(ValueError, match=r"torch.int64 \(1, 2\); float32"):
        SplitNode(Codes(), *samples())


def test_the_pending_frame_answers_the_newest_message() -> None:
    pair = Pair(SETTINGS)
    pair.begin()
    message = pair.server.message(1)
    assert parse_single_frame(pair.answer(message)).after == parse_server_message(message)[0].number


def test_a_label_beyond_31_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="int64 from 0 to 2147483648"):
        SplitNode(model(), torch.zeros(2, 4), torch.tensor([0, 2**31]))
