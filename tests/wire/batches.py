"""Undamaged batches of split learning, for models of any size: `fuzz.py` changes them.  `fedcomp.split` needs torch."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedcomp.entropy import write_varint
from fedcomp.split import ActivationMemory

SAMPLES = 10
"""The samples that both ends know: their activations together have the entries of the model."""
NEW_SAMPLES = 2
"""Those of a batch that come for the first time."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """What both ends hold of the known samples, with its digest; the head and the first visits of a batch of all samples."""

    memory: ActivationMemory
    digest: int
    head: bytes
    first: bytes

    @property
    def row_size(self) -> int:
        """The entries of an activation."""
        return self.memory.row_size


@lru_cache(maxsize=8)
def batch(n: int) -> Batch:
    """Return the batch whose known activations have `n` entries, a multiple of `SAMPLES`."""
    rng = np.random.default_rng(n)
    memory = ActivationMemory(n // SAMPLES)
    memory.put(range(SAMPLES), rng.standard_normal((SAMPLES, n // SAMPLES), np.float32))
    count = SAMPLES + NEW_SAMPLES
    is_new = np.arange(count) >= SAMPLES
    labels = b"".join(write_varint(7 + each) for each in range(NEW_SAMPLES))
    head = b"".join((write_varint(count), *map(write_varint, range(count)), np.packbits(is_new).tobytes(), labels))
    first = rng.standard_normal((NEW_SAMPLES, n // SAMPLES), np.float32).tobytes()
    return Batch(memory, memory.digest(range(SAMPLES)), head, first)
