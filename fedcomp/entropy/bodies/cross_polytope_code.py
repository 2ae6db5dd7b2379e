"""Vertices of cross-polytopes at a fixed width: after a random rotation they are equally likely, so no entropy code gains."""

import struct
from dataclasses import dataclass

import numpy as np

from fedcomp.core import block_slices
from fedcomp.entropy.bits import packing
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.bodies import head
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import (
    MAX_LENGTH,
    MAX_RATE,
    MAX_SCALE,
    MIN_LENGTH,
    CrossPolytope,
    Rotation,
    count_symbols,
    symbol_bits,
)

HEAD = struct.Struct("<QB")
"""Seed, and the logarithm of the length of a chunk."""


@dataclass(frozen=True, slots=True)
class CrossPolytopeCode:
    """Symbols of log2(m) + 1 bits for each group of m entries.  Codec 14."""

    def encode(self, value: CrossPolytope, /) -> bytes:
        """Return the body: n, seed, the length of a chunk, rates, the upper halves of scales, and symbols by their size."""
        begin = head.write(value.n)
        parts = [begin, HEAD.pack(value.rotation.seed, value.rotation.chunk.bit_length() - 1), value.rates.tobytes()]
        parts.append((value.scales.view(np.uint32) >> 16).astype("<u2").tobytes())
        done = 0
        for size, count in count_symbols(value.rotation, value.rates, value.scales).items():
            symbols = value.symbols[done : done + count]
            blocks = (symbols[part] for part in block_slices(count, packing.BLOCK))
            parts += (packing.write(block, symbol_bits(size)) for block in blocks)
            done += count
        return b"".join(parts)

    def decode(self, value: bytes, /, n: int | None = None) -> CrossPolytope:
        """Return the rotated vector.  Takes memory for no more symbols than the body holds."""
        reader = ByteReader(value)
        total = head.read_n(reader, n)
        if not total:
            raise CorruptError("a body of 0 entries; at least 1 is needed")
        head.check_claim(value, total, n)
        seed, power = reader.unpack(HEAD, "seed and length of chunks")
        if not MIN_LENGTH <= 1 << power <= MAX_LENGTH:
            raise CorruptError(f"chunks of 2^{power} entries; {MIN_LENGTH} to {MAX_LENGTH} are allowed")
        rotation = Rotation(seed, total, 1 << power)
        rates = reader.take(rotation.num_chunks, "rates")
        if rates.max() > MAX_RATE:
            raise CorruptError(f"a rate of {rates.max()}; at most {MAX_RATE} is allowed")
        words = reader.array("<u2", rotation.num_chunks, "scales").astype(np.uint32) << 16
        scales = words.astype(np.uint32).view(np.float32)
        if not (words < MAX_SCALE.view(np.uint32)).all():
            raise CorruptError(f"a scale that is negative, NaN or {MAX_SCALE} and more")
        counts = count_symbols(rotation, rates, scales)
        needed = sum(packing.size(count, symbol_bits(size)) for size, count in counts.items())
        if needed != reader.left:
            error = TruncatedError if needed > reader.left else CorruptError
            raise error(f"{reader.left} bytes of symbols; the rates and scales need {needed}")
        symbols, begin = np.empty(sum(counts.values()), np.uint16), 0
        for size, count in counts.items():
            width, here = symbol_bits(size), symbols[begin : begin + count]
            for part, block in packing.read_blocks(reader.bits(count * width, "symbols"), width, count):
                here[part] = block
            begin += count
        return CrossPolytope(rotation, rates, scales, symbols)
