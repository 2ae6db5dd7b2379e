"""Stages join into one stage."""

import numpy as np

from fedcomp.core.compensated_update import CompensatedUpdate
from fedcomp.core.types import chain
from fedcomp.entropy.bodies.golomb_ternary import GolombTernary
from fedcomp.quantize.ternarize import Ternarize
from fedcomp.quantize.topk import TopK


def test_a_chain_encodes_from_left_to_right_and_decodes_back() -> None:
    codec = chain(TopK(0.5), Ternarize(), GolombTernary())
    body = codec.encode(CompensatedUpdate(np.array([3, 0, -1, 0.5], np.float32)))
    assert codec.decode(body).dense().tolist() == [2, 0, -2, 0]


def test_chains_of_equal_stages_are_equal() -> None:
    assert chain(TopK(0.5), Ternarize()) == chain(TopK(0.5), Ternarize())
    assert chain(TopK(0.5), Ternarize()) != chain(TopK(0.25), Ternarize())
