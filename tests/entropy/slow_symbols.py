"""Independent decoders of symbols and of bodies of levels, bit by bit, as FORMAT.md describes them."""

import struct

from tests.reference import bits_of, slow_fixed, slow_positions, slow_set, varint_at


def slow_stream(data: bytes, offset: int, count: int) -> tuple[str, int]:
    """Return the bits of a stream of prefix codewords."""
    size = 1 << data[offset]
    total, offset = varint_at(data, offset + 1)
    others = -(-count // size) - 1
    if others:
        _, offset = varint_at(data, offset)
        offset += 1 + -(-others * data[offset] // 8)
    return bits_of(data[offset : offset + -(-total // 8)])[:total], offset + -(-total // 8)


def canonical(lengths: list[int]) -> dict[str, int]:
    """Return codeword -> symbol: of each length the next numbers, with a zero appended for each further bit."""
    words, word, before = {}, 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths)):
        word <<= length - before
        words[f"{word:0{length}b}"] = symbol
        word, before = word + 1, length
    return words


def slow_symbols(data: bytes, offset: int, count: int, bound: int) -> tuple[list[int], int]:
    """Return `count` symbols, and the offset of the next field."""
    mode = data[offset]
    if mode == 0:
        return slow_fixed(data, offset, count, bound)
    used, offset = slow_set(data, offset + 1, bound)
    if mode == 2:
        length, offset = data[offset], offset + 1
        inner = list(range(len(used)))
        if length > 1:
            inner, offset = slow_set(data, offset, len(used) ** length)
        lengths = [int(digit, 16) for digit in data[offset : offset + -(-len(inner) // 2)].hex()[: len(inner)]]
        words = canonical(lengths)
        bits, offset = slow_stream(data, offset + -(-len(inner) // 2), -(-count // length))
        ranks, begin = [], 0
        for end in range(1, len(bits) + 1):
            if bits[begin:end] in words:
                joined = inner[words[bits[begin:end]]]
                ranks += [joined // len(used) ** place % len(used) for place in range(length - 1, -1, -1)]
                begin = end
        assert begin == len(bits)
        assert not any(ranks[count:])
        return [used[rank] for rank in ranks[:count]], offset
    assert mode == 3
    k, offset = varint_at(data, offset)
    indices, offset = slow_positions(data, offset, count, k)
    rest, offset = slow_symbols(data, offset, k, bound)
    width = (len(used) - 1).bit_length()
    end = offset + -(-count * width // 8)
    bits = bits_of(data[offset:end])
    symbols = [used[int("0" + bits[entry * width : (entry + 1) * width], 2)] for entry in range(count)]
    for index, symbol in zip(indices, rest, strict=True):
        symbols[index] = symbol
    return symbols, end


def slow_levels(body: bytes) -> tuple[list[int], list[float], list[float], list[int]]:
    """Return the levels, scales, offsets and sizes of the groups of a body of codec 7."""
    n, offset = varint_at(body, 0)
    flags = body[offset]
    count, offset = varint_at(body, offset + 1)
    size, offset = varint_at(body, offset)
    sizes = [min(size, n - start) for start in range(0, n, size)]
    if flags & 8:
        sizes = []
        for _ in range(size):
            entries, offset = varint_at(body, offset)
            sizes.append(entries)
    scales, offset = struct.unpack_from(f"<{len(sizes)}f", body, offset), offset + 4 * len(sizes)
    offsets: tuple[float, ...] = ()
    if flags & 4:
        offsets, offset = struct.unpack_from(f"<{len(sizes)}f", body, offset), offset + 4 * len(sizes)
    levels, offset = slow_symbols(body, offset, n, count)
    assert offset == len(body)
    return levels, list(scales), list(offsets), sizes
