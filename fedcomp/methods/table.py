"""All methods side by side, each measured on one fixed vector: what `python -m fedcomp methods` prints."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedcomp.core import RandomStream, Vector
from fedcomp.methods.registry import ABOUT

SHAPES = ((256, 384), (384,), (384, 10), (10,))
N = sum(int(np.prod(shape)) for shape in SHAPES)


@dataclass(frozen=True, slots=True)
class Row:
    """A method at its default settings: `bits` a parameter of its first body, `error` ||C(v) - v|| / ||v|| of it."""

    name: str
    settings: str
    paper: str
    keeps: str
    uplink: bool
    downlink: bool
    bits: float
    error: float


def fixed_vector() -> Vector:
    """Return the vector that all are measured on: four tensors, nearly Gaussian, of different spread; float32 (102538,)."""
    draws = RandomStream(0)
    gaussian = sum(draws.uniform(N).astype(np.float64) for _ in range(12)) - 6
    spread = np.repeat([0.01, 0.05, 0.02, 0.1], [int(np.prod(shape)) for shape in SHAPES])
    return (gaussian * spread).astype(np.float32)


def rows() -> Iterator[Row]:
    """Yield a row for each method."""
    vector = fixed_vector()
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    for name, about in ABOUT.items():
        compressor = about.make()
        state = compressor.init(N)
        body, _ = compressor.encode(vector, state, seed=1, shapes=SHAPES)
        error = float(np.linalg.norm(compressor.decode(body, N) - vector.astype(np.float64))) / norm
        parameters = inspect.signature(about.make).parameters.values()
        settings = ", ".join(f"{item.name}={item.default!r}" for item in parameters)
        keeps = ", ".join(array.replace("_", " ") for array in compressor.init(1)) or "nothing"
        bits = 8 * len(body) / N
        yield Row(name, settings or "none", about.paper, keeps, about.uplink, about.downlink, bits, error)


def lines() -> Iterator[str]:
    """Yield the table as text: three lines a method, its settings in the second, its source in the third."""
    yield f"measured at the default settings on one vector of {N} entries in {len(SHAPES)} tensors; dense is 32 bits"
    yield "error: ||C(v) - v|| / ||v|| of the first message; error feedback sends later what it lacks"
    yield ""
    yield f"{'method':<18}{'bits/param':>10}{'error':>8}  {'up':<4}{'down':<6}keeps between rounds"
    for row in rows():
        up, down = ("yes" if works else "no" for works in (row.uplink, row.downlink))
        yield f"{row.name:<18}{row.bits:>10.4f}{row.error:>8.3f}  {up:<4}{down:<6}{row.keeps}"
        yield f"    {row.settings}"
        yield f"    {row.paper}"
