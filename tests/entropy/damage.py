"""Damage that every reader must stand: it raises a FedcompError or returns a value that can be, in little memory."""

import tracemalloc
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from random import Random
from typing import TypeVar

import pytest

from fedcomp.errors import FedcompError
from tests.wire.mutations import disturb

T = TypeVar("T")


def check_truncations(read: Callable[[bytes], object], data: bytes) -> None:
    """Fail unless `read` refuses every beginning of `data`."""
    for length in range(len(data)):
        with pytest.raises(FedcompError):
            read(data[:length])


def survivors(read: Callable[[bytes], T], data: bytes, changes: int) -> Iterator[T]:
    """Yield the values of damaged copies of `data` that `read` does not refuse, of `changes` copies."""
    rng = Random(len(data))
    for _ in range(changes):
        try:
            value = read(disturb(rng, data))
        except FedcompError:
            continue
        yield value


@contextmanager
def memory_below(limit: int) -> Generator[None]:
    """Fail if the block takes `limit` bytes of memory or more."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit


def check_cheap_refusals(read: Callable[[bytes], object], bodies: list[bytes], limit: int = 200_000) -> None:
    """Fail unless `read` refuses all `bodies`, with less than `limit` bytes of memory."""
    with memory_below(limit):
        for body in bodies:
            with pytest.raises(FedcompError):
                read(body)
