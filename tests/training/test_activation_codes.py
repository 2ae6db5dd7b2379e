"""Codes of activations: a case by hand, the bound, exact zeros and signs, and the bytes."""

import math

import pytest
import torch
from torch import Tensor

from fedcomp.training.activation_codes import CPU_CHUNK, ChosenEntries, Codes, chunks, encode, statistics
from fedcomp.training.bit_packing import unpack_bits

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def encoded(x: Tensor, bound: float, nonzero: ChosenEntries | None = None) -> Codes:
    codes = encode(x, bound, statistics(x), nonzero)
    assert codes is not None
    return codes


def test_five_entries_by_hand() -> None:
    """With a bound of 1/4 the steps are 1/2: 1.0 is in step 2, 0.3 in 0, 2.4 in 4; a code is 1 + 2 k + the sign."""
    codes = encoded(torch.tensor([0.0, 1.0, -0.3, 2.4, 0.05]), 0.25)
    assert codes.nonzero is None, "5 x 4 bits; a bitmap and the other four entries are 5 + 4 x 4"
    assert codes.width == 4
    assert unpack_bits(codes.chunks[0], 4, 5).tolist() == [0, 5, 2, 9, 1]
    assert codes.nbytes == 4
    assert codes.restore().tolist() == [0.0, 1.25, -0.25, 2.25, 0.25]


def test_one_entry_among_zeros_by_hand() -> None:
    """8 bits and a code of 2 bits, against 8 codes of 2 bits; the middle of its step, 1.25, is beyond the largest."""
    codes = encoded(torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]), 0.25)
    assert codes.nonzero is not None
    assert [bits.tolist() for bits in codes.nonzero.chunks] == [[8]]
    assert unpack_bits(codes.chunks[0], codes.width, 1).tolist() == [2]
    assert codes.nbytes == 1 + 2
    assert codes.restore().tolist() == [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_statistics_by_hand() -> None:
    found = statistics(torch.tensor([0.0, -3.0, 1.0, 0.0]))
    assert (found.least, found.most, found.nonzero, found.largest) == (-3.0, 1.0, 2.0, 3.0)
    assert found.rms == pytest.approx(math.sqrt(10 / 2))
    assert statistics(torch.zeros(3)).rms == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bound", [0.001, 0.02, 0.5, 3.0])
@pytest.mark.parametrize("kind", ["signed", "nonnegative", "mostly zero"])
def test_the_error_is_bounded_and_zeros_and_signs_are_exact(dtype: torch.dtype, bound: float, kind: str) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(CPU_CHUNK + 13, generator=generator)
    if kind == "nonnegative":
        x = x.relu()
    elif kind == "mostly zero":
        x = x * (torch.rand(len(x), generator=generator) < 0.05)
    x = x.to(dtype)
    codes = encoded(x, bound)
    restored = codes.restore()
    assert restored.dtype == dtype
    assert torch.equal(restored.sign(), x.sign())
    rounding = (x.double().abs() + bound) * torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    if torch.finfo(dtype).bits == 16:
        rounding = restored.double().abs() * torch.finfo(dtype).eps / 2 + 1e-6 * bound
    assert bool(((restored.double() - x.double()).abs() <= bound + rounding).all())
    most = int(float(x.double().abs().max()) / (2 * bound)) * (2 if kind != "nonnegative" else 1) + (
        kind != "nonnegative"
    )
    if kind == "signed":
        expected = (most + 1).bit_length() * (CPU_CHUNK // 8 + 2)
        assert codes.nbytes == expected, "two chunks; 13 entries are two groups of 8"
    else:
        kept = [int(part.count_nonzero()) for part in chunks(x)]
        sparse = sum(-(-count // 8) * max(1, most.bit_length()) for count in kept) + CPU_CHUNK // 8 + 2
        assert codes.nbytes <= sparse
        assert (codes.nonzero is not None) == (codes.nbytes == sparse)


def test_a_bitmap_that_is_there_is_shared() -> None:
    x = torch.randn(5000, generator=torch.Generator().manual_seed(0)).relu()
    nonzero = ChosenEntries.of(part > 0 for part in chunks(x))
    assert torch.equal(torch.cat(list(nonzero)), x > 0)
    assert nonzero.nbytes == 625
    codes = encoded(x, 0.01, nonzero)
    assert codes.nonzero is nonzero
    assert torch.equal(codes.restore(), encoded(x, 0.01).restore())


@pytest.mark.parametrize("kept", [1, 0.1], ids=["codes of all entries", "codes of those that are not zero"])
def test_codes_and_bitmaps_take_the_memory_that_they_say(kept: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(70_000, generator=generator) * (torch.rand(70_000, generator=generator) < kept)
    for bound in (0.5, 0.1, 0.01, 1e-3):  # widths of 2 to 12 bits
        codes = encode(x, bound, statistics(x))
        assert codes is not None
        packed = [plane for planes in codes.chunks for plane in planes]
        packed += codes.nonzero.chunks if codes.nonzero is not None else ()
        assert sum(plane.untyped_storage().nbytes() for plane in packed) == codes.nbytes


def test_zeros_of_both_signs_come_back_as_zeros() -> None:
    x = torch.tensor([0.0, -0.0] * 8)
    assert encoded(x, 0.5).restore().tolist() == [0.0] * 16


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_has_no_codes(value: float) -> None:
    x = torch.ones(64)
    x[5] = value
    assert encode(x, 0.1, statistics(x)) is None


def test_codes_that_would_save_nothing_are_none() -> None:
    """Of 17 bits; of 16 bits in place of a 16-bit dtype; with a bound below the dtype's normal numbers; with no bound."""
    x = torch.linspace(0.5, 1, 64)
    assert encode(x, 2.0**-16, statistics(x)) is not None
    assert encode(x, 2.0**-17, statistics(x)) is None
    half = x.bfloat16()
    assert encode(half, 2.0**-15, statistics(half)) is not None
    assert encode(half, 2.0**-16, statistics(half)) is None
    small = (x * 1e-6).half()
    assert encode(small, 1e-7, statistics(small)) is None
    assert encode(x, 0.0, statistics(x)) is None
    assert encode(x, math.nan, statistics(x)) is None


def test_the_largest_number_of_float16_does_not_overflow() -> None:
    x = torch.tensor([65504.0, 1.0] * 32, dtype=torch.float16)
    restored = encoded(x, 20000.0).restore()
    assert bool(restored.isfinite().all())
    assert restored[0] == 60000.0
