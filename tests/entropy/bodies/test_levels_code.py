"""Levels of all entries: a body by hand, then that all come back, how small they are, then damage."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.entropy.bits import prefix_stream, varint
from fedcomp.entropy.bodies.levels_code import SPARSE, LevelsCode, SparseRegime, take_sparse
from fedcomp.entropy.codes import alphabet, elias
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError, FedcompError
from fedcomp.quantized.levels import EXPONENTS, LINEAR, POWERS, Groups, Levels, Scale, group_count
from tests.entropy.slow_symbols import slow_levels

CODE = LevelsCode()
QUARTERS = "08 00 05 04 00000040 0000803f 00 03 e0 0640"


def same(one: Levels, other: Levels) -> bool:
    assert one.levels.dtype == other.levels.dtype
    return (
        (one.levels == other.levels).all()
        and (one.scale, one.groups) == (other.scale, other.groups)
        and one.scales.tobytes() == other.scales.tobytes()
        and (one.offsets is None) == (other.offsets is None)
        and (one.offsets is None or other.offsets is None or one.offsets.tobytes() == other.offsets.tobytes())
        and one.dense().tobytes() == other.dense().tobytes()
    )


def symbols(
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
        "QSGD of 4 bits": symbols(bell, Scale(LINEAR, 15)),
        "QSGD of 255 levels": symbols(rng.integers(0, 511, n).astype(np.uint16), Scale(LINEAR, 511)),
        "TernGrad": symbols(few(n, n // 8, 3), Scale(LINEAR, 3), sizes),
        "max-min": symbols(rng.integers(0, 16, n).astype(np.uint8), Scale(LINEAR, 16), 1024, shifted=True),
        "signs": symbols(rng.integers(0, 2, n).astype(np.uint8), Scale(LINEAR, 2), n, shifted=True),
        "natural dithering": symbols(few(n, n // 3, 17), Scale(POWERS, 17), 128),
        "natural compression": symbols(exponents(n), Scale(EXPONENTS, 509), (n,)),
        "nearly all zero": symbols(few(n, max(1, n // 2000), 15), Scale(LINEAR, 15), n),
        "all zero": symbols(np.full(n, 4, np.uint8), Scale(LINEAR, 9), sizes),
        "buckets of one": symbols(bell, Scale(LINEAR, 15), 1),
    }


kinds = pytest.mark.parametrize("kind", list(draw(3)))


def sparse_body(levels: NDArray[Any], count: int) -> bytes:
    return b"".join(SparseRegime(levels, alphabet.histogram(levels, count)).write())


# ---- by hand ---------------------------------------------------------------------------------------------------------


def test_the_body_is_the_one_written_by_hand() -> None:
    # n = 8, LINEAR, 5 levels, buckets of 4; scales 2 and 1; at fixed width the levels 0, 1, 2: 0 0 1 2 | 1 0 0 0
    body = bytes.fromhex(QUARTERS)
    value = Levels(
        np.array([0, 0, 1, 2, 1, 0, 0, 0], np.uint8), Scale(LINEAR, 5), np.array([2, 1], np.float32), None, 4
    )
    assert same(CODE.decode(body), value)
    assert value.dense().tolist() == [-2, -2, -1, 0, -0.5, -1, -1, -1]
    # In base 3 it takes as many bytes; of equal ones the first is taken.
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


def test_qsgds_sparse_regime_is_the_one_written_by_hand() -> None:
    # Of 1000 levels of 7, number 8 is -2 and number 24 is +1: gaps 9 and 16, distances 2 and 1.
    levels = np.full(1000, 3, np.uint8)
    levels[[8, 24]] = [1, 4]
    body = CODE.encode(symbols(levels, Scale(LINEAR, 7), 1000))
    # Gamma takes 7 and 9 bits for the gaps, 3 and 1 for the distances; delta 8, 9, 4, 1; omega 7, 11, 3, 1.
    stream = "0001001" + "1" + "010" + "000010000" + "0" + "1"
    assert body[10:] == bytes([SPARSE, 2, 6, 22]) + int(stream.ljust(24, "0"), 2).to_bytes(3, "big")
    assert (CODE.decode(body).levels == levels).all()


# ---- the law ---------------------------------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("n", [1, 2, 31, 1000, 100_003])
def test_levels_come_back_to_the_bit(kind: str, n: int) -> None:
    value = draw(n)[kind]
    body = CODE.encode(value)
    assert same(CODE.decode(body), value)
    assert same(CODE.decode(body, n=n), value)
    assert CODE.encode(value) == body


@kinds
@pytest.mark.parametrize("n", [2, 999])
def test_bodies_say_to_a_slow_reader_what_they_say_to_the_decoder(kind: str, n: int) -> None:
    value = draw(n)[kind]
    levels, scales, offsets, sizes = slow_levels(CODE.encode(value))
    assert levels == value.levels.tolist()
    assert scales == value.scales.tolist()
    assert offsets == ([] if value.offsets is None else value.offsets.tolist())
    assert len(sizes) == len(scales)
    assert sum(sizes) == n


@pytest.mark.parametrize("count", [3, 15, 255, 511])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (10, 1), (10, 10), (5000, 40), (100_000, 3000), (400_000, 70_001)])
def test_the_sparse_regime_comes_back(count: int, n: int, k: int) -> None:
    levels = few(n, k, count)
    data = sparse_body(levels, count)
    plan = SparseRegime(levels, alphabet.histogram(levels, count))
    assert plan.bits / 8 == pytest.approx(len(data), rel=0.005, abs=2)
    found, at = take_sparse(b"?" + data + b"!", 1, n, count)
    assert found.dtype == levels.dtype
    assert (found == levels).all()
    assert at == len(data) + 1


@pytest.mark.parametrize("k", [1, 3, 30, 200])
def test_the_sparse_regime_says_to_a_slow_reader_what_it_says_to_the_decoder(k: int) -> None:
    levels = few(3000, k, 31)
    value = symbols(levels, Scale(LINEAR, 31), 3000)
    head = CODE.encode(value)[:10]
    assert slow_levels(head + sparse_body(levels, 31))[0] == levels.tolist()


def test_the_sparse_regime_is_taken_where_it_is_smaller() -> None:
    found = set()
    for n, k in ((1000, 1), (1000, 3), (10**6, 1), (10**6, 2), (1000, 100), (10**5, 300), (10**5, 12_000)):
        levels = few(n, k, 15)
        value = symbols(levels, Scale(LINEAR, 15), n)
        stream = CODE.encode(value)[6 + len(varint.put(n)) + len(varint.put(n)) :]
        assert len(stream) <= min(len(sparse_body(levels, 15)), len(alphabet.put(levels, 15))) + 1
        found.add(stream[0] >= SPARSE)
    assert found == {False, True}


def entropy_bits(levels: NDArray[Any]) -> float:
    counts = np.bincount(levels)
    counts = counts[counts > 0]
    return float(counts @ np.log2(levels.size / counts))


def test_bodies_are_as_small_as_the_best_code() -> None:
    n, rng = 1_000_000, np.random.default_rng(0)
    head = 20

    def size(levels: NDArray[Any], scale: Scale) -> int:
        return len(CODE.encode(symbols(levels, scale, (n,))))

    assert size(rng.integers(0, 16, n).astype(np.uint8), Scale(LINEAR, 16)) <= n // 2 + head
    assert size(rng.integers(0, 2, n).astype(np.uint8), Scale(LINEAR, 2)) <= n // 8 + head
    assert size(2 * rng.integers(0, 2, n).astype(np.uint8), Scale(LINEAR, 3)) <= n // 8 + head
    assert size(rng.integers(0, 3, n).astype(np.uint8), Scale(LINEAR, 3)) <= n // 5 + head
    tenth = few(n, n // 10, 3)
    assert 8 * size(tenth, Scale(LINEAR, 3)) <= 1.03 * entropy_bits(tenth)
    powers = exponents(n)
    assert 8 * size(powers, Scale(EXPONENTS, 509)) <= 1.02 * entropy_bits(powers)


def test_a_vector_of_no_entries_or_too_many_is_refused() -> None:
    with pytest.raises(ValueError, match="a vector of 0 entries; 1 to 2147483648 can be encoded"):
        CODE.encode(symbols(np.empty(0, np.uint8), Scale(LINEAR, 3)))


# ---- damage ----------------------------------------------------------------------------------------------------------


def changed(old: str, new: str) -> str:
    assert old in QUARTERS
    return QUARTERS.replace(old, new, 1)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", "the body ends within n"),
        ("00 00 05 04", "a body for no entries; it has one at least"),
        ("8180808008 00 05 04", "a body that claims 2147483649 entries; at most 2147483648"),
        ("08", "the body ends before the kind of the scale"),
        ("08 03 05 04", "a scale of kind 3 with flags 0; not known"),
        ("08 10 05 04", "a scale of kind 0 with flags 16; not known"),
        ("08 00 01 04", "1 levels in a scale of kind 0"),
        ("08 00 8004 04", "512 levels in a scale of kind 0"),
        ("08 01 04 04", "4 levels in a scale of kind 1"),
        ("08 01 8102 04", "257 levels in a scale of kind 1"),
        ("08 02 05 04", "5 levels in a scale of kind 2"),
        ("08 00 05 00", "buckets of 0 entries; they have 1 to 2147483648"),
        ("08 00 05 8180808008", "buckets of 2147483649 entries; they have 1 to 2147483648"),
        ("08 08 05 00", "0 tensors in 0 bytes; at most 65536"),
        ("08 08 05 04 02", "4 tensors in 1 bytes; at most 65536"),
        ("08 08 05 02 04 05", "tensors of 4 entries or more, 9 in all; 8 are needed, none without any"),
        ("08 08 05 03 04 00 04", "tensors of 0 entries or more, 8 in all; 8 are needed, none without any"),
        ("08 00 05 04 00000040", "scales: 4 bytes; 8 are needed"),
        ("08 04 05 04 00000040 0000803f", "scales: 8 bytes; 16 are needed"),
        (changed("0000803f", "000080bf"), "a scale that is negative or not finite"),
        (changed("0000803f", "00000080"), "a scale that is negative or not finite"),
        (changed("0000803f", "0000807f"), "a scale that is negative or not finite"),
        (changed("0000803f", "0000c07f"), "a scale that is negative or not finite"),
        ("01 04 05 01 ffff7f7f ffff7f7f 00 01 80", "scales and offsets whose values are not finite"),
        ("01 04 05 01 0000803f 0000c07f 00 01 80", "scales and offsets whose values are not finite"),
        ("01 04 05 01 0000803f 000080ff 00 01 80", "scales and offsets whose values are not finite"),
        ("01 02 fd03 01 00000040 00 01 00 00", "scales and offsets whose values are not finite"),
        (changed(" 00 03", " 04 03"), "symbols in mode 4; here it is one of 0 to 3"),
        (changed(" 00 03", " 0f 03"), "symbols in mode 15; here it is one of 0 to 3"),
        (changed(" 00 03", " 13 03"), "symbols in mode 19; here it is one of 0 to 3"),
        ("08 00 04 08 0000803f 10 01 0b 03 a0", "symbols in mode 16; here it is one of 0 to 3"),
        (QUARTERS + "00", "1 bytes follow the last field"),
        ("08 00 05 08 0000803f 10 00 0b 03 a0", "0 levels that are not zero, of 8 in 13 bytes"),
        ("08 00 05 08 0000803f 10 09 0b 03 a0", "9 levels that are not zero, of 8 in 13 bytes"),
        ("08 00 05 08 0000803f 10 01 0b 05 98", "a gap of 1 or a level 3 from zero; at most 8 and 2"),
        ("08 00 05 08 0000803f 10 01 0b 09 1280", "a gap of 9 or a level 1 from zero; at most 8 and 2"),
        ("08 00 05 08 0000803f 10 02 0b 0c 10d0", "an index of 8 in a vector of 8 entries"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused(body: str, text: str) -> None:
    with pytest.raises(FedcompError, match=f"^{text}"):
        CODE.decode(bytes.fromhex(body))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("offset", ["0100807f", "0100a0ff", "0000c07f", "0000807f"])
def test_an_offset_that_is_no_number_is_refused_without_a_warning(offset: str) -> None:
    with pytest.raises(CorruptError, match="scales and offsets whose values are not finite"):
        CODE.decode(bytes.fromhex("01 04 05 01 0000803f" + offset + "00 01 80"))


def test_a_stream_of_codewords_of_one_bit_takes_little_more_than_positions_and_levels() -> None:
    n = 1 << 18
    body = CODE.encode(symbols(np.ones(n, np.uint8), Scale(LINEAR, 3), n))[: -len("000180") // 2]
    body += bytes([SPARSE]) + varint.put(n) + bytes([8]) + varint.put(3 * n) + varint.put(3 * 256) + b"\0"
    body += np.packbits(np.tile(np.array([1, 0, 1], np.uint8), n)).tobytes()
    tracemalloc.start()
    found = CODE.decode(body, n)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found.levels == 2).all()
    assert peak < 4 * 4 * n


@pytest.mark.parametrize("distance", [4, 2**15, 2**15 + 1, 2**16 + 1, 2**31 - 1])
@pytest.mark.parametrize("negative", [False, True])
def test_a_level_beyond_the_last_one_is_refused_however_far_it_is(distance: int, negative: bool) -> None:
    codewords, lengths = elias.gamma(np.array([1, distance]))
    codewords[1] |= np.uint64(negative) << lengths[1]
    lengths[1] += np.uint64(1)
    stream = prefix_stream.write(iter([(codewords, lengths)]), 1, int(lengths.sum()), per_item=2)
    with pytest.raises(CorruptError, match="from zero; at most 5 and 3"):
        take_sparse(bytes([SPARSE]) + varint.put(1) + stream, 0, 5, 7)


@kinds
def test_every_truncation_is_refused(kind: str) -> None:
    body = CODE.encode(draw(300)[kind])
    for length in range(len(body)):
        with pytest.raises(FedcompError):
            CODE.decode(body[:length])


@pytest.mark.parametrize("n", [0, 299, 301, 2**31])
def test_another_length_than_needed_is_refused(n: int) -> None:
    with pytest.raises(CorruptError, match=f"a body for 300 entries; {n} are needed"):
        CODE.decode(CODE.encode(draw(300)["TernGrad"]), n=n)


@kinds
def test_changed_bytes_are_refused_or_decode_to_finite_values(kind: str) -> None:
    rng = np.random.default_rng(5)
    body = CODE.encode(draw(2000)[kind])
    for _ in range(60):
        data = bytearray(body)
        data[rng.integers(len(data))] = rng.integers(256)
        try:
            found = CODE.decode(bytes(data))
        except FedcompError:
            continue
        assert found.levels.max() < found.scale.count
        assert np.isfinite(found.dense()).all()


def test_a_few_bytes_stand_for_many_equal_levels_only_where_so_many_are_expected() -> None:
    n = (1 << 20) + 1
    body = CODE.encode(symbols(np.ones(n, np.uint8), Scale(LINEAR, 3), (n,)))
    assert len(body) < 20
    assert CODE.decode(body, n=n).n == n
    with pytest.raises(CorruptError, match=f"{len(body)} bytes that claim {n} entries, which nobody asked for"):
        CODE.decode(body)
    fewer = CODE.encode(symbols(np.ones(n - 1, np.uint8), Scale(LINEAR, 3), (n - 1,)))
    assert CODE.decode(fewer).n == n - 1


def test_bodies_that_claim_two_thousand_million_entries_cost_nothing() -> None:
    tracemalloc.start()
    for rest in ("00 03 8080808008 0000803f 00 01 80", "00 03 01 " + "00" * 60, "08 03 02 01 ffffffff07 " + "00" * 20):
        for n in (None, MAX_ENTRIES):
            if n is None or not rest.startswith("00 03 80"):
                with pytest.raises(FedcompError):
                    CODE.decode(varint.put(MAX_ENTRIES) + bytes.fromhex(rest), n=n)
    for rest in ("00 ff01", "10 8080808004 08 8080808008 00", "12 01 08 01 00", "02 03 01 1220 08 8080808008"):
        with pytest.raises(FedcompError):
            CODE.decode(varint.put(MAX_ENTRIES) + bytes.fromhex("00 ff01 8080808008 0000803f" + rest), n=MAX_ENTRIES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000
