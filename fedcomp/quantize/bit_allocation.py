"""How many bits an entry of each layer gets, so that all take few bits and add little error."""

import heapq
from collections.abc import Sequence

MIN_ADAPTIVE_BITS, MAX_ADAPTIVE_BITS = 2, 8


def rounding_error(square: float, bits: int) -> float:
    """Return the error of rounding to 2^bits levels: `square` over (2^bits - 1)^2.

    `square` is the sum of range^2 / 12 over a layer's entries, each with the range of its bucket: what rounding adds to the
    squared error where entries are spread evenly between two levels.
    """
    return square / ((1 << bits) - 1) ** 2


def least_tolerance(bits: int) -> float:
    """Return the least `tolerance` that `allocate` can keep: with it, every layer has the most bits."""
    return rounding_error(1, MAX_ADAPTIVE_BITS) / rounding_error(1, bits)


def allocate(entries: Sequence[int], squares: Sequence[float], bits: int, tolerance: float) -> list[int]:
    """Return the bits of each layer, 2 to 8, with at most `tolerance` times the error of `bits` everywhere.

    In the style of the adaptive compression of CGX (Markov, Ramezanikebrya, Alistarh, Middleware 2022), with fedcomp's own
    greedy solver: all layers start at 8 bits; the layer that saves the most bits for the error that it adds loses one, as
    long as the error allows it.  The error is convex in the bits, so a layer's next step down is never better than its last.
    `entries` and `squares` (`rounding_error`) are those of the layers.  A `tolerance` below `least_tolerance` is not kept.
    """
    allowed = tolerance * sum(rounding_error(square, bits) for square in squares)
    chosen = [MAX_ADAPTIVE_BITS] * len(entries)
    error = sum(rounding_error(square, MAX_ADAPTIVE_BITS) for square in squares)
    heap = [
        (_added(square, MAX_ADAPTIVE_BITS) / size, layer)
        for layer, (size, square) in enumerate(zip(entries, squares, strict=True))
    ]
    heapq.heapify(heap)
    while heap:
        _, layer = heapq.heappop(heap)
        added = _added(squares[layer], chosen[layer])
        if error + added > allowed:
            continue  # a smaller layer may still fit
        error += added
        chosen[layer] -= 1
        if chosen[layer] > MIN_ADAPTIVE_BITS:
            heapq.heappush(heap, (_added(squares[layer], chosen[layer]) / entries[layer], layer))
    uniform = [bits] * len(entries)
    # If no step fits the remaining error, the search ends early, and uniform bits may be fewer.
    return uniform if tolerance >= 1 and _total(uniform, entries) < _total(chosen, entries) else chosen


def _added(square: float, bits: int) -> float:
    return rounding_error(square, bits - 1) - rounding_error(square, bits)


def _total(bits: Sequence[int], entries: Sequence[int]) -> int:
    return sum(each * size for each, size in zip(bits, entries, strict=True))
