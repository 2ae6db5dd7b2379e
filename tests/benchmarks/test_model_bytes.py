"""The tables of packed models and of ZeroFL's uploads: their bytes by hand, and in small."""

from pathlib import Path

import pytest
import torch

from benchmarks import packed_models, zerofl_uploads
from fedcomp.data import load, read_card


def number(text: object) -> float:
    return float(str(text).replace(",", "").rstrip("x"))


def test_each_plug_in_has_a_row_and_fewer_bits_fewer_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_models, "MODELS", (("cnn", (1, 28, 28), 10),))
    found = {row["weights"]: number(row["cnn"]) for row in packed_models.rows()}
    assert found["float32"] == 4 * 105_866
    assert list(found) == ["float32", *packed_models.PLANS]
    for training, bits in (("quantized(8)", 8), ("quantized(4)", 4), ("quantized(2)", 2), ("quantized('binary')", 1)):
        assert 105_744 * bits / 8 + 4 * 122 <= found[training] < 105_744 * bits / 8 + 4 * 122 + 4096


def test_csr_has_eight_bytes_for_an_entry_and_four_for_a_row_and_the_end() -> None:
    tensors = {"weight": torch.tensor([[[0.0, 2.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 3.0]]]), "bias": torch.zeros(2)}
    assert zerofl_uploads.csr_bytes(tensors) == 3 * 8 + 3 * 4 + 2 * 4


def test_masked_uploads_are_smaller_in_a_frame_than_in_csr(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the weights themselves, whose change has no zeros."""
    monkeypatch.setattr(zerofl_uploads, "PAPER", {(0.9, 0.0): 4.3, (0.9, 0.1): 2.3})
    monkeypatch.setattr(zerofl_uploads, "STEPS", 2)
    found = list(zerofl_uploads.rows(load(read_card("digits", Path(__file__).parents[2] / "datasets"))))
    assert len(found) == 6
    for row in found:
        assert (number(row["fedcomp"]) < number(row["CSR"])) == (row["upload"] != "weights")
    kept = (0.1 * 13_584 * 8, 0.2 * 13_584 * 8)  # of 13,584 entries in matrices
    assert all(size < number(row["CSR"]) < size + 4 * 400 for size, row in zip(kept, found[:2], strict=True))
