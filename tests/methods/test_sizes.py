"""Measured bodies against the papers' formulas and the entropy of their content: no method is silently a no-op."""

import math
from typing import Any

import numpy as np
import pytest

import fedcomp
from benchmarks.formulas import FORMULAS, paper_bits, position_bits
from fedcomp.core import Shapes, Vector
from fedcomp.entropy import SparseLevelsCode

SHAPES: Shapes = ((400, 300), (300,), (300, 200), (200,), (200, 100), (100,))
SIZES = [math.prod(shape) for shape in SHAPES]
N = sum(SIZES)
HEAD = 8 * 80  # bits of n, k, shapes, modes and lengths

AS_THE_PAPER = (
    "dense()",
    "stc(density=0.01)",
    "stc(density=0.01, order='interleaved')",
    "topk(density=0.01)",
    "topk(density=0.05, values='fp16')",
    "topk(density=0.05, values='bf16')",
    "randk(density=0.01)",
    "selective(density=0.05)",
    "hierarchical(density=0.1)",
    "regtopk(density=0.02)",
    "ef21(density=0.01)",
    "signsgd()",
    "onebit()",
    "efsign()",
    "doublesqueeze()",
    "doublesqueeze(codec='topk')",
    "ternary()",
    "drive()",
    "eden(bits=2)",
    "eden(bits=0.1)",
    "eden(bits=1.5)",
    "powersgd(rank=2)",
)
ENTROPY_CODED = (
    "qsgd(levels=7)",
    "qsgd(levels=1, norm='l2')",
    "ecqsgd()",
    "natural()",
    "natural_dithering()",
    "terngrad()",
    "terngrad(scaler='power')",
    "doublesqueeze(codec='random')",
    "cgx(bits=4)",
    "cgx(bits=2, bucket=256)",
)
FIXED_WIDTH_POSITIONS = {
    "dgc(density=0.01)": 32,
    "sparseloco(density=0.0156, bits=2)": 2,
    "sparseloco(density=0.05, bits=3)": 3,
}
"""Methods whose papers send positions of fixed width, which fedcomp Golomb-codes -> the bits of a value."""
LOSSLESS = {"dense"}


def gaussian() -> Vector:
    return np.random.default_rng(0).standard_normal(N, np.float32)


def measured(text: str) -> tuple[float, Vector]:
    compressor = fedcomp.parse(text)
    body, _ = compressor.encode(gaussian(), compressor.init(N), seed=1, shapes=SHAPES)
    return 8 * len(body), compressor.decode(body, N)


def paper(text: str) -> float:
    bits = paper_bits(fedcomp.parse(text), SHAPES)
    assert bits is not None
    return bits


def entropy(symbols: np.ndarray) -> float:
    """Return the empirical entropy of the symbols, all of them together, in bits."""
    _, counts = np.unique(symbols, return_counts=True)
    return float(-(counts * np.log2(counts / symbols.size)).sum())


def test_every_method_with_a_formula_is_here() -> None:
    named = {fedcomp.parse(text).name for text in (*AS_THE_PAPER, *ENTROPY_CODED, *FIXED_WIDTH_POSITIONS)}
    assert named == set(FORMULAS) <= set(fedcomp.METHODS)


@pytest.mark.parametrize("text", AS_THE_PAPER)
def test_the_body_is_as_large_as_the_paper_says_within_5_percent_and_a_head(text: str) -> None:
    bits, vector = measured(text)
    assert paper(text) * 0.95 - HEAD <= bits <= paper(text) * 1.05 + HEAD
    changed = not np.array_equal(vector, gaussian())
    assert changed == (fedcomp.parse(text).name not in LOSSLESS)


@pytest.mark.parametrize(("text", "value_bits"), FIXED_WIDTH_POSITIONS.items())
def test_golomb_coded_positions_take_fewer_bits_than_the_papers_fixed_width(text: str, value_bits: int) -> None:
    bits, vector = measured(text)
    kept = np.count_nonzero(vector)
    expected = kept * (position_bits(kept / N) + value_bits)
    assert expected * 0.95 - HEAD <= bits <= expected * 1.05 + HEAD
    assert bits < paper(text)


@pytest.mark.parametrize("text", ENTROPY_CODED)
def test_entropy_coded_levels_take_no_more_than_the_paper_says_and_what_their_entropy_says(text: str) -> None:
    bits, vector = measured(text)
    assert not np.array_equal(vector, gaussian())
    assert bits <= paper(text) * 1.05 + HEAD
    settings = dict(fedcomp.parse(text).settings)
    levels, scales = levels_of(text, vector)
    expected = entropy(levels) + 32 * scales
    assert expected * 0.95 - HEAD <= bits <= expected * 1.05 + HEAD, settings


def levels_of(text: str, vector: Vector) -> tuple[np.ndarray, int]:
    """Return the level of each entry, recovered from the decoded values, and the number of float32 in the body."""
    compressor = fedcomp.parse(text)
    settings: dict[str, Any] = {"bucket": 512, "bits": 4} | dict(compressor.settings)
    if compressor.name in ("natural", "terngrad", "doublesqueeze"):
        return vector if compressor.name == "natural" else np.sign(vector), 6
    if compressor.name == "cgx":
        bucket = 1024 if settings["bucket"] == 512 else settings["bucket"]
        large = [vector[start : start + size] for start, size in starts() if size >= 1024]
        buckets = [tensor[at : at + bucket] for tensor in large for at in range(0, tensor.size, bucket)]
        steps = 2 ** settings["bits"] - 1
        levels = [np.round((one - one.min()) / (one.max() - one.min()) * steps) for one in buckets]
        return np.concatenate(levels), 2 * len(buckets) + sum(size for size in SIZES if size < 1024)
    bucket = settings["bucket"]
    scaled = [vector[at : at + bucket] / np.abs(vector[at : at + bucket]).max() for at in range(0, N, bucket)]
    return np.round(np.concatenate(scaled), 4), -(-N // bucket)


def starts() -> list[tuple[int, int]]:
    """Return where each tensor begins, and its size."""
    ends = np.cumsum(SIZES).tolist()
    return [(end - size, size) for end, size in zip(ends, SIZES, strict=True)]


def test_the_size_of_fastsgds_body_follows_from_its_widths() -> None:
    """The widths are those of delta keys; where other positions are smaller, the body has these."""
    compressor = fedcomp.parse("fastsgd(levels=8)")
    smallest, _ = compressor.encode(gaussian(), compressor.init(N), seed=1, shapes=SHAPES)
    body = SparseLevelsCode("delta keys").encode(SparseLevelsCode().decode(smallest, N))
    assert len(smallest) <= len(body)
    bits, vector = 8 * len(body), compressor.decode(body, N)
    kept = np.flatnonzero(vector)
    gaps = np.diff(kept, prepend=-1)
    lengths = np.floor(np.log2(gaps)).astype(int) + 1
    keys = min(float(((width + 1) * -(-lengths // width)).sum()) for width in range(1, 17))
    magnitudes = np.abs(vector[kept])
    expected = keys + kept.size + min(3 * kept.size, entropy(magnitudes))
    assert expected * 0.95 - HEAD <= bits <= expected * 1.05 + HEAD
    assert 0.001 < kept.size / N < 0.5


def test_the_expected_bits_of_a_position_are_the_papers() -> None:
    assert position_bits(1 / 100) == pytest.approx(8.108, abs=0.001)
    assert position_bits(1 / 400) == pytest.approx(10.114, abs=0.001)
