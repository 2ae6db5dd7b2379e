"""Quantizers join into one quantizer."""

import numpy as np

from fedcomp.core import CompensatedUpdate
from fedcomp.quantize import Ternarize, TopK, chain


def test_a_chain_applies_its_steps_from_left_to_right() -> None:
    ternary = chain(TopK(0.5), Ternarize()).quantize(CompensatedUpdate(np.array([3, 0, -1, 0.5], np.float32)))
    assert ternary.dense().tolist() == [2, 0, -2, 0]


def test_chains_of_equal_steps_are_equal() -> None:
    assert chain(TopK(0.5), Ternarize()) == chain(TopK(0.5), Ternarize())
    assert chain(TopK(0.5), Ternarize()) != chain(TopK(0.25), Ternarize())
