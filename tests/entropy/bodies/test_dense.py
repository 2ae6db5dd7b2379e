"""Codecs 1 and 7: all entries."""

import math
import struct
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.entropy import MAX_ENTRIES, LevelsCode, Raw
from fedcomp.entropy.bits.byte_reader import write_varint
from fedcomp.errors import CorruptError, FedcompError
from fedcomp.quantized import EXPONENTS, LINEAR, POWERS, Dense, Groups, Levels, Scale, group_count
from tests.entropy.laws import check_cheap_refusals, check_round_trip, same
from tests.entropy.slow_symbols import slow_levels

CODE = LevelsCode()
QUARTERS = "08 00 05 04 00000040 0000803f 00 03 e0 0640"


def test_an_entry_is_four_bytes_the_low_one_first() -> None:
    assert Raw().encode(Dense(np.array([1, -2], np.float32))).hex() == "0000803f000000c0"


def test_every_finite_vector_comes_back_to_the_bit_and_may_be_written() -> None:
    words = np.random.default_rng(0).integers(0, 2**32, 1000, dtype=np.uint32)
    vector = np.where(words & 0x7F800000 == 0x7F800000, words & 0xFF, words).astype(np.uint32).view(np.float32)
    found = Raw().decode(Raw().encode(Dense(vector)), n=1000).vector
    assert found.tobytes() == vector.tobytes()
    assert found.flags.writeable


@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_a_length_that_is_no_multiple_of_four_is_refused(size: int) -> None:
    with pytest.raises(CorruptError, match=f"{size} bytes; .* 4"):
        Raw().decode(bytes(size))


@pytest.mark.parametrize("n", [0, 1, 3, 2**31])
def test_another_length_than_needed_is_refused(n: int) -> None:
    with pytest.raises(CorruptError, match=f"8 bytes; {4 * n} for {n}"):
        Raw().decode(bytes(8), n=n)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_refused(bad: float) -> None:
    with pytest.raises(CorruptError, match="NaN or infinity"):
        Raw().decode(struct.pack("<3f", 0, 1, bad))


def levels_of(
    levels: NDArray[Any], scale: Scale, groups: Groups = 512, *, shifted: bool = False, seed: int = 0
) -> Levels:
    rng = np.random.default_rng(seed)
    count = group_count(levels.size, groups)
    offsets = rng.standard_normal(count, np.float32) if shifted else None
    scales = np.ones(count, np.float32) if scale.kind == EXPONENTS else rng.uniform(0, 3, count).astype(np.float32)
    return Levels(levels, scale, scales, offsets, groups)


def exponents(n: int) -> NDArray[np.uint16]:
    """Return the levels of Gaussian values rounded down to powers of two."""
    values = np.random.default_rng(n).standard_normal(n)
    signed: NDArray[np.float64] = np.sign(values) * (np.frexp(values)[1] + 126)
    return (254 + signed).astype(np.uint16)


