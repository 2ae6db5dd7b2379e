"""Bytes changed on purpose: refused, or a valid result; never another error, never much memory."""

import struct
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest

import fedcomp
from fedcomp.commands.show import describe
from fedcomp.compressor import Compressor
from fedcomp.errors import FedcompError
from fedcomp.sync import apply_frame, from_key_frame
from fedcomp.sync.replica import LENGTH
from fedcomp.wire import FLAG_EXACT, Frame, Kind, frame, server_message
from tests.wire.mutants import mutant
from tests.wire.mutations import disturb, seal_frame, seal_server_message
from tests.wire.specimens import SETTINGS

GOLDEN = Path(__file__).parents[1] / "golden"
STARTS = (b"", b"FCMP", b"FCMP\1\2", b"FCIN\1\0")
FILES = sorted(path for path in GOLDEN.iterdir() if path.suffix in (".frame", ".message"))


SHAPES = {1: ((),), 31: ((4, 5), (0, 3), (11,)), 1000: ((25, 30), (50,), (10, 20)), 5000: ((60, 70), (60,), (37, 20))}
FIXED_BYTES = 400_000
"""Bytes that decoding may take for any vector: tables and blocks."""


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def encoded_by(compressor: Compressor) -> list[tuple[int, bytes]]:
    """Return n and body of dense and sparse vectors of several lengths, with known shapes and without."""
    rng = np.random.default_rng(7)
    encoded = []
    for n, shapes in SHAPES.items():
        gaussian = rng.standard_normal(n, np.float32)
        few = np.where(rng.random(n) < 0.02, gaussian, np.float32(0))
        for vector, known in ((gaussian, shapes), (few, ()), (gaussian**5, ())):
            encoded.append((n, compressor.encode(vector, compressor.init(n), seed=3, shapes=known)[0]))
    return encoded


def refused_by(reader: Callable[[bytes], object], data: bytes) -> bool:
    """Return whether `reader` refuses `data`; any error but a `FedcompError` is raised."""
    try:
        reader(data)
    except FedcompError:
        return True
    return False


def described(data: bytes) -> list[str]:
    return list(describe(data))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_changed_files_are_refused_by_their_checksums(path: Path) -> None:
    rng = Random(0)
    data = path.read_bytes()
    read: Callable[[bytes], object] = (
        server_message.parse_server_message if path.suffix == ".message" else frame.parse_single_frame
    )
    for _ in range(300):
        changed = disturb(rng, data)
        assert changed == data or refused_by(read, changed)
        refused_by(described, changed)


@pytest.mark.parametrize("name", fedcomp.METHODS)
def test_changed_bodies_of_every_method_take_memory_for_the_vector_that_is_needed(name: str) -> None:
    for settings in SETTINGS.get(name, ("",)):
        compressor = fedcomp.parse(f"{name}({settings})")
        encoded = encoded_by(compressor)
        rng = Random(9)
        for n, body in encoded[-3:]:
            for _ in range(4):
                changed = disturb(rng, body, rng.choice(encoded)[1])
                tracemalloc.start()
                refused_by(partial(compressor.decode, n=n), changed)
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                assert peak < 4 * 4 * n + 32 * len(changed) + FIXED_BYTES, f"{compressor}: {changed.hex()}"


def test_changed_and_sealed_server_messages_are_refused_or_valid() -> None:
    rng = Random(5)
    data = golden("plain.message")
    text = 16
    for _ in range(500):
        behind = data[52 + text :] if rng.random() < 0.5 else disturb(rng, data[52 + text :])
        packed = seal_server_message(disturb(rng, data[: 52 + text]) + behind)
        refused_by(described, packed)
        try:
            message, frames = server_message.parse_server_message(packed)
        except FedcompError:
            continue
        assert message.to_bytes() == packed
        assert len(message.frames) == len(frames)


def test_mutants_are_described_or_refused() -> None:
    """`test_fuzz.py` sends mutants to the receivers that they are meant for."""
    refused = sum(refused_by(described, mutant(7, number).data) for number in range(600))
    assert 200 < refused < 600


def test_random_bytes_are_refused() -> None:
    rng = Random(6)
    for _ in range(400):
        data = rng.choice(STARTS) + rng.randbytes(rng.randrange(300))
        for read in (frame.parse_single_frame, server_message.parse_server_message, described):
            assert refused_by(read, data)


def test_a_hundred_bytes_that_promise_gigabytes_take_no_memory() -> None:
    held = from_key_frame(frame.parse_single_frame(golden("key.frame")))
    bodies = []
    for count in (2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**64 - 1):
        head = golden("delta.frame")[:40] + struct.pack("<Q", count) + bytes(4)
        bodies.append(seal_frame(head + bytes(50), length=False))
    texts = [
        b'[["w","float32",[2147483648],"compressed"]]',
        b'[["w","float64",[2],"compressed"],["x","int64",[2147483648],"exact"]]',
    ]
    payloads = [*(LENGTH.pack(len(text)) + text + bytes(60) for text in texts), LENGTH.pack(2**32 - 1)]
    bodies += [Frame(Kind.KEY, 0, FLAG_EXACT, 0, 0, 0, 0, 0, payload).to_bytes() for payload in payloads]
    here = (held.version, held.version + 1, held.layout.digest, held.fingerprint, 0)
    for codec in (1, 2, 3):
        bodies.append(
            Frame(Kind.DELTA, codec, 0, *here, bytes.fromhex("8080808008 ffffff7f 0000003f 00 00")).to_bytes()
        )
        bodies.append(Frame(Kind.DELTA, codec, 0, *here, bytes.fromhex("8205 ffffff7f 0000003f 00 00")).to_bytes())
    tracemalloc.start()
    for body in bodies:
        assert refused_by(lambda data: apply_frame(held, frame.parse_single_frame(data)), body)
        assert refused_by(described, body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300_000
