"""Independent, slow implementations of parts of the library: by sorting, and with bits as text."""

import hashlib
import math
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector


def slow_kept(vector: Vector, k: int) -> list[int]:
    """Return the indices of the k entries of largest magnitude, without zeros; of equal ones, those with lower indices."""
    entries = [abs(value) for value in vector.tolist()]
    order = sorted((index for index, value in enumerate(entries) if value), key=lambda index: (-entries[index], index))
    return sorted(order[:k])


def sorted_kept(vector: Vector, k: int) -> NDArray[np.int64]:
    """Return the same for a large vector, by a stable sort."""
    magnitude = np.abs(vector)
    order = np.argsort(-magnitude, kind="stable")[:k]
    return np.sort(order[magnitude[order] > 0])


def slow_stc(vector: Vector, density: float) -> Vector:
    """Return `vector` after sparse ternary compression."""
    result = np.zeros_like(vector)
    kept = slow_kept(vector, max(1, math.ceil(density * len(vector))))
    if kept:
        magnitude = np.float32(math.fsum(abs(float(vector[index])) for index in kept) / len(kept))
        for index in kept:
            result[index] = math.copysign(magnitude, vector[index])
    return result


def bits_of(data: bytes) -> str:
    """Return the bits as zeros and ones, the most significant one of each byte first."""
    return "".join(f"{byte:08b}" for byte in data)


def varint_at(data: bytes, offset: int) -> tuple[int, int]:
    """Return a varint, and the offset of the next field."""
    value = place = 0
    while True:
        value += data[offset] % 128 * 128**place
        offset, place = offset + 1, place + 1
        if data[offset - 1] < 128:
            return value, offset


