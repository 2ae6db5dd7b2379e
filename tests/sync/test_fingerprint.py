"""The 64-bit fingerprint of a model."""

import numpy as np
import pytest

from fedcomp.core.compensated_update import BLOCK_ENTRIES
from fedcomp.sync.fingerprint import MODULUS_MASK, change, exact_part, fingerprint
from tests.reference import slow_fingerprint


def test_the_fingerprint_equals_a_computation_in_plain_integers() -> None:
    rng = np.random.default_rng(0)
    for n, exact in ((1, b""), (1, b"\0"), (2, b"abc"), (3000, b"x" * 1000), (2 * BLOCK_ENTRIES + 3, b"")):
        vector = rng.standard_normal(n, np.float32)
        assert fingerprint(vector, exact) == slow_fingerprint(vector, exact)


def test_known_fingerprints_do_not_change() -> None:
    # FORMAT.md's model at version 7
    assert fingerprint(np.zeros(200, np.float32), (41).to_bytes(8, "little")) == 0x802C22625D8073FB


def test_a_change_of_some_entries_equals_a_new_computation() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        n = int(rng.integers(1, 500))
        before = rng.standard_normal(n, np.float32)
        at = np.sort(rng.choice(n, int(rng.integers(0, n + 1)), replace=False))
        after = before.copy()
        after[at] += rng.standard_normal(at.size, np.float32)
        moved = fingerprint(before, b"e") + change(at, before[at], after[at]) - exact_part(b"e") + exact_part(b"f")
        assert moved & MODULUS_MASK == fingerprint(after, b"f")


@pytest.mark.parametrize("exact", [b"", b"\0" * 8])
def test_every_bit_every_place_and_the_exact_tensors_matter(exact: bytes) -> None:
    vector = np.arange(1, 33, dtype=np.float32)
    seen = {fingerprint(vector, exact), fingerprint(vector[::-1].copy(), exact), fingerprint(vector, exact + b"\0")}
    for place in range(32):
        for bit in range(32):
            other = vector.copy()
            other.view(np.uint32)[place] ^= np.uint32(1 << bit)
            seen.add(fingerprint(other, exact))
    seen.add(fingerprint(np.append(vector, np.float32(0)), exact))
    assert len(seen) == 3 + 32 * 32 + 1
