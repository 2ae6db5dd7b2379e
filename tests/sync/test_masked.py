"""Updates of masked models: values without positions, the same entries at both ends, and nothing lost but what is masked."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedcomp
from fedcomp.core import Vector
from fedcomp.errors import CorruptError, NonFiniteError, StaleError
from fedcomp.sync import Learned, Publisher, Subscriber
from fedcomp.sync.replica import start_replica
from fedcomp.sync.updates import Undecoded, Update
from fedcomp.wire import SECONDS
from fedcomp.wire.frame import Frame, parse_single_frame
from fedcomp.wire.layout import layout_of
from fedcomp.wire.server_message import parse_server_message

METHODS = [
    "dense()",
    "stc(density=0.2)",
    "topk(density=0.2)",
    "qsgd()",
    "eden(bits=2)",
    "signsgd()",
    "hierarchical()",
    "topk(density=0.1, scope='tensor')",
]
SHAPE = (20, 30)


def packed(mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return np.packbits(mask.ravel())


def model(mask: NDArray[np.bool_], seed: int = 0) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal(SHAPE, np.float32) * mask
    return {"w": weight, "b": rng.standard_normal(20, np.float32), "w_mask": packed(mask)}


def random_mask(seed: int = 0) -> NDArray[np.bool_]:
    return np.random.default_rng(seed).random(SHAPE) < 0.2


def begin(arrays: Mapping[str, NDArray[Any]]) -> Publisher:
    return Publisher.begin(start_replica(layout_of(arrays), arrays))


def train(node: Subscriber, server: Publisher, uplink: str, change: Vector, seed: int = 0) -> bytes:
    """Return the reply of a node whose training changes the vector by `change`."""
    message, frames = parse_server_message(server.message_to(1, uplink, seed)[0].to_bytes())
    node.settle(message.acked, 1)
    node.follow(message, frames)
    replica = node.held
    trained = replica.layout.unflatten(replica.vector + change, replica.exact)
    return node.update(node.learned(trained), message, identity=1, decode_seconds=0)


def parse(server: Publisher, reply: bytes) -> Update:
    parsed = server.parse_reply(1, reply)
    assert parsed.update is not None
    return parsed.update


def body_of(reply: bytes) -> bytes:
    return parse_single_frame(reply).payload[SECONDS.size :]


@pytest.mark.parametrize(
    ("mask", "changeable"),
    [
        (np.array([0b10100001, 0b01000000], np.uint8), [0, 2, 7, 9, 10, 11]),  # ten weights, two biases
        (np.zeros(2, np.uint8), [10, 11]),
        (np.full(2, 255, np.uint8), list(range(12))),  # bits after the last entry mean nothing
    ],
)
def test_the_changeable_entries_by_hand(mask: NDArray[np.uint8], changeable: list[int]) -> None:
    arrays: dict[str, NDArray[Any]] = {"w": np.zeros((2, 5), np.float32), "w_mask": mask, "b": np.zeros(2, np.float32)}
    layout = layout_of(arrays)
    found = layout.changeable(layout.exact_bytes(arrays))
    assert found is not None
    assert found.tolist() == changeable


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"w_mask": np.zeros(3, np.uint8)},  # another size
        {"w_mask": np.zeros((1, 2), np.uint8)},  # another shape
        {"w_mask": np.zeros(2, np.int8)},  # another dtype
        {"v_mask": np.zeros(2, np.uint8)},  # of no tensor
        {"w_mask": np.zeros((2, 5), np.float32)},  # a parameter
    ],
)
def test_other_tensors_are_no_masks(other: dict[str, NDArray[Any]]) -> None:
    arrays: dict[str, NDArray[Any]] = {"w": np.zeros((2, 5), np.float32), **other}
    layout = layout_of(arrays)
    assert layout.changeable(layout.exact_bytes(arrays)) is None


def test_an_update_holds_the_values_in_the_mask_and_nothing_else() -> None:
    mask = random_mask()
    server, change = begin(model(mask)), np.zeros(620, np.float32)
    changed = np.append(mask.ravel(), np.ones(20, np.bool_))
    change[changed] = np.arange(1.0, changed.sum() + 1)
    reply = train(Subscriber(), server, "dense()", change)
    update = parse(server, reply)
    np.testing.assert_allclose(update.change.dense(), change, atol=1e-4)
    assert len(body_of(reply)) <= 4 * changed.sum() + 8
    assert len(body_of(reply)) < 4 * 620 / 4


@pytest.mark.parametrize("uplink", METHODS)
def test_the_values_are_those_of_the_vector_of_changeable_entries(uplink: str) -> None:
    mask = random_mask()
    server = begin(model(mask))
    replica = server.replica
    change = np.random.default_rng(1).standard_normal(620, np.float32)
    indices = replica.layout.changeable(replica.exact)
    assert indices is not None
    reply = train(Subscriber(), server, uplink, change)
    update = parse(server, reply)
    dense = update.change.dense()
    outside = np.setdiff1d(np.arange(620), indices)
    assert not dense[outside].any()
    assert dense[indices].any()
    compressor = fedcomp.parse(uplink)
    own = (replica.vector + change - replica.vector)[indices]
    if uplink not in ("qsgd()", "eden(bits=2)"):  # which draw random numbers
        body, _ = compressor.encode(own, compressor.init(own.size), shapes=((int(mask.sum()),), (20,)))
        np.testing.assert_allclose(dense[indices], compressor.decode(body, own.size), rtol=1e-5)
    later = Undecoded(parse_single_frame(reply), replica.layout, replica.exact)
    np.testing.assert_array_equal(later.dense(), dense)
    total, other = np.ones(620), np.ones(620)
    update.change.add_to(total, 0.5)
    later.add_to(other, 0.5)
    np.testing.assert_array_equal(total, other)
    np.testing.assert_allclose(total, 1 + 0.5 * dense, rtol=1e-6)


def test_positions_are_not_sent() -> None:
    """The update of a mask of a fifth takes the bytes of a model of a fifth, to a few."""
    mask = random_mask()
    change = np.random.default_rng(1).standard_normal(620, np.float32)
    small = {"w": np.ones((1, int(mask.sum())), np.float32), "b": np.ones(20, np.float32)}
    for uplink in ("stc(density=0.2)", "eden(bits=2)", "qsgd()"):
        masked = train(Subscriber(), begin(model(mask)), uplink, change)
        plain = train(Subscriber(), begin(small), uplink, change[: int(mask.sum()) + 20])
        assert abs(len(masked) - len(plain)) <= 8


def test_mass_is_conserved_in_the_mask_while_updates_are_lost_and_masks_change() -> None:
    """What the node sent, keeps and dropped with a mask is what it learned, entry by entry."""
    rng, uplink = np.random.default_rng(3), "stc(density=0.1)"
    mask = random_mask()
    server, node = begin(model(mask)), Subscriber()
    learned, arrived, dropped = (np.zeros(620) for _ in range(3))
    for number in range(60):
        indices = server.replica.layout.changeable(server.replica.exact)
        assert indices is not None
        step = np.zeros(620, np.float32)
        step[indices] = rng.standard_normal(indices.size, np.float32)
        held = server.replica.vector
        reply = train(node, server, uplink, step, number)
        learned += (held + step).astype(np.float64) - held
        if number % 3 == 1:
            continue  # the reply is lost: the node takes its update back
        parsed = server.parse_reply(1, reply)
        server.confirm(1, parsed)
        assert parsed.update is not None
        arrived += parsed.update.change.dense()
        exact = server.replica.exact
        if number % 10 == 9:
            mask = random_mask(number)
            kept = node.memory["residual"].astype(np.float64)
            # The node drops it when it encodes its next update, in which the new mask holds.
            dropped += np.where(np.append(mask.ravel(), np.ones(20, np.bool_)), 0, kept)
            exact = packed(mask).tobytes()
        server.publish(parsed.update.change.dense(), exact, fedcomp.parse("dense()"), seed=number)
        server.acknowledge(1, parsed, summed=False)
    follow_up = train(node, server, uplink, np.zeros(620, np.float32), 99)
    arrived += parse(server, follow_up).change.dense()
    np.testing.assert_allclose(arrived + node.memory["residual"] + dropped, learned, atol=2e-3)
    assert np.abs(dropped).max() > 1, "masks have dropped something"


def test_a_node_that_returns_another_mask_is_refused() -> None:
    """A mean of masks would be none."""
    server, node = begin(model(random_mask())), Subscriber()
    message, frames = parse_server_message(server.message_to(1, "dense()", 0)[0].to_bytes())
    node.follow(message, frames)
    replica = node.held
    trained = replica.layout.unflatten(replica.vector + np.float32(1), packed(random_mask(7)).tobytes())
    with pytest.raises(CorruptError, match="another mask 'w_mask' than the one that was sent"):
        server.parse_reply(1, node.update(node.learned(trained), message, identity=1, decode_seconds=0))


def test_a_late_update_within_a_mask_that_has_moved_is_refused() -> None:
    """Its entries are no longer those of the model."""
    server, node = begin(model(random_mask())), Subscriber()
    message, frames = parse_server_message(server.message_to(1, "dense()", 0)[0].to_bytes())
    node.follow(message, frames)
    trained = node.held.layout.unflatten(node.held.vector + np.float32(1), node.held.exact)
    late = node.update(node.learned(trained), message, identity=1, decode_seconds=0)
    server.publish(np.zeros(620, np.float32), server.replica.exact, fedcomp.dense(), seed=0)
    reply = server.parse_reply(1, late)
    assert (reply.staleness, reply.update is not None) == (1, True), "a version later, the mask is still the same"
    server.publish(np.zeros(620, np.float32), packed(random_mask(7)).tobytes(), fedcomp.dense(), seed=0)
    with pytest.raises(StaleError, match="the mask 'w_mask' has moved"):
        server.parse_reply(1, late)


def test_a_counter_beside_the_mask_may_change() -> None:
    arrays = model(random_mask()) | {"steps": np.array(3)}
    server, node = begin(arrays), Subscriber()
    message, frames = parse_server_message(server.message_to(1, "dense()", 0)[0].to_bytes())
    node.follow(message, frames)
    update = parse(
        server, node.update(node.learned(arrays | {"steps": np.array(8)}), message, identity=1, decode_seconds=0)
    )
    assert np.frombuffer(update.exact[-8:], np.int64).item() == 8


def test_entries_that_move_end_where_the_change_leads_whatever_the_downlink_still_owed() -> None:
    """The residual of a lossy downlink holds a part of each entry; a moved one is to be zero, and the others to get theirs."""
    mask, downlink = random_mask(), fedcomp.stc(density=0.05)
    server = begin(model(mask))
    rng = np.random.default_rng(5)
    target = server.replica.vector.astype(np.float64)
    for number in range(400):
        replica = server.replica
        indices = replica.layout.changeable(replica.exact)
        assert indices is not None
        change, exact = np.zeros(620, np.float32), replica.exact
        if number < 40:
            change[indices] = rng.standard_normal(indices.size, np.float32)
        target += change
        if number in (10, 20, 30):
            other = random_mask(number)
            exact = packed(other).tobytes()
            moved = np.flatnonzero(np.append((other != mask).ravel(), np.zeros(20, np.bool_)))
            change[moved], target[moved], mask = -replica.vector[moved], 0, other
        server.publish(change, exact, downlink, seed=number)
    np.testing.assert_allclose(server.replica.vector, target, atol=2e-3)


def test_of_a_residual_a_compressor_without_a_memory_publishes_what_is_in_no_entry_that_moves() -> None:
    mask, other = random_mask(), random_mask(1)
    server = begin(model(mask))
    server.publish(np.ones(620, np.float32), packed(mask).tobytes(), fedcomp.stc(density=0.1), seed=0)
    before, left = server.replica.vector.copy(), server.memory["residual"].copy()
    server.publish(np.zeros(620, np.float32), packed(other).tobytes(), fedcomp.dense(), seed=1)
    moved = np.append((other != mask).ravel(), np.zeros(20, np.bool_))
    np.testing.assert_allclose(server.replica.vector - before, np.where(moved, 0, left), atol=1e-6)
    assert left[moved].any()


@pytest.mark.parametrize("moved", [0.0, 0.25])
def test_a_model_that_evaluation_returns_is_masked_too(moved: float) -> None:
    mask = random_mask()
    server, node = begin(model(mask)), Subscriber()
    message, frames = parse_server_message(server.message_to(1, "dense()", 0)[0].to_bytes())
    node.follow(message, frames)
    replica = node.held
    arrays = replica.layout.unflatten(replica.vector + np.float32(moved), replica.exact)
    reply = node.returned_model(arrays, message, identity=1, decode_seconds=0)
    assert reply is not None
    expected = moved * np.append(mask.ravel(), np.ones(20, np.bool_))
    np.testing.assert_allclose(parse(server, reply).change.dense(), expected, atol=1e-6)


@pytest.mark.parametrize("uplink", ["powersgd()", "regtopk()", "dgc()"])
def test_a_memory_that_is_not_one_number_for_each_entry_is_refused(uplink: str) -> None:
    with pytest.raises(ValueError, match="the model has a mask, and .* keeps its"):
        train(Subscriber(), begin(model(random_mask())), uplink, np.ones(620, np.float32))


def test_an_entry_that_cannot_be_sent_is_named_by_its_tensor() -> None:
    """Where it is too large with what the memory holds, of which `learned` knows nothing."""
    node, server = Subscriber(), begin(model(random_mask()))
    large = np.zeros(620, np.float32)
    large[607] = 3e38
    train(node, server, "stc()", np.zeros(620, np.float32))
    node.memory["residual"] = large.copy()
    message, _ = server.message_to(1, "stc()", 1)
    with pytest.raises(NonFiniteError, match="entry 607 .in tensor 'b'. is inf"):
        node.update(Learned(large, node.held.exact), message, identity=1, decode_seconds=0)


def test_an_update_of_the_whole_vector_is_refused() -> None:
    """As a node would send it that does not know of masks."""
    server = begin(model(random_mask()))
    reply = parse_single_frame(train(Subscriber(), server, "dense()", np.ones(620, np.float32)))
    body, _ = fedcomp.dense().encode(np.ones(620, np.float32), {})
    whole = Frame(
        reply.kind,
        reply.codec,
        reply.flags,
        reply.base_version,
        reply.version,
        reply.layout,
        reply.before,
        reply.after,
        reply.payload[: SECONDS.size] + body,
    )
    with pytest.raises(CorruptError):
        server.parse_reply(1, whole.to_bytes())
