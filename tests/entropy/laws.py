"""What every code must keep: values come back to the bit; damage is refused, or gives a value that can be, in little memory."""

import tracemalloc
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from random import Random
from typing import Any, TypeVar

import numpy as np
import pytest

from fedcomp.entropy import EntropyCode
from fedcomp.errors import FedcompError
from fedcomp.quantized import QuantizedVector
from tests.wire.mutations import disturb

T = TypeVar("T")


def same(one: object, other: object) -> bool:
    """Return whether two quantized vectors have equal fields, arrays to the bit."""
    return _bits(one) == _bits(other)


def check_round_trip(code: EntropyCode[Any], value: QuantizedVector) -> bytes:
    """Fail unless the body of `value`, which is returned, decodes to `value` with and without its length."""
    body = code.encode(value)
    assert same(code.decode(body), value)
    assert same(code.decode(body, n=value.n), value)
    return body


def _bits(value: Any) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple):
        return [_bits(each) for each in value]
    return (
        (type(value), *(_bits(getattr(value, field.name)) for field in fields(value))) if is_dataclass(value) else value
    )


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
