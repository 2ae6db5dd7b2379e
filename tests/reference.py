"""What the library does, done again slowly and in another way: sorting, and bits as text."""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.stage import Vector


def slow_kept(vector: Vector, k: int) -> list[int]:
    """Return the indices of the k entries of largest magnitude, zeros never, the lower index of equal ones."""
    entries = [abs(value) for value in vector.tolist()]
    order = sorted((index for index, value in enumerate(entries) if value), key=lambda index: (-entries[index], index))
    return sorted(order[:k])


def sorted_kept(vector: Vector, k: int) -> NDArray[np.int64]:
    """Return the same for a large vector, by a stable sort of all of it."""
    magnitude = np.abs(vector)
    order = np.argsort(-magnitude, kind="stable")[:k]
    return np.sort(order[magnitude[order] > 0])


def slow_stc(vector: Vector, density: float) -> Vector:
    """Return what sparse ternary compression leaves of `vector`."""
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


def varint_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint, and where the next field begins."""
    value = place = 0
    while True:
        value += data[at] % 128 * 128**place
        at, place = at + 1, place + 1
        if data[at - 1] < 128:
            return value, at


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
        quotients, remainders, signs = (bits_of(data) for data in (self.quotients, self.remainders, self.signs))
        index, place, result = -1, 0, {}
        for entry in range(self.k):
            if entry % 512 == 0:
                place = -(-place // 8) * 8
            width = self.rice[entry // 512]
            ones = quotients.index("0")
            quotients = quotients[ones + 1 :]
            run = ones * 2**width + int("0" + remainders[place : place + width], 2)
            place += width
            index += run + 1
            result[index] = -self.magnitude if signs[entry] == "1" else self.magnitude
        return result


def split_body(body: bytes) -> SplitBody:
    """Return the fields of a body of codec 2, as FORMAT.md lists them."""
    n, at = varint_at(body, 0)
    k, at = varint_at(body, at)
    magnitude = float(np.frombuffer(body, "<f4", 1, at)[0])
    at += 4
    rice = list(body[at : at + -(-k // 512)])
    at += len(rice)
    size, at = varint_at(body, at)
    counts = [512] * (k // 512) + ([k % 512] if k % 512 else [])
    length = sum(-(-count * width // 8) for count, width in zip(counts, rice, strict=True))
    return SplitBody(
        n, k, magnitude, rice, body[at : at + size], body[at + size : at + size + length], body[at + size + length :]
    )


def interleaved_entries(body: bytes) -> tuple[int, dict[int, float]]:
    """Return n and index -> value of a body of codec 3, bit by bit."""
    n, at = varint_at(body, 0)
    k, at = varint_at(body, at)
    magnitude = float(np.frombuffer(body, "<f4", 1, at)[0])
    width, bits, place, index, result = body[at + 4], bits_of(body[at + 5 :]), 0, -1, {}
    for _ in range(k):
        ones = bits.index("0", place) - place
        place += ones + 1
        index += ones * 2**width + int("0" + bits[place : place + width], 2) + 1
        result[index] = -magnitude if bits[place + width] == "1" else magnitude
        place += width + 1
    return n, result


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
