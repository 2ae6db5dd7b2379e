"""What a strategy may do to a tensor that no node of a round changed: move it on purpose, but not by rounding."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.flower.server.rounds.unchanged import keep_unchanged, unchanged_tensors
from fedcomp.flower.server.rounds.validated_reply import ValidatedReply
from fedcomp.quantized import Dense
from fedcomp.sync import Replica, Reply, Update, start_replica
from fedcomp.wire import Frame, Kind, layout_of
from fedcomp.wire.server_message import Ack

STEPS = 10_000_000
"""A counter whose next value differs from it by less than float32 tells apart."""


def published(**arrays: NDArray[Any]) -> Replica:
    return start_replica(layout_of(arrays), arrays)


def with_statistic(array: NDArray[Any]) -> Replica:
    """Return a model with a weight, and statistics of a normalization, which travel exactly."""
    return published(**{"weight": np.ones(1, np.float32), "norm.running_mean": array})


def exact_of(**arrays: NDArray[Any]) -> bytes:
    return published(**arrays).exact


def reply(exact: bytes, tensors: tuple[bool, ...] | None = ()) -> ValidatedReply:
    flags = None if tensors is None else np.array(tensors, np.bool_)
    update = Update(Dense(np.zeros(0, np.float32)), exact, 0, 0, tensors=flags)
    frame = Frame(Kind.UPDATE, 1, 0, 0, 1, 0, 0, 0, b"")
    message: Any = None  # it is not read
    return ValidatedReply(message, "arrays", Reply(frame, update, Ack(1, 0)))


def declined() -> ValidatedReply:
    """Return the reply of a node that has not trained."""
    return reply(b"").with_update(None)


def test_a_tensor_is_unchanged_if_all_replies_say_so() -> None:
    model = published(a=np.ones(2, np.float32), b=np.ones(2, np.float32))
    said = [reply(b"", (False, True)), reply(b"", (False, False))]
    assert unchanged_tensors(said, model).tolist() == [True, False]
    assert unchanged_tensors([*said, reply(b"", None)], model).tolist() == [False, False]
    assert unchanged_tensors([*said, declined()], model).tolist() == [True, False]
    assert unchanged_tensors([declined()], model).tolist() == [False, False]


def test_a_weight_is_kept_against_rounding_and_not_against_a_step() -> None:
    model = published(a=np.full(2, 3.0, np.float32), b=np.full(2, 3.0, np.float32))
    change = np.array([3e-7, 0, 3e-3, 0], np.float32)
    keep_unchanged(change, b"", np.array([True, True]), [], model)
    assert change.tolist() == np.array([0, 0, 3e-3, 0], np.float32).tolist()


def test_noise_outside_the_masks_is_taken_off() -> None:
    """The masks leave entries 0 and 1 free, and entry 2 in the next model."""
    masks = [np.packbits(np.array(bits, np.uint8)) for bits in ([1, 1, 0, 0], [1, 1, 1, 0])]
    weights = np.ones(4, np.float32)
    model = published(w=weights, w_mask=masks[0])
    change = np.ones(4, np.float32)
    exact = exact_of(w=weights, w_mask=masks[1])
    keep_unchanged(change, exact, np.array([False]), [reply(exact)], model)
    assert change.tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("old", "new", "is_kept"),
    [
        (np.array(STEPS), np.array(STEPS + 1), False),
        (np.array([1 << 60]), np.array([(1 << 60) + 64]), True),  # int64 through float64
        (np.array(1 / 3), np.array(np.float32(1 / 3), np.float64), True),  # float64 through float32
        (np.array(1 / 3), np.array(0.334), False),
        (np.array([True]), np.array([False]), False),
    ],
)
def test_an_exact_tensor_is_kept_against_rounding_and_not_against_a_step(
    old: NDArray[Any], new: NDArray[Any], is_kept: bool
) -> None:
    model, after = with_statistic(old), with_statistic(new).exact
    found = keep_unchanged(np.zeros(1, np.float32), after, np.array([True]), [reply(model.exact)] * 2, model)
    assert found == (model.exact if is_kept else after)


def test_an_exact_tensor_that_a_reply_changed_is_the_strategys() -> None:
    """Even by a last bit: it is a value that a node gave it."""
    old, new = np.array(1 / 3), np.nextafter(1 / 3, 1)
    model, after = with_statistic(old), with_statistic(np.array(new)).exact
    replies = [reply(model.exact), reply(after)]
    assert keep_unchanged(np.zeros(1, np.float32), after, np.array([True]), replies, model) == after


def test_a_reply_without_a_model_says_nothing_of_an_exact_tensor() -> None:
    old, new = np.array(1 / 3), np.nextafter(1 / 3, 1)
    model, after = with_statistic(old), with_statistic(np.array(new)).exact
    for replies, expected in (([declined()], after), ([declined(), reply(model.exact)], model.exact)):
        assert keep_unchanged(np.zeros(1, np.float32), after, np.array([True]), replies, model) == expected


def test_exact_tensors_that_rounding_alone_changed_are_the_published_object() -> None:
    """All versions then share its memory."""
    model = with_statistic(np.array([1 / 3, 3], np.float32))
    rounded = exact_of(weight=np.ones(1, np.float32), **{"norm.running_mean": np.array([1 / 3 + 3e-8, 3], np.float32)})
    change = np.zeros(1, np.float32)
    for exact in (rounded, bytes(bytearray(model.exact))):
        kept = keep_unchanged(change, exact, np.array([False]), [reply(model.exact, (False,))], model)
        assert kept is model.exact
    assert rounded != model.exact
