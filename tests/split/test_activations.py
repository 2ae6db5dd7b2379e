"""The frames of activations and gradients: one sample by hand, what holds for every batch, and damage."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import fedcomp
from fedcomp.compressor import Compressor
from fedcomp.errors import CorruptError, DivergedError, FedcompError, LayoutError, VersionError
from fedcomp.split import (
    ActivationMemory,
    Activations,
    read_activations,
    read_gradient,
    write_activations,
    write_gradient,
)
from fedcomp.wire import Frame, Kind, parse_single_frame

Rows = NDArray[np.float32]
COMPRESSORS = [
    "dense()",
    "cgx(bits=2)",
    "qsgd(levels=1)",
    "eden(bits=2)",
    "topk(density=0.2, feedback=False)",
    "natural()",
]


def read(frame: Frame, memory: ActivationMemory, size: int = 3, *, direct: bool = False) -> Activations:
    return read_activations(frame, memory, (size,), max_batch=100, max_samples=1000, direct=direct)


def test_one_sample_by_hand() -> None:
    """(1, 2, 3) comes in full.  Of the change (0, 3, 1.4), four levels from 0 to 3 leave (0, 3, 1): both ends hold (1, 5, 4).

    What is missing, (0, 0, 0.4), is in the next change, which four levels from 0 to 0.4 hold.
    """
    sender, receiver = ActivationMemory(3), ActivationMemory(3)
    visits = [((1, 2, 3), (1, 2, 3)), ((1, 5, 4.4), (1, 5, 4)), ((1, 5, 4.4), (1, 5, 4.4))]
    for visit, (activation, expected) in enumerate(visits):
        frame = write_activations([8], np.array([activation], np.float32), [2], sender, fedcomp.cgx(bits=2))
        batch = read(frame, receiver)
        np.testing.assert_allclose(batch.rows, [expected], rtol=1e-6)
        assert (batch.first.tolist(), batch.labels.tolist()) == ([visit == 0], [2] if visit == 0 else [])
        for memory in (sender, receiver):
            memory.put(batch.ids, batch.rows)


def test_one_gradient_by_hand() -> None:
    """Of (0, 3, 1.4), four levels from 0 to 3 leave (0, 3, 1)."""
    gradient = np.array([[0, 3, 1.4]], np.float32)
    frame = write_gradient(gradient, fedcomp.cgx(bits=2), number=7)
    np.testing.assert_allclose(read_gradient(frame, 1, (3,), 7), [[0, 3, 1]], rtol=1e-6)


@pytest.mark.parametrize("text", COMPRESSORS)
def test_both_ends_hold_the_same_bits_after_any_batches(text: str) -> None:
    rng, compressor = np.random.default_rng(3), fedcomp.parse(text)
    sender, receiver = ActivationMemory(40), ActivationMemory(40, ram_bytes=3 * 160)
    for turn in range(30):
        ids = rng.choice(20, 6, replace=False)
        rows = rng.standard_normal((6, 40), np.float32)
        frame = write_activations(ids, rows, ids % 3, sender, compressor, seed=turn)
        frame = parse_single_frame(frame.to_bytes())
        if rng.random() < 0.3:
            continue  # lost: neither end keeps it
        batches = [read(frame, memory, 40) for memory in (sender, receiver)]
        for memory, batch in zip((sender, receiver), batches, strict=True):
            memory.put(batch.ids, batch.rows)
        assert batches[1].ids.tolist() == ids.tolist()
        assert batches[0].rows.tobytes() == batches[1].rows.tobytes()
        np.testing.assert_array_equal(batches[1].rows[batches[1].first], rows[batches[1].first])
        assert batches[1].labels.tolist() == (ids % 3)[batches[1].first].tolist()
    assert sender.ids.tolist() == receiver.ids.tolist()
    assert sender.digest(sender.ids) == receiver.digest(sender.ids) != 0
    receiver.close()


@pytest.mark.parametrize("compressor", [fedcomp.cgx(bits=2), fedcomp.qsgd(levels=3, bucket=40), fedcomp.eden(bits=2)])
def test_activations_that_do_not_change_any_more_arrive_exactly_in_the_end(compressor: Compressor) -> None:
    memory = ActivationMemory(40)
    rows = np.random.default_rng(0).standard_normal((5, 40), np.float32)
    memory.put(range(5), rows)
    target, errors = rows + np.random.default_rng(1).standard_normal((5, 40), np.float32), list[float]()
    for turn in range(12):
        batch = read(write_activations(range(5), target, [0] * 5, memory, compressor, seed=turn), memory, 40)
        memory.put(batch.ids, batch.rows)
        errors.append(float(np.abs(batch.rows - target).max()))
    assert errors[-1] < 1e-2 * errors[0]


def test_without_a_memory_each_visit_has_the_error_of_the_first() -> None:
    memory, rows = ActivationMemory(0), np.random.default_rng(0).standard_normal((5, 40), np.float32)
    found = list[bytes]()
    for _ in range(3):
        frame = write_activations(range(5), rows, [1] * 5, memory, fedcomp.cgx(bits=2), direct=True)
        batch = read(frame, memory, 40, direct=True)
        assert batch.labels.size == (0 if found else 5)
        memory.put(batch.ids, batch.rows[:, :0])
        found.append(batch.rows.tobytes())
    assert len(set(found)) == 1
    assert found[0] != rows.tobytes()


def test_memories_that_differ_in_one_bit_are_found() -> None:
    rows = np.random.default_rng(0).standard_normal((4, 3), np.float32)
    sender, receiver = ActivationMemory(3), ActivationMemory(3)
    for memory in (sender, receiver):
        memory.put(range(4), rows)
    frame = write_activations([2, 1], rows[:2], [0, 0], sender, fedcomp.dense())
    rows[1, 2] = np.nextafter(rows[1, 2], np.float32(9))
    receiver.put([1], rows[1:2])
    with pytest.raises(VersionError, match="memories"):
        read(frame, receiver)
    receiver.forget([1])
    with pytest.raises(VersionError, match="memories"):
        read(frame, receiver)


def test_frames_of_another_cut_batch_or_kind_are_refused() -> None:
    memory, rows = ActivationMemory(3), np.ones((2, 3), np.float32)
    frame = write_activations([1, 5], rows, [0, 1], memory, fedcomp.dense())
    with pytest.raises(LayoutError):
        read(frame, memory, 4)
    with pytest.raises(CorruptError, match="2 samples; 1 to 1"):
        read_activations(frame, memory, (3,), max_batch=1, max_samples=9)
    with pytest.raises(CorruptError, match="id is 5; different ones below 5"):
        read_activations(frame, memory, (3,), max_batch=2, max_samples=5)
    with pytest.raises(CorruptError, match="different ones"):
        read(write_activations([5, 5], rows, [0, 1], memory, fedcomp.dense()), memory)
    with pytest.raises(CorruptError, match="flags 0x8 is needed"):
        read(frame, memory, direct=True)
    gradient = write_gradient(rows, fedcomp.dense(), number=3)
    with pytest.raises(CorruptError, match="GRADIENT"):
        read(gradient, memory)
    with pytest.raises(CorruptError, match="ACTIVATION"):
        read_gradient(frame, 2, (3,), 0)
    with pytest.raises(VersionError, match="message 3; that of 4"):
        read_gradient(gradient, 2, (3,), 4)
    with pytest.raises(LayoutError):
        read_gradient(gradient, 2, (4,), 3)
    with pytest.raises(FedcompError):
        read_gradient(gradient, 3, (3,), 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_sent(value: float) -> None:
    rows = np.array([[1, value, 3]], np.float32)
    memory = ActivationMemory(3)
    with pytest.raises(DivergedError):
        write_activations([1], rows, [0], memory, fedcomp.cgx(bits=4))
    with pytest.raises(DivergedError):
        write_gradient(rows, fedcomp.cgx(bits=4))
    memory.put([1], np.zeros((1, 3), np.float32))
    with pytest.raises(DivergedError):
        write_activations([1], rows, [0], memory, fedcomp.cgx(bits=4))


@pytest.mark.parametrize("value", [np.inf, np.nan, -2e15])
def test_activations_beyond_any_use_are_refused(value: float) -> None:
    memory, rows = ActivationMemory(3), np.ones((1, 3), np.float32)
    frame = write_activations([1], rows, [0], memory, fedcomp.dense())
    end = np.float32(value).tobytes()
    with pytest.raises(CorruptError, match="magnitude"):
        read(replace(frame, payload=frame.payload[:-4] + end), memory)
    memory.put([1], rows)
    frame = write_activations([1], 5e14 * rows, [0], memory, fedcomp.dense())
    memory.put([1], 6e14 * rows)
    with pytest.raises(CorruptError, match="magnitude 1.1e.15"):
        read(replace(frame, before=memory.digest([1])), memory)


@pytest.mark.parametrize("text", ["cgx(bits=2)", "eden(bits=2)", "topk(density=0.2, feedback=False)", "dense()"])
def test_damaged_payloads_are_refused_within_bounded_memory_or_read_as_what_they_say(text: str) -> None:
    rng = np.random.default_rng(5)
    memory = ActivationMemory(12)
    memory.put(range(4), rng.standard_normal((4, 12), np.float32))
    rows = rng.standard_normal((6, 12), np.float32)
    frame = write_activations(range(6), rows, range(6), memory, fedcomp.parse(text))
    gradient = write_gradient(rows, fedcomp.parse(text), number=1)
    refused = 0
    for turn in range(600):
        original = gradient if turn % 3 == 0 else frame
        data = bytearray(original.payload)
        for _ in range(int(rng.integers(1, 4))):
            data[int(rng.integers(min(40, len(data)) if turn % 2 else len(data)))] = int(rng.integers(256))
        data = data[: int(rng.integers(len(data) + 1))] if turn % 5 == 0 else data
        codec = int(rng.integers(14)) if turn % 7 == 0 else original.codec
        mutant = replace(original, payload=bytes(data), codec=codec)
        try:
            if original is gradient:
                assert np.isfinite(read_gradient(mutant, 6, (12,), 1)).all()
            else:
                batch = read(mutant, memory, 12)
                assert np.isfinite(batch.rows).all()
                assert batch.rows.shape[1] == 12
                assert len(batch.ids) <= 100
        except FedcompError:
            refused += 1
    assert refused > 120
    assert memory.ids.tolist() == [0, 1, 2, 3], "reading changes no memory"
    assert parse_single_frame(frame.to_bytes()).kind is Kind.ACTIVATION
