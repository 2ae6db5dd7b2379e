"""The memory of activations: rows by sample id, in memory up to a bound and in a file beyond it."""

from pathlib import Path

import numpy as np
import pytest

from fedcomp.split import ActivationMemory


@pytest.mark.parametrize("ram_rows", [0, 3, 100])
def test_rows_come_back_to_the_bit_wherever_they_are(ram_rows: int) -> None:
    rng = np.random.default_rng(1)
    memory, expected = ActivationMemory(5, ram_bytes=ram_rows * 20), dict[int, bytes]()
    for _ in range(40):
        ids = rng.choice(30, 4, replace=False)
        rows = rng.standard_normal((4, 5), np.float32)
        memory.put(ids, rows)
        expected |= {int(each): row.tobytes() for each, row in zip(ids, rows, strict=True)}
        lost = rng.choice(30, 1)
        memory.forget(lost)
        expected.pop(int(lost[0]), None)
        assert memory.ids.tolist() == sorted(expected)
        assert memory.rows(memory.ids).tobytes() == b"".join(expected[each] for each in sorted(expected))
        assert memory.knows(range(30)).tolist() == [each in expected for each in range(30)]
        assert len(expected) - memory.file_rows <= ram_rows
    assert memory.file_rows == (0 if ram_rows == 100 else memory.file_rows)
    with pytest.raises(KeyError):
        memory.rows([99])
    memory.close()


def test_the_digest_is_that_of_the_rows_in_their_order() -> None:
    memory = ActivationMemory(2, ram_bytes=8)
    memory.put([1, 2], np.array([[1, 2], [3, 4]], np.float32))
    assert memory.digest([]) == 0
    assert memory.digest([1, 2]) != memory.digest([2, 1])
    before = memory.digest([1, 2])
    memory.put([2], np.array([[3, np.nextafter(np.float32(4), np.float32(5))]], np.float32))
    assert memory.digest([1, 2]) != before
    memory.close()


def test_rows_without_entries_say_that_a_sample_is_known() -> None:
    memory = ActivationMemory(0)
    memory.put([4], np.empty((1, 0), np.float32))
    assert memory.knows([4, 5]).tolist() == [True, False]
    assert memory.rows([4]).shape == (1, 0)
    assert memory.digest([4]) == 0


def test_the_file_at_a_path_stays_for_the_next_process(tmp_path: Path) -> None:
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = tmp_path / "rows"
    memory = ActivationMemory(3, ram_bytes=0, path=path)
    memory.put([0, 7], rows)
    memory.close()
    assert path.stat().st_size == 8 * 12
    again = ActivationMemory(3, ram_bytes=0, path=path, ids=[0, 7])
    np.testing.assert_array_equal(again.rows([7, 0]), rows[::-1])
    again.close()
    path.write_bytes(path.read_bytes()[:50])
    short = ActivationMemory(3, ram_bytes=0, path=path, ids=[0, 7])
    assert short.rows([7])[0].tolist() == [0, 0, 0], "what is missing is zero, which the digest finds"
    short.close()


def test_another_process_reads_each_row_as_soon_as_it_is_put(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    memory = ActivationMemory(3, ram_bytes=0, path=path)
    memory.put([2], np.ones((1, 3), np.float32))
    other = ActivationMemory(3, ram_bytes=0, path=path, ids=[2])
    assert other.rows([2]).tolist() == [[1, 1, 1]]
    other.close()
    memory.close()
