"""Kept entries with values: a body by hand, back and forth, its size, and what a hostile one can say."""

import tracemalloc

import numpy as np
import pytest

from fedcomp.entropy.bits import varint
from fedcomp.entropy.bodies.sparse_values import SparseValues
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError, FedcompError, TruncatedError
from fedcomp.quantized.precision import round_to
from fedcomp.quantized.vectors import Sparse
from tests.reference import entropy_bits, sparse_entries

BY_HAND = Sparse(200, np.array([4, 13, 14, 100]), np.array([1.5, -0.75, -1.25, 3], np.float32))
BODY = "c801 04 01 04 02 1f00 4805 01 c03f 40bf a0bf 4040"


def same(one: Sparse, other: Sparse) -> bool:
    return (
        one.n == other.n
        and np.array_equal(one.indices, other.indices)
        and one.values.tobytes() == other.values.tobytes()
    )


def draw(rng: np.random.Generator, n: int, k: int, precision: str = "fp32") -> Sparse:
    indices = np.sort(rng.choice(n, k, replace=False)).astype(np.int64)
    values = (rng.standard_normal(k) * 10.0 ** rng.integers(-44, 38)).astype(np.float32)
    return Sparse(n, indices, round_to(values, precision))


def test_the_body_is_the_one_written_by_hand() -> None:
    assert SparseValues().encode(BY_HAND) == bytes.fromhex(BODY)
    assert same(SparseValues().decode(bytes.fromhex(BODY), 200), BY_HAND)
    assert sparse_entries(bytes.fromhex(BODY)) == (200, {4: 1.5, 13: -0.75, 14: -1.25, 100: 3})


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_random_symbols_come_back_to_the_bit(precision: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(1, 400))
        symbols = draw(rng, n, int(rng.integers(0, n + 1)), precision)
        body = SparseValues().encode(symbols)
        assert same(SparseValues().decode(body, n=n), symbols)
        assert same(SparseValues().decode(body), symbols)
    symbols = draw(rng, 300_000, 70_000, precision)
    assert same(SparseValues().decode(SparseValues().encode(symbols)), symbols)


def test_nothing_kept_takes_the_bytes_of_n_and_a_zero() -> None:
    nothing = Sparse(200, np.empty(0, np.int64), np.empty(0, np.float32))
    assert SparseValues().encode(nothing).hex() == "c80100"
    assert same(SparseValues().decode(bytes.fromhex("c80100")), nothing)


def test_bodies_say_the_same_to_a_slow_reader() -> None:
    rng = np.random.default_rng(1)
    for n, k, precision in ((50, 50, "fp32"), (3000, 700, "bf16"), (100_000, 1500, "fp16")):
        symbols = draw(rng, n, k, precision)
        expected = dict(zip(symbols.indices.tolist(), symbols.values.tolist(), strict=True))
        assert sparse_entries(SparseValues().encode(symbols)) == (n, expected)


@pytest.mark.parametrize(("precision", "bits"), [("fp32", 32), ("fp16", 16), ("bf16", 16)])
def test_a_body_is_within_a_percent_of_values_and_the_entropy_of_positions(precision: str, bits: int) -> None:
    n, k = 1_000_000, 10_000
    rng = np.random.default_rng(2)
    values = round_to(rng.standard_normal(k).astype(np.float32), precision)
    body = SparseValues().encode(Sparse(n, draw(rng, n, k).indices, values))
    assert 8 * len(body) <= 1.01 * (entropy_bits(n, k) - k + bits * k)


def test_a_vector_too_long_to_encode_is_refused() -> None:
    with pytest.raises(ValueError, match="a vector of 2147483649 entries; at most 2147483648 can be encoded"):
        SparseValues().encode(Sparse(MAX_ENTRIES + 1, np.array([0]), np.ones(1, np.float32)))


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("03 04 01 04 02 1f00 4805 01 c03f 40bf a0bf 4040", "4 kept entries of 3 in 18 bytes"),
        ("8180808008 04 00", "a body that claims 2147483649 entries; at most 2147483648"),
        ("c801 00 00", "1 bytes follow an empty selection"),
        ("c801 04 04 04 02 1f00 4805 01 c03f 40bf a0bf 4040", "positions of kind 4; known are 0 to 3"),
        ("64 04 01 04 02 1f00 4805 01 c03f 40bf a0bf 4040", "an index of 100 in a vector of 100 entries"),
        ("c801 04 01 04 02 1f00 4805", "the body ends before the values"),
        ("c801 04 01 04 02 1f00 4805 01 c03f 40bf a0bf 80ff", "a body holds NaN or infinity"),
        ("c801 04 01 04 02 1f00 4805 01 c03f 40bf a0bf 4040 00", "1 bytes follow the last field"),
    ],
)
def test_a_body_that_contradicts_itself_is_refused(body: str, text: str) -> None:
    with pytest.raises(FedcompError, match=f"^{text}$"):
        SparseValues().decode(bytes.fromhex(body))


def test_every_truncation_is_refused() -> None:
    body = SparseValues().encode(draw(np.random.default_rng(3), 5000, 300))
    for length in range(len(body)):
        with pytest.raises((TruncatedError, CorruptError)):
            SparseValues().decode(body[:length])


@pytest.mark.parametrize("n", [0, 199, 201, 2**31])
def test_another_length_than_needed_is_refused(n: int) -> None:
    with pytest.raises(CorruptError, match=f"a body for 200 entries; {n} are needed"):
        SparseValues().decode(bytes.fromhex(BODY), n=n)


def test_changed_bytes_are_refused_or_decode_to_symbols_that_can_be() -> None:
    rng = np.random.default_rng(4)
    shapes = ((10, 10, "fp32"), (1000, 30, "bf16"), (1000, 500, "fp16"), (10**6, 40, "fp32"))
    bodies = [SparseValues().encode(draw(rng, n, k, precision)) for n, k, precision in shapes]
    refused = 0
    for _ in range(3000):
        body = bytearray(bodies[rng.integers(len(bodies))])
        for _ in range(rng.integers(1, 4)):
            body[rng.integers(len(body))] = rng.integers(256)
        try:
            found = SparseValues().decode(bytes(body))
        except FedcompError:
            refused += 1
            continue
        k = found.indices.size
        assert k == found.values.size <= found.n <= MAX_ENTRIES
        assert not k or (found.indices[0] >= 0 and found.indices[-1] < found.n and (np.diff(found.indices) > 0).all())
        assert np.isfinite(found.values).all()
    assert 300 < refused < 3000


def test_few_bytes_that_claim_two_thousand_million_entries_cost_nothing() -> None:
    claims = [varint.put(MAX_ENTRIES) + varint.put(k) for k in (1, 60, 2**20, MAX_ENTRIES)]
    rest = [b"", b"\0", b"\0\3" * 20, b"\1\x1f" * 20, b"\2" + b"\0" * 40, b"\3\1" + b"\xff" * 40]
    tracemalloc.start()
    for claim in claims:
        for end in rest:
            with pytest.raises(FedcompError):
                SparseValues().decode(claim + end)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000
