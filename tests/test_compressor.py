"""Compressors: vectors to bodies and back, what is refused, and that a refusal leaves the state as it was."""

import copy
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedcomp
from fedcomp.core import BLOCK_ENTRIES
from fedcomp.entropy import MAX_ENTRIES, write_varint
from fedcomp.errors import CorruptError, FedcompError
from fedcomp.memory import State
from fedcomp.methods import METHODS
from tests.entropy.laws import check_cheap_refusals
from tests.reference import slow_stc

COMPRESSORS = [fedcomp.dense(), fedcomp.stc(0.01), fedcomp.stc(0.1, order="interleaved"), fedcomp.stc(1.0)]
compressors = pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)


def bits(state: State) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in state.items()}


def test_the_readme_in_five_lines() -> None:
    c = fedcomp.stc(density=1 / 400)
    update = np.random.default_rng(0).standard_normal(10_000, np.float32)
    body, state = c.encode(update, c.init(10_000), seed=7)
    vector = c.decode(body)
    assert np.allclose(vector, slow_stc(update, 1 / 400), rtol=1e-6)
    assert len(body) < 40_000 / 600
    assert np.array_equal(vector + state["residual"], update)


def test_an_stc_of_another_density_decodes_the_same_vector() -> None:
    update = np.random.default_rng(2).standard_normal(500, np.float32)
    body, _ = fedcomp.stc(0.1).encode(update, fedcomp.stc(0.1).init(500))
    assert fedcomp.stc(0.5).decode(body).tobytes() == fedcomp.stc(0.1).decode(body).tobytes()


def test_dense_sends_every_bit_and_four_bytes_an_entry() -> None:
    update = np.array([1, -0.0, 1e-45, 3e38], np.float32)
    body, state = fedcomp.dense().encode(update, fedcomp.dense().init(4))
    assert (body, state) == (update.tobytes(), {})


@compressors
@pytest.mark.parametrize(
    "update",
    [
        np.ones(4, np.float64),
        np.ones(4, np.float16),
        np.ones(4, np.int64),
        np.ones(4, np.bool_),
        np.ones(4, ">f4"),
        np.ones((4, 1), np.float32),
        np.ones((1, 4), np.float32),
        np.float32(1),
        np.ones((), np.float32),
        np.ones(0, np.float32),
        np.ma.MaskedArray(np.ones(4, np.float32), [True, False, False, False]),
        [1.0, 2.0, 3.0, 4.0],
        None,
        "text",
    ],
    ids=repr,
)
def test_an_update_that_is_no_dense_float32_vector_is_refused_and_the_state_is_as_it_was(
    compressor: fedcomp.Compressor, update: Any
) -> None:
    _, state = compressor.encode(np.array([1, 2, 3, 4], np.float32), compressor.init(4))
    before = bits(state)
    with pytest.raises(ValueError, match="^an update of "):
        compressor.encode(update, state)
    assert bits(state) == before


@pytest.mark.parametrize("n", [1, 3, 5, 8])
def test_a_state_of_another_length_is_refused(n: int) -> None:
    compressor = fedcomp.stc()
    with pytest.raises(ValueError, match=rf"{n} entries.*\(4,\)"):
        compressor.encode(np.ones(n, np.float32), compressor.init(4))


def test_a_vector_too_long_to_encode_is_refused() -> None:
    update = np.broadcast_to(np.float32(0), (MAX_ENTRIES + 1,))
    with pytest.raises(ValueError, match="2147483649 .* 2147483648"):
        fedcomp.dense().encode(update, {})


@compressors
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_entry_that_is_not_finite_is_refused_and_the_state_is_as_it_was(
    compressor: fedcomp.Compressor, bad: float
) -> None:
    for n in (1, 100, 5 * BLOCK_ENTRIES):
        rng = np.random.default_rng(n)
        _, state = compressor.encode(rng.standard_normal(n, np.float32), compressor.init(n))
        before = bits(state)
        for place in (0, n // 2, n - 1):
            update = rng.standard_normal(n, np.float32)
            update[place] = bad
            with pytest.raises(ValueError, match=f"entry {place} is {bad}"):
                compressor.encode(update, state)
        assert bits(state) == before


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        fedcomp.stc().name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"seed": -1}, "seed is -1.* 0 to 18446744073709551615"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"server_round": -5}, "server_round is -5.* 0 to 9223372036854775807"),
        ({"server_round": 2**63}, "server_round is 9223372036854775808"),
        ({"server_round": "x"}, "server_round is 'x'"),
        ({"server_round": 1.0}, "server_round is 1.0"),
        ({"estimate_epoch": -1}, "estimate_epoch is -1"),
        ({"model": np.zeros(3, np.float32)}, r"float32 \(3,\).*\(50,\)"),
        ({"model": np.zeros(50)}, "float64"),
        ({"shapes": ((7, 7),)}, "49 .* 50"),
    ],
)
@pytest.mark.parametrize("text", ["topk(values='natural')", "regtopk", "dgc", "ef21(values='natural')", "randk"])
def test_an_argument_out_of_range_is_refused_and_the_state_is_as_it_was(
    text: str, context: dict[str, Any], message: str
) -> None:
    compressor = fedcomp.parse(text)
    update = np.ones(50, np.float32)
    _, state = compressor.encode(update, compressor.init(50))
    before = bits(state)
    with pytest.raises(ValueError, match=message):
        compressor.encode(update, state, **context)
    assert bits(state) == before


MANY = 70_000
"""Tensors: more than the 65,536 that a body of levels describes."""


