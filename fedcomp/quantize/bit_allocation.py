"""How many bits an entry of each layer gets, so that all take few bits and add little error."""

import heapq
from collections.abc import Sequence

FEWEST, MOST = 2, 8


def rounding_error(square: float, bits: int) -> float:
    """Return the error of rounding to 2^bits levels: `square` over (2^bits - 1)^2.

    `square` is the sum of range^2 / 12 over a layer's entries, each with the range of its bucket: what rounding adds to the
    squared error where entries are spread evenly between two levels.
    """
    return square / ((1 << bits) - 1) ** 2


def allocate(entries: Sequence[int], squares: Sequence[float], bits: int, tolerance: float) -> list[int]:
    """Return the bits of each layer, 2 to 8, with at most `tolerance` times the error of `bits` everywhere.

    In the style of the adaptive compression of CGX (Markov, Ramezanikebrya, Alistarh, Middleware 2022), with a solver of our
    own: all begin at 8; again and again the layer that saves most bits for the error that it adds goes down by one, as
    long as the error allows it.  The error is convex in the bits, so a layer's next step down is never better than its last.
    `entries` and `squares` (`rounding_error`) are those of the layers.
    """
    allowed = tolerance * sum(rounding_error(square, bits) for square in squares)
    chosen = [MOST] * len(entries)
    error = sum(rounding_error(square, MOST) for square in squares)
    heap = [
        (_added(square, MOST) / size, layer) for layer, (size, square) in enumerate(zip(entries, squares, strict=True))
    ]
    heapq.heapify(heap)
    while heap:
        _, layer = heapq.heappop(heap)
        added = _added(squares[layer], chosen[layer])
        if error + added > allowed:
            continue  # a smaller layer may still fit
        error += added
        chosen[layer] -= 1
        if chosen[layer] > FEWEST:
            heapq.heappush(heap, (_added(squares[layer], chosen[layer]) / entries[layer], layer))
    uniform = [bits] * len(entries)
    # A step too large for what is left can make the search end early: then the same bits everywhere may be fewer.
    return uniform if tolerance >= 1 and _total(uniform, entries) < _total(chosen, entries) else chosen


def _added(square: float, bits: int) -> float:
    return rounding_error(square, bits - 1) - rounding_error(square, bits)


def _total(bits: Sequence[int], entries: Sequence[int]) -> int:
    return sum(each * size for each, size in zip(bits, entries, strict=True))
