"""Seeds for compressors that draw random numbers, derived so that no two messages share a seed."""

import numpy as np

MASK_64 = (1 << 64) - 1


def derive_seed(*parts: int) -> int:
    """Return a seed, 0 to 2^64 - 1, that depends on all `parts`; parts below 0 or from 2^64 on are taken modulo 2^64."""
    words = [part & MASK_64 for part in parts]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
