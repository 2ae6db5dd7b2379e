"""Elias codes of the integers from 1 up, for arrays: gamma, delta and omega, and how windows of bits are read back.

Elias, "Universal Codeword Sets and Representations of the Integers", IEEE Trans. Inf. Theory 21(2), 1975.  A codeword is the
low bits of a uint64; a window is the next 64 bits of a stream, the first one on top.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedcomp.errors import CorruptError

Words = NDArray[np.uint64]
LIMIT = 1 << 32
"""Only integers below it are written: their codewords fit 64 bits in all three codes."""

_ONE = np.uint64(1)
_MOST = np.uint64(31)  # of floor(log2 v)


def gamma(values: NDArray[np.integer]) -> tuple[Words, Words]:
    """Return (codewords, lengths): as many zeros as bits follow the first one, then the binary digits."""
    words = _checked(values)
    return words, 2 * _log2(words) + _ONE


def delta(values: NDArray[np.integer]) -> tuple[Words, Words]:
    """Return (codewords, lengths): the number of binary digits in gamma, then the digits but the first one."""
    words = _checked(values)
    log = _log2(words)
    codewords = words + (log << log)  # (log + 1) << log, and the digits without their first one
    return codewords, log + 2 * _log2(log + _ONE) + _ONE


def omega(values: NDArray[np.integer]) -> tuple[Words, Words]:
    """Return (codewords, lengths): the binary digits and a zero, before them their number less one, and so on down to 1."""
    group = _checked(values)
    codewords, lengths = np.zeros_like(group), np.ones_like(group)
    while (group > 1).any():
        log = _log2(group)
        more = group > 1
        codewords |= np.where(more, group << lengths, 0)
        lengths += np.where(more, log + _ONE, 0)
        group = np.where(more, log, _ONE)
    return codewords, lengths


def read_gamma(windows: Words) -> tuple[Words, Words]:
    """Return (values, lengths of their codewords) of the codewords that the windows begin with."""
    zeros = _leading_zeros(windows)
    return windows >> (np.uint64(63) - 2 * zeros), 2 * zeros + _ONE


def read_delta(windows: Words) -> tuple[Words, Words]:
    """Return (values, lengths of their codewords) of the codewords that the windows begin with."""
    digits, used = read_gamma(windows)
    log = digits - _ONE
    _refuse(log > _MOST)
    # Two shifts, since one by 64 bits is not what a processor does.
    return _ONE << log | windows << used >> _ONE >> (np.uint64(63) - log), used + log


def read_omega(windows: Words) -> tuple[Words, Words]:
    """Return (values, lengths of their codewords) of the codewords that the windows begin with."""
    values, lengths = np.ones_like(windows), np.zeros_like(windows)
    while (more := windows << lengths >> np.uint64(63) == 1).any():
        _refuse(more & (values > _MOST))
        digits = np.where(more, values + _ONE, 0)
        values = np.where(more, windows << lengths >> np.uint64(63) - values, values)
        lengths += digits
    return values, lengths + _ONE


Code = tuple[Callable[[NDArray[np.integer]], tuple[Words, Words]], Callable[[Words], tuple[Words, Words]]]
CODES: tuple[Code, ...] = ((gamma, read_gamma), (delta, read_delta), (omega, read_omega))
"""Writer and reader of each code."""


def _checked(values: NDArray[np.integer]) -> Words:
    if values.size and not 1 <= values.min() <= values.max() < LIMIT:
        raise ValueError(f"integers from {values.min()} to {values.max()}; Elias codes are of 1 to {LIMIT - 1}")
    return values.astype(np.uint64)


def _log2(words: Words) -> Words:
    """Return floor(log2 v) of 1 <= v < 2^53, from the exponent of the float64."""
    return (words.astype(np.float64).view(np.uint64) >> np.uint64(52)) - np.uint64(1023)


def _leading_zeros(windows: Words) -> Words:
    high = windows >> np.uint64(32)
    _refuse(high == 0)
    return np.uint64(31) - _log2(high)


def _refuse(wrong: NDArray[np.bool_]) -> None:
    if wrong.any():
        raise CorruptError(f"an Elias codeword of an integer beyond {LIMIT - 1}")
