"""Publisher and subscribers alone, without Flower: equal bits and conserved mass through loss, repetition and restarts."""

import copy
import random

import numpy as np
import pytest
from numpy.typing import NDArray

import fedcomp
from fedcomp.errors import DivergedError, FedcompError, NonFiniteError, StaleError, UnknownFormatError, VersionError
from fedcomp.sync import Learned, Publisher, Subscriber, first_number, weighted_mean
from fedcomp.sync.replica import start_replica
from fedcomp.sync.subscriber import MAX_PAST_SERVERS
from fedcomp.wire.frame import FLAG_FIRST, Kind, parse_single_frame
from fedcomp.wire.layout import layout_of
from fedcomp.wire.server_message import COUNTER_BITS, Ack, ServerMessage, parse_server_message

N = 200
Step = NDArray[np.float32]


def publisher() -> Publisher:
    arrays = {"w": np.random.default_rng(0).standard_normal(N, np.float32)}
    return Publisher.begin(start_replica(layout_of(arrays), arrays))


def follow(subscriber: Subscriber, data: bytes, node: int = 1) -> ServerMessage:
    message, frames = parse_server_message(data)
    subscriber.settle(message.acked, node)
    subscriber.follow(message, frames)
    return message


def answer(subscriber: Subscriber, data: bytes, node: int, step: Step) -> bytes:
    """Return the reply to a message after training that moves the weights by `step`; repeats it for the same message."""
    message, _ = parse_server_message(data)
    if subscriber.is_repeated(message):
        return subscriber.pending
    message = follow(subscriber, data, node)
    return subscriber.update(
        subscriber.learned({"w": subscriber.held.vector + step}), message, identity=node, decode_seconds=0
    )


def test_the_protocol_conserves_mass_through_any_faults() -> None:
    """Messages and replies are lost and repeated, and nodes restart from an older state of theirs, for 80 rounds."""
    rng, draw = np.random.default_rng(1), random.Random(1)
    uplink, downlink = fedcomp.stc(density=0.1), fedcomp.stc(density=0.1)
    server, nodes = publisher(), {node: Subscriber() for node in range(1, 6)}
    start = server.replica.vector.astype(np.float64)
    target, arrived = ({node: np.zeros(N) for node in nodes} for _ in range(2))
    total = np.zeros(N)
    for number in range(80):
        replies: list[tuple[int, bytes]] = []
        for node, subscriber in nodes.items():
            if draw.random() < 0.3:
                continue  # absent
            data = server.message_to(node, str(uplink), seed=number)[0].to_bytes()
            if draw.random() < 0.1:
                continue  # the message is lost
            before = copy.deepcopy(subscriber)
            step = rng.standard_normal(N, np.float32)
            reply = answer(subscriber, data, node, step)
            if draw.random() < 0.1:
                nodes[node] = before  # the device dies before it saves its state
                continue
            held = subscriber.held.vector
            target[node] += (held + step).astype(np.float64) - held
            if draw.random() < 0.1:
                assert answer(subscriber, data, node, step) == reply, "the same message has the same answer"
            replies += [(node, reply)] * draw.choice((0, 1, 1, 1, 2))
        accepted = []
        for node, reply in replies:
            try:
                parsed = server.parse_reply(node, reply)
            except StaleError:
                continue
            server.confirm(node, parsed)
            accepted.append((node, parsed))
        updates = [(parsed.update, 1.0) for _, parsed in accepted if parsed.update is not None]
        if not updates:
            continue
        change, _ = weighted_mean(updates, server.replica.layout)
        total += change
        server.publish(change, b"", downlink, seed=number)
        for node, parsed in accepted:
            assert parsed.update is not None
            arrived[node] += parsed.update.change.dense()
            server.acknowledge(node, parsed, summed=False)
    for node, subscriber in nodes.items():
        follow(subscriber, server.message_to(node, str(uplink), seed=0)[0].to_bytes(), node)
        np.testing.assert_array_equal(subscriber.held.vector, server.replica.vector)
        np.testing.assert_allclose(arrived[node] + subscriber.memory["residual"], target[node], atol=1e-3)
    moved = server.replica.vector.astype(np.float64) - start
    np.testing.assert_allclose(moved + server.memory["residual"], total, atol=1e-4)


def test_an_older_message_is_refused() -> None:
    server, subscriber = publisher(), Subscriber()
    old, new = (server.message_to(1, "dense()", 0)[0] for _ in range(2))
    follow(subscriber, new.to_bytes())
    with pytest.raises(StaleError, match=str(old.number)):
        subscriber.is_repeated(old)


