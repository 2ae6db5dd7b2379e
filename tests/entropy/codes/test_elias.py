"""Elias codes: the codewords of the paper, then that they come back, then what is none."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.entropy.codes.elias import CODES, LIMIT, Words, delta, gamma, omega, read_delta, read_gamma, read_omega
from fedcomp.errors import CorruptError

Write = Callable[[NDArray[np.integer]], tuple[Words, Words]]
Read = Callable[[Words], tuple[Words, Words]]

codes = pytest.mark.parametrize(("write", "read"), CODES, ids=["gamma", "delta", "omega"])


def text(codeword: int, length: int) -> str:
    return f"{codeword:0{length}b}"


def windows_of(codewords: Words, lengths: Words, behind: int) -> Words:
    """Return windows that begin with the codewords; the bits of `behind` follow."""
    windows: Words = codewords << (np.uint64(64) - lengths) | np.uint64(behind) >> lengths
    return windows


@pytest.mark.parametrize(
    ("write", "table"),
    [
        (gamma, {1: "1", 2: "010", 3: "011", 4: "00100", 7: "00111", 8: "0001000", 17: "000010001"}),
        (delta, {1: "1", 2: "0100", 3: "0101", 4: "01100", 7: "01111", 8: "00100000", 17: "001010001"}),
        (
            omega,
            {
                1: "0",
                2: "100",
                3: "110",
                4: "101000",
                7: "101110",
                8: "1110000",
                15: "1111110",
                16: "10100100000",
                100: "1011011001000",
                1000: "11100111111010000",
            },
        ),
    ],
)
def test_the_codewords_are_those_of_the_textbook(write: Write, table: dict[int, str]) -> None:
    codewords, lengths = write(np.array(list(table)))
    assert codewords.dtype == lengths.dtype == np.uint64
    assert list(map(text, codewords.tolist(), lengths.tolist())) == list(table.values())


@codes
@pytest.mark.parametrize("behind", [0, 2**64 - 1, 0x5555555555555555])
def test_every_integer_comes_back_whatever_follows(write: Write, read: Read, behind: int) -> None:
    powers = 2 ** np.arange(32, dtype=np.uint64)
    values = np.concatenate((np.arange(1, 5000, dtype=np.uint64), powers, powers[1:] - 1, [np.uint64(LIMIT - 1)]))
    codewords, lengths = write(values)
    found, used = read(windows_of(codewords, lengths, behind))
    assert (found == values).all()
    assert (used == lengths).all()


@codes
def test_signed_integers_are_written_as_well(write: Write, read: Read) -> None:
    values = np.array([1, 5, 2**31], np.int64)
    codewords, lengths = write(values)
    assert read(windows_of(codewords, lengths, 0))[0].tolist() == values.tolist()


def test_lengths_follow_the_paper() -> None:
    values = np.unique(np.geomspace(1, LIMIT - 1, 3000).astype(np.uint64))
    log = [int(value).bit_length() - 1 for value in values]
    assert gamma(values)[1].tolist() == [2 * b + 1 for b in log]
    assert delta(values)[1].tolist() == [b + 2 * int(math.log2(b + 1)) + 1 for b in log]

    def omega_length(value: int) -> int:
        return 1 if value == 1 else value.bit_length() + omega_length(value.bit_length() - 1)

    assert omega(values)[1].tolist() == [omega_length(int(value)) for value in values]


@codes
def test_integers_of_as_many_digits_take_as_many_bits(write: Write, read: Read) -> None:
    for digits in range(1, 33):
        _, lengths = write(np.array([2 ** (digits - 1), 2**digits - 1]))
        assert lengths[0] == lengths[1]


@codes
@pytest.mark.parametrize("wrong", [0, LIMIT])
def test_other_integers_are_refused(write: Write, read: Read, wrong: int) -> None:
    with pytest.raises(ValueError, match=f"integers from .*{wrong}.*; Elias codes are of 1 to {LIMIT - 1}"):
        write(np.array([3, wrong]))


@pytest.mark.parametrize(
    ("read", "bits"),
    [
        (read_gamma, "0" * 64),
        (read_gamma, "0" * 32 + "1" * 32),
        (read_delta, "0" * 64),
        (read_delta, "00000100001".ljust(64, "0")),  # gamma of 33 binary digits
        (read_omega, "1" * 64),
        (read_omega, "10_100_10000_10000000000000000_1".replace("_", "").ljust(64, "0")),  # 2, 4, 16, 2^16, no zero yet
    ],
)
def test_codewords_of_larger_integers_are_refused(read: Read, bits: str) -> None:
    one = 0 if read is read_omega else 1 << 63
    windows = np.array([one, int(bits, 2)], np.uint64)
    with pytest.raises(CorruptError, match=f"an Elias codeword of an integer beyond {LIMIT - 1}"):
        read(windows)


@codes
def test_any_bits_are_a_codeword_or_refused(write: Write, read: Read) -> None:
    rng = np.random.default_rng(0)
    refused = 0
    for window in rng.integers(0, 2**64, 3000, np.uint64) >> rng.integers(0, 40, 3000).astype(np.uint64):
        try:
            value, length = read(np.array([window]))
        except CorruptError:
            refused += 1
            continue
        codeword, again = write(value)
        assert again == length
        assert codeword == window >> (np.uint64(64) - length)
    assert 0 < refused < 2900
