"""Vertices of cross-polytopes at a fixed width: after a random rotation they are equally likely, so no entropy code gains."""

import struct
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Vector
from fedcomp.entropy.bits import packing
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.bodies import head
from fedcomp.entropy.bodies.rotated_code import read_scales
from fedcomp.errors import CorruptError, TruncatedError
from fedcomp.quantized import MAX_RATE, CrossPolytope, Rotation, count_symbols

SEED = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class CrossPolytopeCode:
    """Symbols of log2(m) + 1 bits for each group of m entries.  Codec 14."""

    def encode(self, value: CrossPolytope, /) -> bytes:
        """Return the body: n, seed, the rate of each block, the scale of each chunk, and the symbols of each width."""
        begin, symbols = head.write(value.n), list[bytes]()
        for width, parts in _parts(value.rotation, value.rates, value.scales).items():
            here = np.concatenate([value.symbols[part] for part in parts])
            symbols += (
                packing.write(here[at : at + packing.BLOCK], width) for at in range(0, here.size, packing.BLOCK)
            )
        return b"".join(
            (
                begin,
                SEED.pack(value.rotation.seed),
                value.rates.tobytes(),
                value.scales.astype("<f4", copy=False).tobytes(),
                *symbols,
            )
        )

    def decode(self, value: bytes, /, n: int | None = None) -> CrossPolytope:
        """Return the rotated vector.  Takes memory for no more symbols than the body holds."""
        reader = ByteReader(value)
        total = head.read_n(reader, n)
        if not total:
            raise CorruptError("a body of 0 entries; at least 1 is needed")
        head.check_claim(value, total, n)
        (seed,) = reader.unpack(SEED, "seed")
        rotation = Rotation(seed, total)
        rates = reader.take(rotation.num_blocks, "rates")
        if rates.max() > MAX_RATE:
            raise CorruptError(f"a rate of {rates.max()}; at most {MAX_RATE} is allowed")
        scales = read_scales(reader, rotation.num_chunks)
        parts = _parts(rotation, rates, scales)
        counts = {width: sum(part.stop - part.start for part in here) for width, here in parts.items()}
        needed = sum(packing.size(count, width) for width, count in counts.items())
        if needed != reader.left:
            error = TruncatedError if needed > reader.left else CorruptError
            raise error(f"{reader.left} bytes of symbols; the rates and scales need {needed}")
        symbols = np.empty(sum(counts.values()), np.uint16)
        for width, count in counts.items():
            here = np.empty(count, np.uint16)
            for block, values in packing.read_blocks(reader.bits(count * width, "symbols"), width, count):
                here[block] = values
            done = 0
            for part in parts[width]:
                symbols[part] = here[done : done + part.stop - part.start]
                done += part.stop - part.start
        return CrossPolytope(rotation, rates, scales, symbols)


def _parts(rotation: Rotation, rates: NDArray[np.uint8], scales: Vector) -> dict[int, list[slice]]:
    """Return the parts of the symbols that have each width, the widths in ascending order."""
    parts: defaultdict[int, list[slice]] = defaultdict(list)
    done = 0
    for width, count in count_symbols(rotation, rates, scales):
        if count:
            parts[width].append(slice(done, done + count))
            done += count
    return dict(sorted(parts.items()))
