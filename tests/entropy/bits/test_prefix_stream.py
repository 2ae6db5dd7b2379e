"""Streams of prefix codewords: the bits by hand, then that readers in lockstep find every codeword, then damage."""

import numpy as np
import pytest

from fedcomp.entropy.bits import prefix_stream
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.bits.prefix_stream import BATCH, ChunkedBitReader, Words
from fedcomp.errors import FedcompError
from tests.entropy.laws import check_truncations, survivors
from tests.reference import bits_of, varint_at

MAX_RUN = 63


def unary(runs: Words) -> tuple[Words, Words]:
    """Return (codewords, lengths): as many ones as `runs`, 0 to 63, and a zero."""
    lengths = runs + np.uint64(1)
    return (np.uint64(1) << runs) - np.uint64(1) << np.uint64(1), lengths


def written(runs: Words) -> bytes:
    batches = (unary(runs[start : start + BATCH]) for start in range(0, runs.size, BATCH))
    return prefix_stream.write(batches, runs.size, int(runs.sum()) + runs.size)


def read(data: bytes, count: int) -> Words:
    reader = ByteReader(data)
    stream = ChunkedBitReader(reader, count, "runs")
    found = np.empty((stream.chunks, stream.size), np.uint64)
    for rows, live in stream.steps():
        for row in rows:
            ones = np.array([(~int(word) & 2**64 - 1 | 1).bit_length() for word in stream.windows(live).tolist()])
            found[:live, row] = 64 - ones
            stream.skip(found[:live, row] + np.uint64(1))
    stream.finish()
    reader.end()
    return found.reshape(-1)[:count]


def draw(count: int, p: float = 0.2) -> Words:
    runs = np.random.default_rng(count).geometric(p, count) - 1
    return np.minimum(runs, MAX_RUN).astype(np.uint64)


def test_the_stream_is_the_one_written_by_hand() -> None:
    # 0, 110, 10: chunks of 2^8, 6 bits in all
    assert written(np.array([0, 2, 1], np.uint64)) == bytes([8, 6, 0b0_110_10_00])


def test_the_length_of_every_chunk_precedes_the_codewords() -> None:
    runs = draw(5000)
    data, bits = written(runs), "".join("1" * run + "0" for run in runs.tolist())
    size = 1 << data[0]
    total, offset = varint_at(data, 1)
    least, offset = varint_at(data, offset)
    width, fields = data[offset], bits_of(data[offset + 1 :])
    sizes = [int((runs[start : start + size] + np.uint64(1)).sum()) for start in range(0, 5000, size)]
    found = [least + int(fields[place * width :][:width], 2) for place in range(len(sizes) - 1)]
    assert len(found) > 3
    assert (total, found, min(found)) == (len(bits), sizes[:-1], least)
    begin = offset + 1 + -(-len(found) * width // 8)
    assert bits_of(data[begin:])[:total] == bits


@pytest.mark.parametrize("count", [1, 2, 3, 63, 64, 65, 255, 256, 257, 2049, 5000, BATCH, BATCH + 1])
def test_every_codeword_is_found(count: int) -> None:
    for runs in (draw(count), draw(count, 0.01), np.zeros(count, np.uint64)):
        assert (read(written(runs), count) == runs).all()


@pytest.mark.parametrize("count", [1000, 10_000, 100_000])
def test_the_head_takes_less_than_half_a_percent_or_two_of_a_short_stream(count: int) -> None:
    for p in (0.9, 0.6, 0.3):
        runs = draw(count, p)
        total = int(runs.sum()) + count
        head = 8 * len(written(runs)) - total
        assert head <= (0.02 if count < 1 << 16 else 0.005) * total + 8 * 8
        assert head <= prefix_stream.head_bits(count, total) + 8


def test_neighbours_may_be_merged_by_the_writer() -> None:
    runs = draw(4097, 0.5)
    codewords, lengths = unary(runs)
    pairs = codewords[:-1:2] << lengths[1::2] | codewords[1::2], lengths[:-1:2] + lengths[1::2]
    merged = np.append(pairs[0], codewords[-1]), np.append(pairs[1], lengths[-1])
    assert prefix_stream.write([merged], 4097, int(lengths.sum()), merged=2) == written(runs)


def test_another_total_than_announced_is_refused() -> None:
    with pytest.raises(ValueError, match="6 bits; 7"):
        prefix_stream.write([unary(np.array([0, 2, 1], np.uint64))], 3, 7)


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "count", "numbers"),
    [
        ("", 3, "0 bytes .* 1"),
        ("05 06 68", 3, r"2\^5; 2\^6 to 2\^8"),
        ("09 06 68", 3, r"2\^9; 2\^6 to 2\^8"),
        ("08 02 68", 3, "2 bits of 3"),
        ("08 09 68", 3, "9 bits of 3 .* 1 bytes"),
        ("08 06 69", 3, "0x69"),
        ("08 05 68", 3, "chunk 0 ends at bit 6; 5"),
        ("08 07 68", 3, "chunk 0 ends at bit 6; 7"),
        ("08 8402 8402 00 " + "00" * 33, 258, "0 bits .* 2 codewords"),
        ("08 8202 8102 00 " + "00" * 33, 258, "1 bits .* 2 codewords"),
        ("08 8202 ff01 00 " + "00" * 33, 258, "chunk 0 ends at bit 256; 255"),
        ("08 8202 8002 21 " + "00" * 40, 258, r"256 bits .* 2\^33"),
        ("08 8202 808080808001 00 " + "00" * 40, 258, "34359738368 bits"),
        ("08 8202 8002 01 01 " + "00" * 40, 258, "0x01"),
        ("08 8202 8002", 258, "258 bits of 258 .* 2 bytes"),
    ],
)
def test_a_stream_that_contradicts_itself_is_refused(data: str, count: int, numbers: str) -> None:
    with pytest.raises(FedcompError, match=f"^runs: .*{numbers}"):
        read(bytes.fromhex(data), count)


def test_every_truncation_is_refused() -> None:
    check_truncations(lambda data: read(data, 300), written(draw(300)))


def test_changed_bytes_are_refused_or_found_as_other_codewords() -> None:
    data = written(draw(700))
    found = list(survivors(lambda changed: read(changed, 700), data, 200))
    assert len(found) < 150
    assert all(runs.size == 700 for runs in found)
