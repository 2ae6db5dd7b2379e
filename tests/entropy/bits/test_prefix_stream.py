"""Streams of prefix codewords: the bits by hand, then that readers in lockstep find every item, then damage."""

from collections.abc import Iterator

import numpy as np
import pytest

from fedcomp.entropy.bits import prefix_stream
from fedcomp.entropy.codes import elias
from fedcomp.entropy.codes.elias import Words
from fedcomp.errors import CorruptError, FedcompError
from tests.reference import bits_of, varint_at


def batches(values: Words) -> Iterator[tuple[Words, Words]]:
    for start in range(0, values.size, prefix_stream.BATCH):
        yield elias.delta(values[start : start + prefix_stream.BATCH])


def written(values: Words) -> bytes:
    return prefix_stream.write(batches(values), values.size, int(elias.delta(values)[1].sum()))


def read(data: bytes, count: int, at: int = 0) -> tuple[Words, int]:
    stream = prefix_stream.ChunkedBitReader(data, at, count, "integers")
    found = np.empty((stream.chunks, stream.size), np.uint64)
    for rows, live in stream.steps():
        for row in rows:
            found[:live, row], lengths = elias.read_delta(stream.windows(live))
            stream.skip(lengths)
    stream.finish()
    return found.reshape(-1)[:count], stream.end


def draw(count: int, seed: int = 0) -> Words:
    return np.random.default_rng([seed, count]).geometric(0.01, count).astype(np.uint64)


def test_the_stream_is_the_one_written_by_hand() -> None:
    # delta of 1, 2, 17: 1 0100 001010001
    data = written(np.array([1, 2, 17], np.uint64))
    assert data == bytes([7, 14, 0b1_0100_001, 0b010001_00])  # chunks of 2^7, 14 bits in all


def test_the_length_of_every_chunk_stands_before_the_codewords() -> None:
    values = draw(5000)
    data = written(values)
    size = 1 << data[0]
    _, lengths = elias.delta(values)
    total, at = varint_at(data, 1)
    assert total == lengths.sum()
    least, at = varint_at(data, at)
    width = data[at]
    sizes = [int(lengths[start : start + size].sum()) for start in range(0, 5000, size)]
    fields = bits_of(data[at + 1 :])
    found = [least + int(fields[place * width :][:width], 2) for place in range(len(sizes) - 1)]
    assert len(found) > 3
    assert found == sizes[:-1]
    assert min(found) == least
    begin = at + 1 + -(-len(found) * width // 8)
    codewords = elias.delta(values)[0].tolist()
    assert bits_of(data[begin:])[:total] == "".join(
        f"{word:0{length}b}" for word, length in zip(codewords, lengths.tolist(), strict=True)
    )


@pytest.mark.parametrize(
    "count",
    [
        1,
        2,
        3,
        255,
        256,
        257,
        2047,
        2048,
        2049,
        5000,
        prefix_stream.BATCH,
        prefix_stream.BATCH + 1,
        3 * prefix_stream.BATCH - 1,
    ],
)
def test_every_item_is_found(count: int) -> None:
    values = draw(count)
    data = written(values)
    found, end = read(b"xyz" + data + b"more", count, 3)
    assert (found == values).all()
    assert end == 3 + len(data)


def test_codewords_of_every_length_come_back() -> None:
    rng = np.random.default_rng(1)
    values = 2 ** rng.integers(0, 32, 30_000).astype(np.uint64)
    assert (read(written(values), values.size)[0] == values).all()
    ones = np.ones(30_000, np.uint64)
    assert (read(written(ones), ones.size)[0] == ones).all()


@pytest.mark.parametrize("count", [1000, 10_000, 100_000, 1_000_000])
def test_what_stands_before_the_codewords_is_less_than_half_a_percent_or_two_of_few(count: int) -> None:
    for p in (0.9, 0.1, 0.001):
        values = np.random.default_rng(count).geometric(p, count).astype(np.uint64)
        total = int(elias.delta(values)[1].sum())
        head = 8 * len(written(values)) - total
        assert head <= (0.02 if count < 1 << 16 else 0.005) * total + 8 * 8
        assert head <= prefix_stream.head_bits(count, total) + 8


def test_neighbours_may_come_merged() -> None:
    values = draw(4097)
    codewords, lengths = elias.delta(values)
    pairs = codewords[:-1:2] << lengths[1::2] | codewords[1::2], lengths[:-1:2] + lengths[1::2]
    merged = np.append(pairs[0], codewords[-1]), np.append(pairs[1], lengths[-1])
    assert prefix_stream.write([merged], 4097, int(lengths.sum()), per_item=0.5) == written(values)


def test_another_total_than_announced_is_refused() -> None:
    with pytest.raises(ValueError, match="codewords of 14 bits; 15 were announced"):
        prefix_stream.write(batches(np.array([1, 2, 17], np.uint64)), 3, 15)


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "count", "text"),
    [
        ("", 3, "integers: the body ends before the size of a chunk"),
        ("05 0e a145", 3, r"integers: chunks of 2\^5; they are of 2\^6 to 2\^11"),
        ("0c 0e a145", 3, r"integers: chunks of 2\^12; they are of 2\^6 to 2\^11"),
        ("0b 02 a145", 3, "integers: 2 bits of 3 items; 2 bytes are left"),
        ("0b 12 a144", 3, "integers: 18 bits of 3 items; 2 bytes are left"),
        ("0b 0e a145", 3, "integers: the padding bits are not zero"),
        ("0b 0d a140", 3, "integers: chunk 0 does not end where it should"),
        ("0b 0f a144", 3, "integers: chunk 0 does not end where it should"),
        ("08 8402 8402 00 " + "ff" * 33, 258, r"integers: 0 bits are left for 2 items of the last chunk"),
        ("08 8402 8002 00 " + "ff" * 33, 258, r"integers: the padding bits are not zero"),
        ("08 8202 8102 00 " + "ff" * 32 + "c0", 258, r"integers: 1 bits are left for 2 items of the last chunk"),
        ("08 8202 ff01 00 " + "ff" * 32 + "c0", 258, r"integers: chunk 0 does not end where it should"),
        ("08 8202 8002 21 " + "ff" * 40, 258, r"integers: a chunk of 256 bits, others longer by 33 binary digits"),
        ("08 8202 808080808001 00 " + "ff" * 40, 258, r"integers: a chunk of 34359738368 bits, others longer by 0"),
        ("08 8202 8002 01 01 " + "ff" * 40, 258, r"the chunks of integers: the padding bits are not zero"),
        ("08 8202 8002", 258, r"integers: 258 bits of 258 items; 2 bytes are left"),
    ],
)
def test_a_stream_that_contradicts_itself_is_refused(data: str, count: int, text: str) -> None:
    with pytest.raises(FedcompError, match=f"^{text}"):
        read(bytes.fromhex(data), count)


def test_every_truncation_is_refused() -> None:
    data = written(draw(700))
    for length in range(len(data)):
        with pytest.raises(FedcompError):
            read(data[:length], 700)


def test_changed_bytes_are_refused_or_found_as_other_items() -> None:
    rng = np.random.default_rng(2)
    data = written(draw(5000))
    refused = 0
    for _ in range(200):
        body = bytearray(data)
        body[rng.integers(len(body))] ^= 1 << int(rng.integers(8))
        try:
            found, end = read(bytes(body), 5000)
        except CorruptError:
            refused += 1
            continue
        assert found.size == 5000
        assert end <= len(body)
    assert refused > 20
