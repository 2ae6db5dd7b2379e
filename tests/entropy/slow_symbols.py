"""Streams of symbols and bodies of levels, read one bit after the other, as FORMAT.md describes them."""

import struct

from tests.reference import bits_of, slow_fixed, slow_positions, varint_at


def slow_set(data: bytes, at: int, bound: int) -> tuple[list[int], int]:
    """Return the symbols of a set."""
    size, at = varint_at(data, at)
    width = (bound - 1).bit_length()
    if size == bound:
        return list(range(bound)), at
    bits = bits_of(data[at:])
    if size * width <= bound:
        used = [int(bits[place * width :][:width], 2) for place in range(size)]
        return used, at + -(-size * width // 8)
    return [symbol for symbol in range(bound) if bits[symbol] == "1"], at + -(-bound // 8)


def slow_stream(data: bytes, at: int, count: int) -> tuple[str, int]:
    """Return the bits of a stream of prefix codewords."""
    size = 1 << data[at]
    total, at = varint_at(data, at + 1)
    others = -(-count // size) - 1
    if others:
        _, at = varint_at(data, at)
        at += 1 + -(-others * data[at] // 8)
    return bits_of(data[at : at + -(-total // 8)])[:total], at + -(-total // 8)


def canonical(lengths: list[int]) -> dict[str, int]:
    """Return codeword -> symbol: of each length the next numbers, a zero appended from one length to the next."""
    words, word, before = {}, 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths)):
        word <<= length - before
        words[f"{word:0{length}b}"] = symbol
        word, before = word + 1, length
    return words


def slow_symbols(data: bytes, at: int, count: int, bound: int) -> tuple[list[int], int]:
    """Return `count` symbols, and where the next field begins."""
    mode = data[at]
    if mode == 0:
        return slow_fixed(data, at, count, bound)
    used, at = slow_set(data, at + 1, bound)
    if mode == 2:
        length, at = data[at], at + 1
        inner = list(range(len(used)))
        if length > 1:
            inner, at = slow_set(data, at, len(used) ** length)
        lengths = [int(digit, 16) for digit in data[at : at + -(-len(inner) // 2)].hex()[: len(inner)]]
        words = canonical(lengths)
        bits, at = slow_stream(data, at + -(-len(inner) // 2), -(-count // length))
        ranks, begin = [], 0
        for end in range(1, len(bits) + 1):
            if bits[begin:end] in words:
                joined = inner[words[bits[begin:end]]]
                ranks += [joined // len(used) ** place % len(used) for place in range(length - 1, -1, -1)]
                begin = end
        assert begin == len(bits)
        assert not any(ranks[count:])
        return [used[rank] for rank in ranks[:count]], at
    assert mode == 3
    k, at = varint_at(data, at)
    indices, at = slow_positions(data, at, count, k)
    rest, at = slow_symbols(data, at, k, bound)
    width = (len(used) - 1).bit_length()
    end = at + -(-count * width // 8)
    bits = bits_of(data[at:end])
    symbols = [used[int("0" + bits[entry * width : (entry + 1) * width], 2)] for entry in range(count)]
    for index, symbol in zip(indices, rest, strict=True):
        symbols[index] = symbol
    return symbols, end


def slow_levels(body: bytes) -> tuple[list[int], list[float], list[float], list[int]]:
    """Return the levels, scales, offsets and sizes of the groups of a body of codec 7."""
    n, at = varint_at(body, 0)
    flags = body[at]
    count, at = varint_at(body, at + 1)
    size, at = varint_at(body, at)
    sizes = [min(size, n - start) for start in range(0, n, size)]
    if flags & 8:
        sizes = []
        for _ in range(size):
            entries, at = varint_at(body, at)
            sizes.append(entries)
    scales, at = struct.unpack_from(f"<{len(sizes)}f", body, at), at + 4 * len(sizes)
    offsets: tuple[float, ...] = ()
    if flags & 4:
        offsets, at = struct.unpack_from(f"<{len(sizes)}f", body, at), at + 4 * len(sizes)
    levels, at = slow_symbols(body, at, n, count)
    assert at == len(body)
    return levels, list(scales), list(offsets), sizes
