"""Bodies of some tensors: their bytes by hand, equal bits for what they hold, and nothing lost as tensors come and go."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import fedcomp
from fedcomp.core import Vector
from fedcomp.errors import CorruptError, FedcompError, NonFiniteError, TruncatedError
from fedcomp.quantized import Dense, InRanges, Ranges, Sparse
from fedcomp.sync import Publisher, Subscriber
from fedcomp.sync.encoding import encode_change
from fedcomp.sync.replica import start_replica
from fedcomp.wire import SOME_TENSORS, Selection, changed_tensors, decode_body, tensors_in
from fedcomp.wire.layout import Layout, layout_of
from fedcomp.wire.server_message import parse_server_message

SHAPES = {"a": (4, 2), "empty": (0, 3), "b": (3,), "c": (), "d": (3, 2)}
LAYOUT = layout_of({name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()})
N = LAYOUT.n  # 8 + 3 + 1 + 6 entries
WITH_RESIDUAL = [
    "stc(density=0.2)",
    "topk(density=0.2, values='fp16')",
    "doublesqueeze()",
    "efsign()",
    "powersgd(rank=1)",
]


def encoded(text: str, change: Vector, state: dict[str, Any] | None = None) -> tuple[int, bytes, dict[str, Any]]:
    return encode_change(fedcomp.parse(text), change, state or {}, LAYOUT, model=np.ones(N, np.float32), seed=3)


def change_in(*names: str, size: float = 1.0) -> Vector:
    """Return ones in these tensors, and zeros elsewhere."""
    change = np.zeros(N, np.float32)
    for tensor, part in LAYOUT.parts:
        change[part] = size * (tensor.name in names)
    return change


def test_the_bytes_by_hand() -> None:
    """Of a, b, c and d, those that changed are b and d: 0101 and four bits of nothing; then codec 1 and nine floats."""
    codec, body, _ = encoded("dense()", change_in("b", "d"))
    assert codec == SOME_TENSORS
    assert body[0] == 0b01010000
    code, rest = body[1], body[2:]
    assert fedcomp.dense().decode(rest, n=9).tolist() == [1] * 9
    assert code == 1
    assert tensors_in(codec, body, LAYOUT).tolist() == [False, True, False, True]
    assert decode_body(codec, body, LAYOUT).dense().tolist() == change_in("b", "d").tolist()


def test_a_change_of_all_tensors_has_the_bytes_of_the_compressor() -> None:
    change = np.arange(1, N + 1, dtype=np.float32)
    stc = fedcomp.stc(density=0.5, order="interleaved")
    codec, body, _ = encode_change(stc, change, {}, LAYOUT, model=change)
    assert (codec, body) == (3, stc.encode(change, stc.init(N))[0])


@pytest.mark.parametrize("of", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize("value", [1.0, -1e-45, np.nan])
def test_one_entry_of_one_vector_makes_a_tensor_a_changed_one(of: Callable[[Vector], Any], value: float) -> None:
    """The first one, the last one, or any between; the sign of a zero is no change."""
    for entry in range(N):
        vectors = np.full((2, N), -0.0, np.float32)
        vectors[entry % 2, entry] = value
        expected = [part.start <= entry < part.stop for _, part in LAYOUT.filled]
        assert changed_tensors(LAYOUT, [of(each) for each in vectors]).tolist() == expected


def test_no_change_has_no_body() -> None:
    codec, body, state = encoded("stc()", np.zeros(N, np.float32))
    assert (codec, body) == (SOME_TENSORS, b"\x00")
    assert not decode_body(codec, body, LAYOUT).dense().any()
    assert not state["residual"].any()


@pytest.mark.parametrize(
    "entries", [Dense(np.arange(1, 7, dtype=np.float32)), Sparse(6, np.array([0, 2, 5]), np.ones(3, np.float32))]
)
@pytest.mark.parametrize("n", [8, 40])
def test_adding_a_vector_in_ranges_leaves_all_bits_outside(entries: Any, n: int) -> None:
    vector = InRanges(n, Ranges((slice(1, 3), slice(4, 8))), entries)
    inside = np.zeros(n, np.bool_)
    inside[[1, 2, 4, 5, 6, 7]] = True
    whole = np.zeros(n, np.float32)
    whole[inside] = entries.dense()
    weights = np.full(n, -0.0, np.float32)
    added, summed = weights + vector.dense(), weights.copy()
    vector.add_to(summed)
    wide = np.zeros(n)
    vector.add_to(wide, 0.1)
    np.testing.assert_array_equal(wide, 0.1 * whole.astype(np.float64))
    for found in (added, summed):
        np.testing.assert_array_equal(found, whole)
        assert np.signbit(found[~inside]).all()
    sparse = vector.sparse()
    assert (sparse is None) == (n == 8 and isinstance(entries, Dense))
    assert sparse is None or np.array_equal(sparse.dense(), whole)


def ones(n: int) -> bytes:
    """Return the body of a dense vector of ones."""
    return fedcomp.dense().encode(np.ones(n, np.float32), {})[0]


def test_the_body_that_damage_starts_from_is_whole() -> None:
    assert decode_body(SOME_TENSORS, b"\x50\x01" + ones(9), LAYOUT).dense().sum() == 9


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", TruncatedError),
        (b"\xf0\x01" + ones(N), CorruptError),  # all four tensors
        (b"\x51\x01" + ones(9), CorruptError),  # a fifth tensor
        (b"\x00\x01", CorruptError),  # a body of no tensors
        (b"\x50", TruncatedError),  # no codec
        (b"\x50\x00", FedcompError),  # the codec of no body
        (bytes([0x50, SOME_TENSORS, 0x50]), FedcompError),  # tensors of some tensors
        (b"\x50\x01" + bytes(36 + 5), FedcompError),  # longer than nine entries
    ],
)
def test_damaged_bodies_are_refused(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode_body(SOME_TENSORS, body, LAYOUT)


def test_an_error_names_the_tensor_and_the_entry_of_the_whole_vector() -> None:
    change = change_in("b")
    change[9] = np.nan
    with pytest.raises(NonFiniteError, match="'b'") as caught:
        encoded("stc()", change)
    assert caught.value.index == 9


def test_a_message_of_an_estimate_holds_all_tensors_where_none_has_changed() -> None:
    """Its receiver counts each message of EF21, which adds what is left of the last one."""
    codec, body, _ = encoded("ef21(density=0.5)", np.zeros(N, np.float32))
    assert tensors_in(codec, body, LAYOUT).all()


@pytest.mark.parametrize("text", WITH_RESIDUAL[:-1])
def test_a_residual_keeps_its_tensor_in_the_body_until_nothing_is_left(text: str) -> None:
    _, _, state = encoded(text, change_in("a", "b") * np.linspace(0.1, 3, N, dtype=np.float32))
    assert changed_tensors(LAYOUT, [state["residual"]]).tolist() == [True, True, False, False]
    codec, body, _ = encoded(text, change_in("d"), state)
    assert tensors_in(codec, body, LAYOUT).tolist() == [True, True, False, True]


@pytest.mark.parametrize("text", WITH_RESIDUAL)
def test_sent_and_kept_are_what_was_asked_while_tensors_come_and_go_and_replies_are_lost(text: str) -> None:
    rng = np.random.default_rng(7)
    model = {name: rng.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}
    server, node = Publisher.begin(start_replica(LAYOUT, model)), Subscriber()
    asked, taken, count = np.zeros(N), np.zeros(N), 0
    for turn in range(40):
        message, frames = parse_server_message(server.message_to(1, text, turn)[0].to_bytes())
        node.settle(message.acked, 1)
        node.follow(message, frames)
        change: Vector = change_in(*rng.choice(["a", "b", "c", "d"], rng.integers(0, 4)))
        change *= rng.standard_normal(N, np.float32)
        held = node.held
        moved: Vector = held.vector + change
        reply = node.update(node.learned(held.layout.unflatten(moved, held.exact)), message, 1, 0)
        asked += moved.astype(np.float64) - held.vector
        if rng.random() < 0.6:
            parsed = server.parse_reply(1, reply)
            assert parsed.update is not None
            server.confirm(1, parsed)
            server.publish(parsed.update.change.dense() + np.float32(0), b"", fedcomp.dense(), turn)
            server.acknowledge(1, parsed, summed=False)
            parsed.update.change.add_to(taken)
            count += 1
    node.settle(server.nodes[1].acked, 1)
    assert 10 < count < 35
    np.testing.assert_allclose(taken + node.memory["residual"], asked, atol=2e-4)


@pytest.mark.parametrize("text", ["regtopk(density=0.3, mu=5)", "powersgd(rank=1)"])
def test_what_a_memory_knows_of_its_last_message_counts_where_the_same_tensors_are_sent(text: str) -> None:
    """Two rounds of the last tensor alone have its bytes as a whole model; with other tensors the message is forgotten."""
    compressor, rng = fedcomp.parse(text), np.random.default_rng(3)
    part = LAYOUT.parts[-1][1]
    models = rng.standard_normal((2, N), np.float32)
    changes = [change_in("d") * rng.standard_normal(N, np.float32) for _ in models]

    def sent(change: Vector, state: dict[str, Any], turn: int) -> tuple[bytes, dict[str, Any]]:
        given: dict[str, Any] = {"seed": 3, "server_round": turn, "model": models[turn]}
        return encode_change(compressor, change, state, LAYOUT, **given)[1:]

    state, alone = dict[str, Any](), compressor.init(6)
    for turn, change in enumerate(changes):
        body, state = sent(change, state, turn)
        given: dict[str, Any] = {"seed": 3, "server_round": turn, "model": models[turn][part], "shapes": ((3, 2),)}
        expected, alone = compressor.encode(change[part], alone, **given)
        assert body[2:] == expected
        np.testing.assert_array_equal(state["residual"][part], alone["residual"])

    def last(*before: Vector) -> bytes:
        state = dict[str, Any]()
        for change in before:
            _, state = sent(change, state, 0)
            state |= {"residual": np.zeros(N, np.float32)}
        return sent(changes[1], state, 1)[0]

    assert last(changes[0]) != last()
    assert last(change_in("a", "d") * rng.standard_normal(N, np.float32)) == last()
    assert last(changes[0], change_in()) == last(), "a message of no tensors is one of others"


def test_what_a_lost_message_of_some_tensors_masked_returns_to_its_own_entries() -> None:
    """DGC of ones in d, the last tensor: the velocity of what is sent is masked, and comes back if the message is lost."""
    dgc = fedcomp.parse("dgc(density=0.5, momentum=0.5, warmup=0)")
    change = change_in("d") * np.arange(N, dtype=np.float32)
    codec, body, state = encoded(str(dgc), change.astype(np.float32))
    assert np.flatnonzero(state["velocity"]).tolist() == [12, 13, 14]
    back = dgc.memory.rollback(decode_body(codec, body, LAYOUT), state)
    np.testing.assert_array_equal(back["velocity"], change)
    np.testing.assert_array_equal(back["unsent_velocity"], change)


def test_a_lost_message_of_no_tensors_returns_nothing() -> None:
    """It is not the one before, whose velocity DGC masked, and which has arrived."""
    dgc = fedcomp.parse("dgc(density=0.5, momentum=0.5, warmup=0)")
    change = np.zeros(N, np.float32)
    change[[12, 14, 16]] = 1, 2, 3
    _, _, state = encoded(str(dgc), change)
    codec, body, state = encoded(str(dgc), np.zeros(N, np.float32), state)
    assert body == b"\x00"
    back = dgc.memory.rollback(decode_body(codec, body, LAYOUT), state)
    assert not back["velocity"].any()
    assert not back["unsent_velocity"].any()


def layout_with_mask() -> tuple[Layout, NDArray[np.uint8]]:
    mask = np.packbits([1, 0, 1, 0, 1, 0, 0, 0])
    arrays: dict[str, NDArray[Any]] = {"w": np.zeros(8, np.float32), "v": np.zeros(3, np.float32), "w_mask": mask}
    return layout_of(arrays), mask


def test_inside_a_mask_only_selected_tensors_are_sent() -> None:
    layout, mask = layout_with_mask()
    changeable = layout.changeable(mask.tobytes())
    assert Selection(layout, np.array([True, False]), changeable).indices is not None
    for names, expected in (("w", [0, 2, 4]), ("v", [8, 9, 10]), ("", [])):
        change = np.zeros(11, np.float32)
        for tensor, part in layout.parts:
            change[part] = tensor.name == names
        codec, body, _ = encode_change(fedcomp.dense(), change, {}, layout, changeable, model=change)
        found = decode_body(codec, body, layout, changeable).dense()
        assert np.flatnonzero(found).tolist() == expected


def test_a_tensor_that_a_mask_fixes_whole_has_no_shape() -> None:
    layout, _ = layout_with_mask()
    selection = Selection(layout, np.array([True, True]), layout.changeable(b"\x00"))
    assert (selection.n, selection.shapes) == (3, ((3,),))


def test_a_change_outside_the_mask_alone_has_no_body() -> None:
    layout, mask = layout_with_mask()
    change = np.zeros(11, np.float32)
    change[1] = 1
    changeable = layout.changeable(mask.tobytes())
    codec, body, _ = encode_change(fedcomp.eden(bits=1), change, {}, layout, changeable, model=change)
    assert not decode_body(codec, body, layout, changeable).dense().any()