@pytest.mark.sample(1)
@pytest.mark.parametrize("text", ["efsign", "onebit", "doublesqueeze"])
def test_more_tensors_than_can_be_encoded_are_refused_and_the_state_is_as_it_was(text: str) -> None:
    compressor = fedcomp.parse(text)
    shapes = ((1, 1),) * MANY
    update = np.random.default_rng(0).standard_normal(MANY, np.float32)
    _, state = compressor.encode(update, compressor.init(MANY))
    before = bits(state)
    with pytest.raises(ValueError, match="70000 .* 65536"):
        compressor.encode(update, state, shapes=shapes)
    assert bits(state) == before


def test_a_method_that_ignores_tensors_takes_any_number_of_them() -> None:
    update = np.random.default_rng(0).standard_normal(MANY, np.float32)
    compressor = fedcomp.stc(0.01)
    plain, tensors = (
        compressor.encode(update, compressor.init(MANY), shapes=shapes) for shapes in ((), ((1,),) * MANY)
    )
    assert tensors[0] == plain[0]
    assert bits(tensors[1]) == bits(plain[1])


@pytest.mark.parametrize("n", [0, -3, 2.5, MAX_ENTRIES + 1])
def test_the_error_of_no_vector_has_no_bound(n: Any) -> None:
    with pytest.raises(ValueError, match=f"n is {n}; .* 1 to {MAX_ENTRIES}"):
        fedcomp.efsign().error_bound(n)


def test_a_state_of_another_length_is_not_selected() -> None:
    compressor = fedcomp.parse("topk")
    state = {"residual": np.ones(7, np.float32), "velocity": np.ones(9, np.float32)}
    assert compressor.select(state, 7)["residual"].tolist() == [1] * 7
    assert compressor.select(state, 8)["residual"].tolist() == [0] * 8
    assert set(compressor.select(state, 8)) == {"residual"}


@pytest.mark.parametrize("mapped", [False, True], ids=["an array", "mapped from a file"])
@pytest.mark.parametrize("on_torch", [False, True], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    "text",
    [
        "topk(density=0.1)",
        "qsgd(levels=15, feedback=True)",
        "dgc",
        "ef21",
        "sparseloco",
        "regtopk",
        "ecqsgd",
        "powersgd",
    ],
)
def test_a_read_only_state_gives_the_same_bodies_and_is_not_changed(
    text: str, on_torch: bool, mapped: bool, tmp_path: Path
) -> None:
    torch: Any = pytest.importorskip("torch") if on_torch else None
    compressor, n = fedcomp.parse(text), 1000
    first, second = np.random.default_rng(0).standard_normal((2, n), np.float32)
    _, state = compressor.encode(first, compressor.init(n), seed=1)
    fixed: dict[str, np.ndarray[Any, Any]] = {}
    for name, array in state.items():
        np.save(tmp_path / f"{name}.npy", array)
        fixed[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r" if mapped and array.size else None)
        fixed[name].flags.writeable = False
    before = bits(fixed)
    update: Any = torch.from_numpy(second) if on_torch else second
    body, later = compressor.encode(update, dict(fixed), seed=2)
    assert bits(fixed) == before
    sent = compressor.entropy.decode(body, n=n)
    undone = compressor.memory.rollback(sent, dict(fixed))
    assert bits(fixed) == before
    expected, after = compressor.encode(second, copy.deepcopy(state), seed=2)
    assert body == expected
    assert bits({name: np.asarray(array) for name, array in later.items()}) == bits(after)
    assert bits(undone) == bits(compressor.memory.rollback(sent, copy.deepcopy(state)))


@pytest.mark.parametrize("body", ["abc", None, 7, [1, 2], np.zeros(3, np.uint8)])
def test_a_body_that_is_not_bytes_is_refused_as_one_that_is_damaged(body: object) -> None:
    for name in ("dense()", "stc()", "eden(bits=1)"):
        with pytest.raises(FedcompError, match=f"{type(body).__name__}; bytes are needed"):
            fedcomp.parse(name).decode(body)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["stc", "topk", "ef21", "terngrad", "ternary", "eden(bits=1e-6)"])
def test_without_n_a_body_may_claim_a_million_entries_or_a_thousand_for_each_of_its_bytes(text: str) -> None:
    compressor = fedcomp.parse(text)
    for n in (2**20, 2**21):
        update = np.zeros(n, np.float32)
        update[n // 2] = 1
        body, _ = compressor.encode(update, compressor.init(n), shapes=((n,),))
        assert compressor.decode(body, n=n).size == n
        if n > max(2**20, 1024 * len(body)):
            with pytest.raises(CorruptError, match=f"{n} entries in {len(body)} bytes; decode it with n={n} "):
                compressor.decode(body)
        else:
            assert np.array_equal(compressor.decode(body), compressor.decode(body, n=n))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_few_bytes_that_claim_two_thousand_million_entries_take_no_memory(name: str) -> None:
    begin, compressor = write_varint(MAX_ENTRIES), METHODS[name]()
    rotated = begin + struct.pack("<Qff", 1, 2.0**-126, 1.0) + b"\0"  # one level of a rotated vector
    bodies = [begin + b"\0", begin + write_varint(1) + b"\1\1\1" + bytes(8), rotated]
    check_cheap_refusals(compressor.decode, bodies)


def test_other_buffers_of_bytes_decode_as_bytes_do() -> None:
    stc = fedcomp.stc(density=0.5)
    body, _ = stc.encode(np.arange(6, dtype=np.float32), stc.init(6))
    for buffer in (bytearray(body), memoryview(body)):
        np.testing.assert_array_equal(stc.decode(buffer), stc.decode(body))  # type: ignore[arg-type]
