"""Delta keys: by hand, their width, back and forth, and damage."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.entropy import MAX_ENTRIES
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.codes import delta_keys
from fedcomp.errors import FedcompError
from fedcomp.quantized import Indices
from tests.reference import slow_positions

BY_HAND = np.array([4, 13, 14, 100])  # gaps 5, 9, 1, 86 of 3, 4, 1 and 7 bits
STREAM = "04 01 10 5910 56"


def runs(indices: NDArray[np.int64]) -> NDArray[np.uint32]:
    return (np.diff(indices, prepend=-1) - 1).astype(np.uint32)


def written(indices: Indices) -> bytes:
    return b"".join(delta_keys.measure(runs(indices)).write())


def read(data: bytes, n: int, k: int) -> Indices:
    reader = ByteReader(data)
    indices = delta_keys.read(reader, n, k)
    reader.end()
    return indices


def interleaved_bits(indices: Indices, width: int) -> str:
    """Return flag and payload of one group after the other, as text."""
    result = ""
    for gap in np.diff(indices, prepend=-1).tolist():
        groups = -(-gap.bit_length() // width)
        payload = f"{gap:0{groups * width}b}"
        for group in range(groups):
            result += ("1" if group < groups - 1 else "0") + payload[group * width : (group + 1) * width]
    return result


def test_the_stream_is_the_one_written_by_hand() -> None:
    # l = 4 costs 5 (1 + 1 + 1 + 2) bits, 3 costs 4 (1 + 2 + 1 + 3), 5 costs 6 (1 + 1 + 1 + 2): flags 0 0 0 10,
    # payloads of one group 0101 1001 0001, of two 0101 0110
    assert written(BY_HAND) == bytes.fromhex(STREAM)
    assert read(bytes.fromhex(STREAM), 200, 4).tolist() == BY_HAND.tolist()


def test_flags_and_payloads_are_those_of_the_interleaved_order() -> None:
    text = interleaved_bits(BY_HAND, 4)
    assert text == "0" + "0101" + "0" + "1001" + "0" + "0001" + "1" + "0101" + "0" + "0110"
    groups = [text[place : place + 5] for place in range(0, 25, 5)]
    assert "".join(group[0] for group in groups) == "00010"
    assert "".join(group[1:] for group in groups) == "0101" + "1001" + "0001" + "01010110"


@pytest.mark.parametrize("density", [1, 0.9, 0.3, 0.01, 1e-4])
def test_no_other_width_takes_fewer_bits(density: float) -> None:
    rng = np.random.default_rng(int(1 / density))
    indices = np.cumsum(rng.geometric(density, 400)) - 1
    bits = {width: len(interleaved_bits(indices, width)) for width in delta_keys.WIDTHS}
    measured = delta_keys.measure(runs(indices))
    assert bits[measured.width] == min(bits.values())
    assert measured.groups * (measured.width + 1) == bits[measured.width]


@pytest.mark.parametrize("k", [1, 2, 9, 511, 70_000])
def test_random_positions_come_back_and_take_the_measured_bytes(k: int) -> None:
    rng = np.random.default_rng(k)
    for scale in (1, 3, 40, 20_000):
        indices = np.cumsum(rng.integers(1, 1 + scale, k) ** rng.integers(1, 2 + (scale < 100), k)) - 1
        stream = written(indices)
        assert len(stream) == delta_keys.measure(runs(indices)).size
        found = read(stream, int(indices[-1]) + 1, k)
        assert found.dtype == np.int64
        assert np.array_equal(found, indices)


def test_gaps_of_every_length_come_back() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        gaps = rng.permutation(np.concatenate((2 ** np.arange(30), 2 ** np.arange(31) - 1 + (np.arange(31) == 0))))
        indices = np.cumsum(gaps[np.cumsum(gaps) <= MAX_ENTRIES]) - 1
        stream = written(indices)
        assert np.array_equal(read(stream, MAX_ENTRIES, indices.size), indices)
        assert slow_positions(b"\3" + stream, 0, MAX_ENTRIES, indices.size)[0] == indices.tolist()


def test_the_longest_gap_comes_back() -> None:
    for indices in ([0], [MAX_ENTRIES - 1], [0, MAX_ENTRIES - 1], [MAX_ENTRIES - 2, MAX_ENTRIES - 1]):
        stream = written(np.array(indices))
        assert len(stream) < 20
        assert read(stream, MAX_ENTRIES, len(indices)).tolist() == indices


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "n", "numbers"),
    [
        ("", 200, "0 bytes .* 1"),
        ("00 01 10 5910 56", 200, "0 bits; 1 to 16"),
        ("11 01 10 5910 56", 200, "17 bits; 1 to 16"),
        ("04 05 1000000000 5910 56", 200, "5 bytes .* 4 gaps within 200"),
        ("04 04 10000000 5910 56", 20, "4 bytes .* 4 gaps within 20"),
        ("04 01 ff 5910 56", 200, "0 .* 4"),
        ("04 01 11 5910 56", 200, "1 bytes .* 4 .* 5 bits"),
        ("04 02 1000 5910 56", 200, "2 bytes .* 4 .* 5 bits"),
        ("10 01 d0 5910 56", 200, "3 groups of 16 bits; .* 2"),
        ("04 01 10 5910", 200, "0 bytes .* 1"),
        ("04 01 10 5911 56", 200, "0x11"),
        ("04 01 10 5900 56", 200, "0 to 9 in 1 groups; 1 to 200"),
        ("04 01 10 5910 0f", 200, "15 to 15 in 2 groups; 16 to 200"),
        ("04 01 10 5910 c9", 200, "201 to 201 in 2 groups; 16 to 200"),
        ("04 01 10 5910 56", 100, "100 in a vector of 100"),
    ],
)
def test_a_stream_that_contradicts_itself_is_refused(stream: str, n: int, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        read(bytes.fromhex(stream), n, 4)
