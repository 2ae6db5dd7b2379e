"""Stages join into one stage."""

import numpy as np

from fedcomp.entropy.golomb import GolombTernary
from fedcomp.lazy_sum import LazySum
from fedcomp.quantize.ternarize import Ternarize
from fedcomp.quantize.topk import TopK
from fedcomp.stage import chain


def test_a_chain_encodes_from_left_to_right_and_decodes_back() -> None:
    codec = chain(TopK(0.5), Ternarize(), GolombTernary())
    body = codec.encode(LazySum(np.array([3, 0, -1, 0.5], np.float32)))
    assert codec.decode(body).dense().tolist() == [2, 0, -2, 0]


def test_chains_of_equal_stages_are_equal() -> None:
    assert chain(TopK(0.5), Ternarize()) == chain(TopK(0.5), Ternarize())
    assert chain(TopK(0.5), Ternarize()) != chain(TopK(0.25), Ternarize())
