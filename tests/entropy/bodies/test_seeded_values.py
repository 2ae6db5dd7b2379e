"""Values whose positions are a seed: a body by hand, back and forth, and what a hostile one can say."""

import tracemalloc

import numpy as np
import pytest

from fedcomp.entropy.bits import varint
from fedcomp.entropy.bodies.seeded_values import SeededValues
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError, FedcompError, TruncatedError
from fedcomp.quantized.precision import round_to
from fedcomp.quantized.seeded import Seeded, seeded_indices

VALUES = np.array([1.5, -0.75, -1.25, 3], np.float32)
BY_HAND = Seeded(200, 77, np.array([27, 95, 107, 185]), VALUES)
BODY = "c801 04 4d00000000000000 01 c03f 40bf a0bf 4040"


def same(one: Seeded, other: Seeded) -> bool:
    return (one.n, one.seed, one.indices.tolist(), one.values.tobytes()) == (
        other.n,
        other.seed,
        other.indices.tolist(),
        other.values.tobytes(),
    )


def draw(rng: np.random.Generator, n: int, k: int, precision: str = "fp32") -> Seeded:
    seed = int(rng.integers(2**63))
    return Seeded(n, seed, seeded_indices(n, k, seed), round_to(rng.standard_normal(k).astype(np.float32), precision))


def test_the_body_is_the_one_written_by_hand() -> None:
    assert SeededValues().encode(BY_HAND) == bytes.fromhex(BODY)
    assert same(SeededValues().decode(bytes.fromhex(BODY), 200), BY_HAND)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_random_symbols_come_back_to_the_bit(precision: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(1, 400))
        symbols = draw(rng, n, int(rng.integers(1, n + 1)), precision)
        body = SeededValues().encode(symbols)
        assert same(SeededValues().decode(body, n=n), symbols)
        assert same(SeededValues().decode(body), symbols)


def test_positions_take_the_eight_bytes_of_the_seed_whatever_their_number() -> None:
    rng = np.random.default_rng(1)
    for k in (1, 100, 20_000):
        symbols = draw(rng, 1_000_000, k)
        assert len(SeededValues().encode(symbols)) == 3 + len(varint.put(k)) + 8 + 1 + 4 * k


def test_any_seed_is_sent_modulo_2_to_the_64() -> None:
    for seed in (-1, 2**64 + 3, 2**200):
        symbols = Seeded(50, seed, seeded_indices(50, 4, seed), VALUES)
        found = SeededValues().decode(SeededValues().encode(symbols))
        assert found.seed == seed % 2**64
        assert np.array_equal(found.dense(), symbols.dense())


def test_nothing_kept_takes_the_bytes_of_n_and_a_zero() -> None:
    nothing = Seeded(200, 0, BY_HAND.indices[:0], VALUES[:0])
    assert SeededValues().encode(nothing).hex() == "c80100"
    assert same(SeededValues().decode(bytes.fromhex("c80100"), 200), nothing)


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("03 04 4d00000000000000 01 c03f 40bf a0bf 4040", "4 kept entries of 3 in 19 bytes"),
        ("c801 00 00", "1 bytes follow an empty selection"),
        ("c801 04 4d000000000000", "the body ends within the seed"),
        ("c801 04 4d00000000000000", "the body ends before the values"),
        ("c801 04 4d00000000000000 01 c03f 40bf a0bf 40", "7 bytes of values; 4 of <u2 need 8"),
        ("c801 04 4d00000000000000 01 c03f 40bf a0bf 80ff", "a body holds NaN or infinity"),
        (BODY + "00", "1 bytes follow the last field"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused(body: str, text: str) -> None:
    with pytest.raises(FedcompError, match=f"^{text}$"):
        SeededValues().decode(bytes.fromhex(body))


def test_every_truncation_is_refused() -> None:
    body = SeededValues().encode(draw(np.random.default_rng(2), 5000, 100))
    for length in range(len(body)):
        with pytest.raises((TruncatedError, CorruptError)):
            SeededValues().decode(body[:length])


@pytest.mark.parametrize("n", [0, 199, 201, 2**31])
def test_another_length_than_needed_is_refused(n: int) -> None:
    with pytest.raises(CorruptError, match=f"a body for 200 entries; {n} are needed"):
        SeededValues().decode(bytes.fromhex(BODY), n=n)


def test_changed_bytes_are_refused_or_decode_to_symbols_that_can_be() -> None:
    rng = np.random.default_rng(3)
    shapes = ((10, 10, "fp32"), (1000, 30, "bf16"), (1000, 600, "fp16"))
    bodies = [SeededValues().encode(draw(rng, *shape)) for shape in shapes]
    refused = 0
    for _ in range(2000):
        body = bytearray(bodies[rng.integers(len(bodies))])
        for _ in range(rng.integers(1, 4)):
            body[rng.integers(min(len(body), 24))] = rng.integers(256)
        try:
            found = SeededValues().decode(bytes(body))
        except FedcompError:
            refused += 1
            continue
        k = found.indices.size
        assert k == found.values.size <= found.n <= MAX_ENTRIES
        assert not k or (found.indices[0] >= 0 and found.indices[-1] < found.n and (np.diff(found.indices) > 0).all())
        assert np.isfinite(found.values).all()
    assert 300 < refused < 2000


def test_few_bytes_that_claim_two_thousand_million_entries_cost_nothing() -> None:
    claims = [varint.put(MAX_ENTRIES) + varint.put(k) + bytes(8) for k in (60, 2**20, MAX_ENTRIES)]
    rest = [b"", b"\0" * 20, b"\1" * 20, b"\2\0\0" + b"\1" * 40, b"\3" * 20]
    tracemalloc.start()
    for claim in claims:
        for end in rest:
            with pytest.raises(FedcompError):
                SeededValues().decode(claim + end)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


def test_a_few_values_of_a_huge_vector_take_little_memory() -> None:
    body = SeededValues().encode(Seeded(MAX_ENTRIES, 1, seeded_indices(MAX_ENTRIES, 4, 1), VALUES))
    tracemalloc.start()
    SeededValues().decode(body, MAX_ENTRIES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000
