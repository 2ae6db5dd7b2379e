"""Where a seed places the entries of a vector, and the signs that it gives them."""

import numpy as np
import pytest

from fedcomp.core import Vector
from fedcomp.quantized import MAX_CHUNK, Rotation, power_of_two_parts
from fedcomp.quantized.rotation import MIN_CHUNK, padded
from tests.reference import coins

SIZES = [1, 2, 31, 63, 64, 65, 7850, 2 * MAX_CHUNK - 1, 2 * MAX_CHUNK, 3 * MAX_CHUNK + 5]


def blocks(vector: Vector) -> list[tuple[int, Vector]]:
    return [(start, vector[start : start + MAX_CHUNK]) for start in range(0, vector.size, MAX_CHUNK)]


def placed(rotation: Rotation, vector: Vector) -> Vector:
    """Return the values of all places."""
    values, buffer = np.empty(rotation.places, np.float32), np.full(rotation.block_size, np.nan, np.float32)
    for places in rotation.rotated(blocks(vector), buffer):
        values[places] = buffer[: places.stop - places.start]
    return values


def test_chunks_and_places_are_counted_by_hand() -> None:
    # 7850 entries take 123 chunks of 64: 4096, 2048, 1024, 512, 128 and 64
    assert padded(7850) == 7872
    assert [part.stop - part.start for part in power_of_two_parts(7872)] == [4096, 2048, 1024, 512, 128, 64]
    assert (Rotation(0, 7850).rest, Rotation(0, 7850).places, Rotation(0, 7850).num_chunks) == (7850, 7872, 6)
    # three chunks and five entries: two whole ones, then a rest of 65541 in 65536 and 64 places
    long = Rotation(0, 3 * MAX_CHUNK + 5)
    assert (long.rest, long.places, long.num_chunks) == (MAX_CHUNK + 5, 3 * MAX_CHUNK + 64, 4)
    assert [Rotation(0, n).places for n in (1, 2, 3, 31, 63, 64, 65)] == [1, 2, 4, 32, 64, 64, 128]


@pytest.mark.parametrize("n", SIZES)
def test_blocks_are_consecutive_and_their_chunks_powers_of_two(n: int) -> None:
    rotation, start, chunks = Rotation(0, n), 0, 0
    for places in rotation.blocks():
        assert places.start == start
        assert places.stop - start <= rotation.block_size <= 2 * MAX_CHUNK
        for part in power_of_two_parts(places.stop - start):
            length = part.stop - part.start
            assert length.bit_count() == 1
            assert min(n, MIN_CHUNK) <= length <= MAX_CHUNK
            chunks += 1
        start = places.stop
    assert (start, chunks) == (rotation.places, rotation.num_chunks)
    assert n <= rotation.places < n + MIN_CHUNK


@pytest.mark.parametrize("n", SIZES)
def test_each_entry_is_in_the_place_of_the_format_times_its_sign(n: int) -> None:
    rotation, vector = Rotation(9, n), np.arange(1, n + 1, dtype=np.float32)
    values = placed(rotation, vector)
    shift = int(np.random.PCG64(np.random.SeedSequence([9, 3])).random_raw()) % rotation.rest
    whole = n - rotation.rest
    place = np.arange(n)
    place[whole:] = whole + (np.arange(rotation.rest) + shift) % rotation.rest
    assert np.array_equal(values[place], np.where(coins(9, n), -vector, vector))
    assert not values[n:].any()


@pytest.mark.parametrize("n", SIZES)
def test_restoring_gives_the_entries_back_in_order(n: int) -> None:
    rotation, vector = Rotation(9, n), np.random.default_rng(n).standard_normal(n).astype(np.float32)
    values, found, end = placed(rotation, vector), np.empty(n, np.float32), 0
    for part, entries in rotation.restored((places, values[places]) for places in rotation.blocks()):
        assert part.start == end
        found[part], end = entries, part.stop
    assert found.tobytes() == vector.tobytes()


def test_every_entry_of_the_rest_is_in_every_place_for_some_seed() -> None:
    vector = np.arange(1, 11, dtype=np.float32)
    places = {tuple(np.abs(placed(Rotation(seed, 10), vector)[:10])) for seed in range(200)}
    assert places == {tuple(np.roll(vector, shift)) for shift in range(10)}