def test_a_server_that_another_one_has_replaced_is_refused_whatever_its_numbers() -> None:
    servers, subscriber = [publisher() for _ in range(MAX_PAST_SERVERS + 2)], Subscriber()
    for server in servers:
        follow(subscriber, server.message_to(1, "dense()", 0)[0].to_bytes())
        assert not subscriber.is_repeated(server.message_to(1, "dense()", 0)[0])
    for server in servers[1:-1]:  # the oldest is forgotten, the newest is the present one
        with pytest.raises(StaleError):
            subscriber.is_repeated(server.message_to(1, "dense()", 0)[0])
    assert len(subscriber.past_servers) == MAX_PAST_SERVERS


def test_names_of_servers_differ_and_leave_room_for_the_epoch() -> None:
    numbers = [publisher().number for _ in range(1000)]
    assert len({number >> COUNTER_BITS for number in numbers}) == 1000
    assert all(0 < number < 2**63 and number % 2**COUNTER_BITS == 0 for number in numbers)


def test_a_message_of_another_version_is_refused_and_its_number_does_not_count() -> None:
    server, subscriber = publisher(), Subscriber()
    with pytest.raises(FedcompError, match="key frame"):
        subscriber.ack(1)
    key = server.replica.key_frame()
    message = ServerMessage(7, Ack(), 5, 1, 0, "dense()", (key.to_bytes(),))
    with pytest.raises(VersionError, match="version 0 .*version 5"):
        subscriber.follow(message, (key,))
    assert (subscriber.number, subscriber.held.version) == (0, 0)


def test_an_unknown_uplink_is_refused_by_name() -> None:
    server, subscriber = publisher(), Subscriber()
    message = follow(subscriber, server.message_to(1, "magic(x=1)", 0)[0].to_bytes())
    with pytest.raises(UnknownFormatError, match="magic"):
        subscriber.update(subscriber.learned({"w": subscriber.held.vector}), message, 1, 0)


def test_numbers_that_cannot_be_sent_are_errors_that_name_the_tensor_and_keep_the_state() -> None:
    server, subscriber = publisher(), Subscriber()
    answer(subscriber, server.message_to(1, "stc()", 0)[0].to_bytes(), 1, np.ones(N, np.float32))
    far = Learned(np.full(N, 3e38, np.float32), subscriber.held.exact)
    subscriber.update(far, server.message_to(1, "stc()", 0)[0], 1, 0)
    residual, pending = subscriber.memory["residual"].copy(), subscriber.pending
    message, _ = server.message_to(1, "stc()", 0)
    with pytest.raises(DivergedError, match="'w'"):
        subscriber.learned({"w": np.full(N, np.nan)})
    with pytest.raises(DivergedError, match="'w'"):
        subscriber.learned({"w": np.full(N, 3e38)})
    with pytest.raises(NonFiniteError, match="'w'.* inf"):  # with the residual, it is beyond float32
        subscriber.update(far, message, 1, 0)
    np.testing.assert_array_equal(subscriber.memory["residual"], residual)
    assert subscriber.pending == pending


def test_the_first_increment_of_an_epoch_is_marked() -> None:
    server, subscriber = publisher(), Subscriber()
    flags = []
    for new_epoch in (False, False, True, False):
        if new_epoch:
            server.begin_epoch()
        data = server.message_to(1, "ef21(density=0.1)", 0)[0].to_bytes()
        frame = parse_single_frame(answer(subscriber, data, 1, np.ones(N, np.float32)))
        assert frame.kind is Kind.UPDATE
        flags.append(bool(frame.flags & FLAG_FIRST))
        parsed = server.parse_reply(1, frame.to_bytes())
        server.confirm(1, parsed)
        server.acknowledge(1, parsed, summed=True)
    assert flags == [True, False, True, False]


@pytest.mark.parametrize("goes_back", ["node", "server"])
def test_whichever_side_goes_back_to_an_older_state_the_estimate_starts_from_zero(goes_back: str) -> None:
    """The server's sum and the node's estimate would differ by the increments in between."""
    server, node = publisher(), Subscriber()
    uplink, rng = "ef21(density=0.1)", np.random.default_rng(0)

    def once(server: Publisher, node: Subscriber) -> bool:
        """Let the node answer, and return whether its estimate starts from zero."""
        data = server.message_to(1, uplink, 0)[0].to_bytes()
        update = answer(node, data, 1, rng.standard_normal(N, np.float32))
        reply = server.parse_reply(1, update)
        assert reply.update is not None
        server.confirm(1, reply)
        server.acknowledge(1, reply, summed=True)
        return reply.update.first

    assert [once(server, node), once(server, node)] == [True, False]
    old_server, old_node = copy.deepcopy(server), copy.deepcopy(node)
    old_server.number = first_number()
    assert not once(server, node)
    assert not once(server, node)
    pair = (server, old_node) if goes_back == "node" else (old_server, node)
    assert once(*pair)
    assert not once(*pair)