def few(n: int, k: int, count: int, seed: int = 0) -> NDArray[Any]:
    """Return levels of which k are not the middle one, those near it more often."""
    rng = np.random.default_rng([seed, n, k])
    levels = np.full(n, count // 2, np.uint8 if count <= 256 else np.uint16)
    steps = np.minimum(rng.geometric(0.4, k), count // 2) * rng.choice([-1, 1], k)
    levels[rng.choice(n, k, replace=False)] = count // 2 + steps
    return levels


def draw(n: int) -> dict[str, Levels]:
    rng = np.random.default_rng(n)
    bell = np.clip(np.rint(rng.standard_normal(n) * 2) + 7, 0, 14).astype(np.uint8)
    sizes = (n // 3, n - n // 3) if n > 2 else (n,)
    return {
        "QSGD of 4 bits": levels_of(bell, Scale(LINEAR, 15)),
        "QSGD of 255 levels": levels_of(rng.integers(0, 511, n).astype(np.uint16), Scale(LINEAR, 511)),
        "TernGrad": levels_of(few(n, n // 8, 3), Scale(LINEAR, 3), sizes),
        "max-min": levels_of(rng.integers(0, 16, n).astype(np.uint8), Scale(LINEAR, 16), 1024, shifted=True),
        "signs": levels_of(rng.integers(0, 2, n).astype(np.uint8), Scale(LINEAR, 2), n, shifted=True),
        "natural dithering": levels_of(few(n, n // 3, 17), Scale(POWERS, 17), 128),
        "natural compression": levels_of(exponents(n), Scale(EXPONENTS, 509), (n,)),
        "nearly all zero": levels_of(few(n, max(1, n // 2000), 15), Scale(LINEAR, 15), n),
        "all zero": levels_of(np.full(n, 4, np.uint8), Scale(LINEAR, 9), sizes),
        "buckets of one": levels_of(bell, Scale(LINEAR, 15), 1),
    }


kinds = pytest.mark.parametrize("kind", list(draw(3)))


# ---- by hand ---------------------------------------------------------------------------------------------------------


def test_the_body_is_the_one_written_by_hand() -> None:
    # n = 8, LINEAR, 5 levels, buckets of 4; scales 2 and 1; at fixed width the levels 0, 1, 2: 0 0 1 2 | 1 0 0 0
    body = bytes.fromhex(QUARTERS)
    value = Levels(
        np.array([0, 0, 1, 2, 1, 0, 0, 0], np.uint8), Scale(LINEAR, 5), np.array([2, 1], np.float32), None, 4
    )
    assert same(CODE.decode(body), value)
    assert value.dense().tolist() == [-2, -2, -1, 0, -0.5, -1, -1, -1]
    assert CODE.encode(value) == body


def test_tensors_and_offsets_are_written_by_hand() -> None:
    value = Levels(
        np.array([1, 0, 1], np.uint8),
        Scale(LINEAR, 2),
        np.array([1, 2], np.float32),
        np.array([0.5, -2], np.float32),
        (1, 2),
    )
    body = bytes.fromhex("03 0c 02 02 01 02 0000803f 00000040 0000003f 000000c0 00 02 a0")
    assert CODE.encode(value) == body
    assert same(CODE.decode(body, 3), value)
    assert value.dense().tolist() == [1.5, -4, 0]


# ---- the law ---------------------------------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("n", [1, 2, 31, 1000, 100_003])
def test_levels_come_back_to_the_bit(kind: str, n: int) -> None:
    value = draw(n)[kind]
    assert CODE.encode(value) == check_round_trip(CODE, value)


@kinds
@pytest.mark.parametrize("n", [2, 999])
def test_an_independent_decoder_finds_the_same_levels(kind: str, n: int) -> None:
    value = draw(n)[kind]
    levels, scales, offsets, sizes = slow_levels(CODE.encode(value))
    assert levels == value.levels.tolist()
    assert scales == value.scales.tolist()
    assert offsets == ([] if value.offsets is None else value.offsets.tolist())
    assert len(sizes) == len(scales)
    assert sum(sizes) == n


def entropy_bits(levels: NDArray[Any]) -> float:
    counts = np.bincount(levels)
    counts = counts[counts > 0]
    return float(counts @ np.log2(levels.size / counts))


def test_bodies_are_as_small_as_the_best_code() -> None:
    n, rng = 1_000_000, np.random.default_rng(0)
    head = 20

    def size(levels: NDArray[Any], scale: Scale) -> int:
        return len(CODE.encode(levels_of(levels, scale, (n,))))

    assert size(rng.integers(0, 16, n).astype(np.uint8), Scale(LINEAR, 16)) <= n // 2 + head
    assert size(rng.integers(0, 2, n).astype(np.uint8), Scale(LINEAR, 2)) <= n // 8 + head
    assert size(2 * rng.integers(0, 2, n).astype(np.uint8), Scale(LINEAR, 3)) <= n // 8 + head
    assert size(rng.integers(0, 3, n).astype(np.uint8), Scale(LINEAR, 3)) <= n // 5 + head
    tenth = few(n, n // 10, 3)
    assert 8 * size(tenth, Scale(LINEAR, 3)) <= 1.03 * entropy_bits(tenth)
    powers = exponents(n)
    assert 8 * size(powers, Scale(EXPONENTS, 509)) <= 1.02 * entropy_bits(powers)


def test_a_vector_of_no_entries_or_too_many_is_refused() -> None:
    with pytest.raises(ValueError, match="0 entries; 1 to 2147483648"):
        CODE.encode(levels_of(np.empty(0, np.uint8), Scale(LINEAR, 3)))


# ---- damage ----------------------------------------------------------------------------------------------------------


def changed(old: str, new: str) -> str:
    assert old in QUARTERS
    return QUARTERS.replace(old, new, 1)


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("", "0 bytes .* 1"),
        ("00 00 05 04", "0 entries; at least 1"),
        ("8180808008 00 05 04", "2147483649 entries; .* 2147483648"),
        ("08", "0 bytes .* 1"),
        ("08 03 05 04", "kind 3 with flags 0"),
        ("08 10 05 04", "kind 0 with flags 16"),
        ("08 00 01 04", "1 levels of kind 0; 2 to 511"),
        ("08 00 8004 04", "512 levels of kind 0; 2 to 511"),
        ("08 01 04 04", "4 levels of kind 1; 3 to 255"),
        ("08 01 8102 04", "257 levels of kind 1; 3 to 255"),
        ("08 02 05 04", "5 levels of kind 2; 509 to 509"),
        ("08 00 05 00", "0 entries; 1 to 2147483648"),
        ("08 00 05 8180808008", "2147483649 entries; 1 to 2147483648"),
        ("08 08 05 00", "0 tensors in 0 bytes; 1 to 65536"),
        ("08 08 05 04 02", "4 tensors in 1 bytes; 1 to 65536"),
        ("08 08 05 02 04 05", "4 entries or more, 9 in all; .* 8"),
        ("08 08 05 03 04 00 04", "0 entries or more, 8 in all; .* 8"),
        ("08 00 05 04 00000040", "4 bytes .* 8"),
        ("08 04 05 04 00000040 0000803f", "0 bytes .* 8"),
        (changed("0000803f", "000080bf"), "negative or not finite"),
        (changed("0000803f", "00000080"), "negative or not finite"),
        (changed("0000803f", "0000807f"), "negative or not finite"),
        (changed("0000803f", "0000c07f"), "negative or not finite"),
        ("01 04 05 01 ffff7f7f ffff7f7f 00 01 80", "not finite"),
        ("01 04 05 01 0000803f 0000c07f 00 01 80", "not finite"),
        ("01 04 05 01 0000803f 000080ff 00 01 80", "not finite"),
        ("01 02 fd03 01 00000040 00 01 00 00", "not finite"),
        (changed(" 00 03", " 01 03"), "mode 1; .* 0, 2, 3"),
        (changed(" 00 03", " 04 03"), "mode 4; .* 0, 2, 3"),
        (changed(" 00 03", " 10 03"), "mode 16; .* 0, 2, 3"),
        (QUARTERS + "00", "1 bytes"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused(body: str, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        CODE.decode(bytes.fromhex(body))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("offset", ["0100807f", "0100a0ff", "0000c07f", "0000807f"])
def test_an_offset_that_is_no_number_is_refused_without_a_warning(offset: str) -> None:
    with pytest.raises(CorruptError, match="not finite"):
        CODE.decode(bytes.fromhex("01 04 05 01 0000803f" + offset + "00 01 80"))


def test_a_few_bytes_stand_for_many_equal_levels_only_if_n_is_known() -> None:
    n = (1 << 20) + 1
    body = CODE.encode(levels_of(np.ones(n, np.uint8), Scale(LINEAR, 3), (n,)))
    assert len(body) < 20
    assert CODE.decode(body, n=n).n == n
    with pytest.raises(CorruptError, match=f"{n} entries in {len(body)} bytes"):
        CODE.decode(body)
    fewer = CODE.encode(levels_of(np.ones(n - 1, np.uint8), Scale(LINEAR, 3), (n - 1,)))
    assert CODE.decode(fewer).n == n - 1


def test_bodies_that_claim_two_thousand_million_entries_cost_nothing() -> None:
    many = write_varint(MAX_ENTRIES)
    few = ["00 03 01 " + "00" * 60, "08 03 02 01 ffffffff07 " + "00" * 20]
    one_bucket = "00 ff01 8080808008 0000803f"
    streams = [one_bucket + rest for rest in ("00 ff01", "02 03 01 1220 08 8080808008", "03 01 80 40 01")]
    check_cheap_refusals(lambda body: CODE.decode(body, MAX_ENTRIES), [many + bytes.fromhex(x) for x in few + streams])
    equal_levels = "00 03 8080808008 0000803f 00 01 80"
    check_cheap_refusals(CODE.decode, [many + bytes.fromhex(x) for x in [equal_levels, *few]])