def rice_indices(rice: list[int], quotients: bytes, remainders: bytes, k: int) -> list[int]:
    """Return the indices in split Golomb-Rice streams: a Rice parameter for each chunk of 512."""
    unary, low = bits_of(quotients), bits_of(remainders)
    index, place, result = -1, 0, []
    for entry in range(k):
        if entry % 512 == 0:
            place = -(-place // 8) * 8
        width = rice[entry // 512]
        ones = unary.index("0")
        unary = unary[ones + 1 :]
        index += ones * 2**width + int("0" + low[place : place + width], 2) + 1
        place += width
        result.append(index)
    return result


def rice_stream(data: bytes, offset: int, k: int) -> tuple[list[int], bytes, bytes, int]:
    """Return Rice parameters, quotients, remainders, and the offset of the next field."""
    rice = list(data[offset : offset + -(-k // 512)])
    size, offset = varint_at(data, offset + len(rice))
    counts = [512] * (k // 512) + ([k % 512] if k % 512 else [])
    end = offset + size + sum(-(-count * width // 8) for count, width in zip(counts, rice, strict=True))
    return rice, data[offset : offset + size], data[offset + size : end], end


@dataclass(frozen=True, slots=True)
class SplitBody:
    """The fields of a body of codec 2."""

    n: int
    k: int
    magnitude: float
    rice: list[int]
    quotients: bytes
    remainders: bytes
    signs: bytes

    def entries(self) -> dict[int, float]:
        """Return index -> value, bit by bit."""
        indices = rice_indices(self.rice, self.quotients, self.remainders, self.k)
        signs = bits_of(self.signs)
        return {
            index: -self.magnitude if sign == "1" else self.magnitude
            for index, sign in zip(indices, signs, strict=False)
        }


def split_body(body: bytes) -> SplitBody:
    """Return the fields of a body of codec 2, as FORMAT.md lists them."""
    n, offset = varint_at(body, 0)
    k, offset = varint_at(body, offset)
    magnitude = float(np.frombuffer(body, "<f4", 1, offset)[0])
    offset += 4
    rice, quotients, remainders, offset = rice_stream(body, offset, k)
    return SplitBody(n, k, magnitude, rice, quotients, remainders, body[offset:])


def ternary_entries(body: bytes) -> tuple[int, dict[int, float]]:
    """Return n and index -> value of a body of codec 12, bit by bit."""
    n, offset = varint_at(body, 0)
    k, offset = varint_at(body, offset)
    magnitude = float(np.frombuffer(body, "<f4", 1, offset)[0])
    indices, offset = slow_positions(body, offset + 4, n, k)
    signs = bits_of(body[offset:])
    assert len(signs) == -(-k // 8) * 8
    return n, {index: -magnitude if sign == "1" else magnitude for index, sign in zip(indices, signs, strict=False)}


def interleaved_entries(body: bytes) -> tuple[int, dict[int, float]]:
    """Return n and index -> value of a body of codec 3, bit by bit."""
    n, offset = varint_at(body, 0)
    k, offset = varint_at(body, offset)
    magnitude = float(np.frombuffer(body, "<f4", 1, offset)[0])
    width, bits, place, index, result = body[offset + 4], bits_of(body[offset + 5 :]), 0, -1, {}
    for _ in range(k):
        ones = bits.index("0", place) - place
        place += ones + 1
        index += ones * 2**width + int("0" + bits[place : place + width], 2) + 1
        result[index] = -magnitude if bits[place + width] == "1" else magnitude
        place += width + 1
    return n, result


def slow_positions(data: bytes, offset: int, n: int, k: int) -> tuple[list[int], int]:
    """Return the indices in a stream of positions, bit by bit, and the offset of the next field."""
    kind, offset = data[offset], offset + 1
    if kind == 0:
        return list(range(n)), offset
    if kind == 1:
        rice, quotients, remainders, offset = rice_stream(data, offset, k)
        return rice_indices(rice, quotients, remainders, k), offset
    if kind == 2:
        end = offset + -(-n // 8)
        return [index for index, bit in enumerate(bits_of(data[offset:end])) if bit == "1"], end
    if kind == 4:
        lengths, offset = slow_symbols(data, offset, k, 32)
        gaps, offset = slow_gamma(data, offset, lengths)
        return [sum(gaps[: place + 1]) - 1 for place in range(k)], offset
    assert kind == 3
    width = data[offset]
    size, offset = varint_at(data, offset + 1)
    groups = [ones.count("1") + 1 for ones in bits_of(data[offset : offset + size]).split("0")[:k]]
    offset += size
    gaps = [0] * k
    for most in range(1, max(groups) + 1):
        places = [place for place, found in enumerate(groups) if found == most]
        end = offset + -(-len(places) * most * width // 8)
        bits, offset = bits_of(data[offset:end]), end
        for order, place in enumerate(places):
            gaps[place] = int(bits[order * most * width : (order + 1) * most * width], 2)
    return [sum(gaps[: place + 1]) - 1 for place in range(k)], offset


def slow_set(data: bytes, offset: int, bound: int) -> tuple[list[int], int]:
    """Return the symbols of a set, and the offset of the next field."""
    size, offset = varint_at(data, offset)
    width, bits = (bound - 1).bit_length(), bits_of(data[offset:])
    if size == bound:
        return list(range(bound)), offset
    if size * width <= bound:
        return [int(bits[place * width :][:width], 2) for place in range(size)], offset + -(-size * width // 8)
    return [symbol for symbol in range(bound) if bits[symbol] == "1"], offset + -(-bound // 8)


def slow_fixed(data: bytes, offset: int, count: int, bound: int) -> tuple[list[int], int]:
    """Return symbols at fixed width (`plain_alphabet.FIXED`), bit by bit, and the offset of the next field."""
    assert data[offset] == 0
    used, offset = slow_set(data, offset + 1, bound)
    width = (len(used) - 1).bit_length()
    end = offset + -(-count * width // 8)
    bits = bits_of(data[offset:end])
    return [used[int("0" + bits[place * width : (place + 1) * width], 2)] for place in range(count)], end


def slow_huffman(data: bytes, offset: int, count: int, bound: int) -> tuple[list[int], int]:
    """Return symbols in Huffman code, bit by bit, and the offset of the next field."""
    assert data[offset] == 2
    used, offset = slow_set(data, offset + 1, bound)
    digits, offset, numbers = data[offset], offset + 1, list(range(len(used)))
    if digits > 1:
        numbers, offset = slow_set(data, offset, len(used) ** digits)
    bits = bits_of(data[offset : offset + -(-len(numbers) // 2)])
    offset += -(-len(numbers) // 2)
    lengths = [int(bits[4 * place : 4 * place + 4], 2) for place in range(len(numbers))]
    words, total = {}, 0.0
    for length, number in sorted(zip(lengths, numbers, strict=True)):
        words[format(int(total * 2**length), f"0{length}b")] = number
        total += 2.0**-length
    chunk, tuples = 1 << data[offset], -(-count // digits)
    size, offset = varint_at(data, offset + 1)
    if tuples > chunk:
        _, offset = varint_at(data, offset)
        offset += 1 + -(-(-(-tuples // chunk) - 1) * data[offset] // 8)
    bits, offset = bits_of(data[offset : offset + -(-size // 8)])[:size], offset + -(-size // 8)
    found: list[int] = []
    word = ""
    for bit in bits:
        word += bit
        if word in words:
            number, word = words[word], ""
            found += [used[number // len(used) ** place % len(used)] for place in reversed(range(digits))]
    return found[:count], offset


def slow_symbols(data: bytes, offset: int, count: int, bound: int) -> tuple[list[int], int]:
    """Return symbols at fixed width or in Huffman code, and the offset of the next field."""
    return (slow_huffman if data[offset] == 2 else slow_fixed)(data, offset, count, bound)


def slow_gamma(data: bytes, offset: int, lengths: list[int]) -> tuple[list[int], int]:
    """Return numbers of these lengths, whose lower bits follow, and the offset of the next field."""
    numbers = [1 << length for length in lengths]
    for length in range(1, max(lengths) + 1):
        places = [place for place, found in enumerate(lengths) if found == length]
        end = offset + -(-len(places) * length // 8)
        bits, offset = bits_of(data[offset:end]), end
        for order, place in enumerate(places):
            numbers[place] |= int(bits[order * length : (order + 1) * length], 2)
    return numbers, offset


def slow_values(data: bytes, offset: int, k: int) -> tuple[list[float], int]:
    """Return the values in a stream of values, one by one, and the offset of the next field."""
    form, offset = data[offset], offset + 1
    if form == 0:
        return [struct.unpack_from("<f", data, offset + 4 * place)[0] for place in range(k)], offset + 4 * k
    if form == 1:
        halves = [b"\0\0" + data[offset + 2 * place : offset + 2 * place + 2] for place in range(k)]
        return [struct.unpack("<f", half)[0] for half in halves], offset + 2 * k
    if form == 2:
        scale, offset = struct.unpack_from("<h", data, offset)[0], offset + 2
        return [
            struct.unpack_from("<e", data, offset + 2 * place)[0] / 2.0**scale for place in range(k)
        ], offset + 2 * k
    assert form == 3
    signs = bits_of(data[offset : offset + -(-k // 8)])
    exponents, offset = slow_symbols(data, offset + -(-k // 8), k, 255)
    magnitudes = [2.0 ** (exponent - 127) if exponent else 0.0 for exponent in exponents]
    return [-value if sign == "1" else value for value, sign in zip(magnitudes, signs, strict=False)], offset


def sparse_entries(body: bytes) -> tuple[int, dict[int, float]]:
    """Return n and index -> value of a body of codec 4, bit by bit."""
    n, offset = varint_at(body, 0)
    k, offset = varint_at(body, offset)
    indices, offset = slow_positions(body, offset, n, k)
    values, offset = slow_values(body, offset, k)
    assert offset == len(body)
    return n, dict(zip(indices, values, strict=True))


def levels_entries(body: bytes) -> tuple[int, dict[int, float]]:
    """Return n and index -> value of a body of codec 5, bit by bit; its symbols must be at fixed width."""
    n, offset = varint_at(body, 0)
    k, offset = varint_at(body, offset)
    form, count, offset = body[offset], body[offset + 1] + 1, offset + 2
    if form == 0:
        magnitudes, offset = list(struct.unpack_from(f"<{count}f", body, offset)), offset + 4 * count
    else:
        (first, base), offset = struct.unpack_from("<fd", body, offset), offset + 12
        magnitudes = [first]
        while len(magnitudes) < count:
            magnitudes.append(magnitudes[-1] / base)
        magnitudes = [float(np.float32(magnitude)) for magnitude in magnitudes]
    indices, offset = slow_positions(body, offset, n, k)
    signs = bits_of(body[offset : offset + -(-k // 8)])
    levels, offset = [0] * k, offset + -(-k // 8)
    if count > 1:
        levels, offset = slow_fixed(body, offset, k, count)
    assert offset == len(body)
    values = [
        -magnitudes[level] if sign == "1" else magnitudes[level] for level, sign in zip(levels, signs, strict=False)
    ]
    return n, dict(zip(indices, values, strict=True))


def steps_entries(body: bytes) -> tuple[int, dict[int, int]]:
    """Return n and index -> count of a body of codec 11, bit by bit."""
    n, offset = varint_at(body, 0)
    k, offset = varint_at(body, offset)
    shift = body[offset]
    indices, offset = slow_positions(body, offset + 1, n, k)
    signs = bits_of(body[offset : offset + -(-k // 8)])
    lengths, offset = slow_symbols(body, offset + -(-k // 8), k, 31)
    counts, offset = slow_gamma(body, offset, lengths)
    assert offset == len(body)
    signed = [-count << shift if sign == "1" else count << shift for count, sign in zip(counts, signs, strict=False)]
    return n, dict(zip(indices, signed, strict=True))


def coins(seed: int, count: int, stream: int = 0) -> NDArray[np.bool_]:
    """Return the first coins of a stream of `seed`: the bits of its words, byte by byte from the lowest byte."""
    words = np.random.PCG64(np.random.SeedSequence([seed, stream])).random_raw(-(-count // 64))
    return np.unpackbits(words.astype("<u8").view(np.uint8), count=count).view(np.bool_)


def random_words(seed: int, stream: int, count: int) -> NDArray[np.uint64]:
    """Return the first 64-bit outputs of a stream of `seed`."""
    return np.random.PCG64(np.random.SeedSequence([seed, stream])).random_raw(count)


def slow_subset(seed: int, n: int, k: int) -> list[int]:
    """Return the k indices below n that stream 2 of `seed` draws, ascending."""
    if 2 * k > n:
        left = set(slow_subset(seed, n, n - k))
        return [index for index in range(n) if index not in left]
    drawn = [word % n for word in random_words(seed, 2, 4 * k + 100).tolist() if word < 2**64 // n * n]
    return sorted(list(dict.fromkeys(drawn))[:k])


CENTROIDS = {
    1: (0.7978846,),
    2: (0.4527800, 1.5104176),
    3: (0.2450942, 0.7560053, 1.3439093, 2.1519457),
    4: (0.1283950, 0.3880483, 0.6567591, 0.9423405, 1.2562312, 1.6180464, 2.0690172, 2.7325896),
}


def level_value(level: int, bits: int) -> float:
    """Return the value of a level of this many bits, unless all levels have one bit."""
    positive = CENTROIDS[bits]
    return positive[level - len(positive)] if level >= len(positive) else -positive[len(positive) - 1 - level]


def level_widths(seed: int, bits: float, places: int) -> list[int]:
    """Return the bits of the level in each place."""
    if bits <= 1:
        return [1] * places
    halves = random_words(seed, 1, places // 32 + 1).astype("<u8").view("<u2").tolist()
    return [int(bits) + (halves[place // 8] < int(bits % 1 * 65536)) for place in range(places)]


def slow_places(k: int, chunk: int = 65536) -> tuple[int, list[int]]:
    """Return how many of k entries are the rest, and the lengths of all chunks."""
    rest = k if k < 2 * chunk else chunk + k % chunk
    left = next(size for size in range(rest, 2 * rest + 64) if size % 64 == 0 or (rest < 64 and size.bit_count() == 1))
    chunks = [chunk] * ((k - rest + left) // chunk)
    return rest, chunks + [1 << power for power in range(15, -1, -1) if left % chunk >> power & 1]


def slow_rotated(n: int, seed: int, bits: float, scales: list[float], levels: list[int]) -> Vector:
    """Return the vector of a body of codec 8, rotated back as FORMAT.md says."""
    k = n if bits >= 1 else max(1, math.floor(bits * n + 0.5))
    _, chunks = slow_places(k)
    widths = level_widths(seed, bits, sum(chunks))
    pairs = zip(levels, widths, strict=True)
    values = np.array([2 * level - 1 if bits <= 1 else level_value(level, width) for level, width in pairs], np.float32)
    entries = rotated_back(k, seed, scales, values)
    if bits >= 1:
        return entries
    vector = np.zeros(n, np.float32)
    vector[slow_subset(seed, n, k)] = entries
    return vector


def rotated_back(k: int, seed: int, scales: list[float], values: Vector) -> Vector:
    """Return the k entries whose chunks have these scales and values, of codec 8; the values are overwritten."""
    start = 0
    for length, scale in zip(slow_places(k)[1], scales, strict=True):
        butterflies(values[start : start + length], int(math.log2(length)))
        values[start : start + length] *= np.float32(0.5 ** (int(math.log2(length)) // 2))
        values[start : start + length] *= np.float32(scale)
        start += length
    return placed_back(k, seed, values, 65536)


def butterflies(values: Vector, count: int) -> None:
    """Add and subtract values that are half of the vector apart, then a quarter, and so on, in place."""
    half = len(values) // 2
    for _ in range(count):
        low = np.arange(len(values)).reshape(-1, 2 * half)[:, :half].ravel()
        values[low], values[low + half] = values[low] + values[low + half], values[low] - values[low + half]
        half //= 2


def placed_back(k: int, seed: int, values: Vector, chunk: int) -> Vector:
    """Return the k entries of these places: the rest shifted back, and signs."""
    rest, _ = slow_places(k, chunk)
    shift = int(random_words(seed, 3, 1)[0]) % rest
    place = [index if index < k - rest else k - rest + (index - k + rest + shift) % rest for index in range(k)]
    return np.where(coins(seed, k), -values[place], values[place])


def cross_polytope_entries(body: bytes) -> Vector:
    """Return the vector of a body of codec 14, as FORMAT.md says."""
    n, offset = varint_at(body, 0)
    seed, power = struct.unpack_from("<QB", body, offset)
    _, chunks = slow_places(n, 2**power)
    rates, offset = list(body[offset + 9 : offset + 9 + len(chunks)]), offset + 9 + len(chunks)
    halves, offset = np.frombuffer(body, "<u2", len(chunks), offset), offset + 2 * len(chunks)
    scales = [struct.unpack("<f", struct.pack("<HH", 0, half))[0] for half in halves.tolist()]
    groups: list[tuple[int, list[int]]] = []  # size, its places
    start = 0
    for d, rate, scale in zip(chunks, rates, scales, strict=True):
        small = min(2 * 2 ** (rate // 16), d)
        large = min(2 * small, d)
        border = d if rate % 16 == 0 else d * (16 - rate % 16) // 16 // large * large
        for size, begin, end in ((small, 0, border), (large, border, d)):
            count = (end - begin) // size
            groups += [(size, list(range(start + begin + i, start + end, count))) for i in range(count) if scale]
        start += d
    values = np.zeros(start, np.float32)
    for size in sorted({size for size, _ in groups}):
        named, width = [places for each, places in groups if each == size], int(math.log2(size)) + 1
        text = bits_of(body[offset : offset + -(-len(named) * width // 8)])
        offset += len(text) // 8
        for number, places in enumerate(named):
            symbol = text[number * width : (number + 1) * width]
            values[places[int("0" + symbol[:-1], 2)]] = -1 if symbol[-1] == "1" else 1
    assert offset == len(body)
    start, signs = 0, np.where(coins(seed, 2**power, 5), -1, 1)
    for d, scale in zip(chunks, scales, strict=True):
        chunk, bits = values[start : start + d], int(math.log2(d))
        butterflies(chunk, bits)
        chunk *= signs[:d]
        more = min(6, (bits + 1) // 2)
        butterflies(chunk, more)
        chunk *= np.float32(0.5 ** ((bits + more) // 2))
        chunk *= np.float32(scale)
        start += d
    return placed_back(n, seed, values, 2**power)


def rotated_entries(body: bytes) -> Vector:
    """Return the vector of a body of codec 8."""
    n, offset = varint_at(body, 0)
    seed, bits = struct.unpack_from("<Qf", body, offset)
    _, chunks = slow_places(n if bits >= 1 else max(1, math.floor(bits * n + 0.5)))
    offset, places = offset + 12, sum(chunks)
    scales, offset = np.frombuffer(body, "<f4", len(chunks), offset).tolist(), offset + 4 * len(chunks)
    width, widths = max(1, int(bits)), level_widths(seed, bits, places)
    text = bits_of(body[offset : offset + -(-places * width // 8)])
    last, order, levels = bits_of(body[offset + -(-places * width // 8) :]), 0, []
    for place in range(places):
        level = text[place * width : (place + 1) * width]
        if widths[place] > width:
            level += last[8 * order + place % 8]
            order += place % 8 == 7 or place == places - 1
        levels.append(int(level, 2))
    return slow_rotated(n, seed, bits, scales, levels)


def slow_fingerprint(vector: Vector, exact: bytes) -> int:
    """Return the fingerprint in Python's integers."""
    word = 2**64 - 1
    total = int.from_bytes(hashlib.blake2b(exact, digest_size=8).digest(), "little") if exact else 0
    for index, value in enumerate(vector.astype("<f4").view("<u4").tolist()):
        x = (index << 32 | value) + 0x9E3779B97F4A7C15 & word
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & word
        x = (x ^ x >> 27) * 0x94D049BB133111EB & word
        total += x ^ x >> 31
    return total & word


def expected_position_bits(p: float, rice: int) -> float:
    """Return the expected bits of a position, independent ones kept with probability p: STC, TNNLS 2020, section V."""
    return rice + 1 / (1 - math.pow(1 - p, 2**rice))


def entropy_bits(n: int, k: int) -> float:
    """Return n H2(k/n) + k, the entropy of independent positions and signs."""
    p = k / n
    return n * (-p * math.log2(p) - (1 - p) * math.log2(1 - p)) + k
