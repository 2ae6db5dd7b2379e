"""Quantizers join into one quantizer, and one of them loses nothing."""

import numpy as np

from fedcomp.core import CompensatedUpdate
from fedcomp.quantize import Identity, Ternarize, TopK, chain


def test_a_chain_applies_its_steps_from_left_to_right() -> None:
    ternary = chain(TopK(0.5), Ternarize()).quantize(CompensatedUpdate(np.array([3, 0, -1, 0.5], np.float32)))
    assert ternary.dense().tolist() == [2, 0, -2, 0]


def test_identity_keeps_every_entry_to_the_bit_in_a_copy() -> None:
    value = np.array([1, -0.0, 2.0**-149], np.float32)
    quantized = Identity().quantize(CompensatedUpdate(value))
    assert quantized.dense().tobytes() == value.tobytes()
    assert not np.shares_memory(quantized.vector, value)
