"""The contract of a node of a graph, and of a method of exchange; `Choco` and `DeepSqueeze` are the two methods.

A round of a node: it trains its model x to y, publishes a compressed message for all neighbours, takes their messages, and
mixes.  Both methods keep the mean of all nodes' models, up to rounding, however lossy the messages are: a neighbour subtracts
what the node adds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedcomp.compressor import Compressor
from fedcomp.core import Arrays, Vector, check_range
from fedcomp.errors import CorruptError
from fedcomp.wire import Layout

OF_A_SERVER = ("auto", "balanced")
"""Compressors that a server chooses again in each round."""
Place = tuple[int, int]
"""The version of a neighbour's messages that a node holds, and its fingerprint."""
Difference = NDArray[np.float64]
"""The vector (n,) that mixing with one neighbour adds to a node's model.  The neighbour adds its negative, to the bit."""


class Node(Protocol):
    """One node of a graph; `model` is its x and `trained` its y, float32 (n,)."""

    model: Vector
    trained: Vector

    def publish(self, trained: Vector, round_number: int, seed: int) -> None:
        """End the training of a round with the model `trained`, float32 (n,), and make the message about it."""
        ...

    def place_of(self, neighbor: int) -> Place:
        """Return the place of the neighbour's messages that this node holds."""
        ...

    def frames_from(self, place: Place) -> tuple[bytes, ...]:
        """Return the frames that lead a neighbour from the `place` that it holds to the newest message of this node."""
        ...

    def take(self, neighbor: int, frames: Sequence[bytes]) -> None:
        """Follow the frames of a neighbour.

        Raises `FedcompError` for a frame that cannot be followed; the node then holds the result of the last valid frame.
        """
        ...

    def difference(self, neighbor: int) -> Difference:
        """Return what mixing with this neighbour adds; both must have taken the other's message of this round."""
        ...

    def mix(self, present: Iterable[int]) -> None:
        """Mix the trained model with the neighbours that exchanged messages with this node in this round, both ways."""
        ...

    def to_arrays(self) -> Arrays:
        """Return everything that the node remembers, for its method's `restore`, without copying it."""
        ...


class Method(Protocol):
    """Frozen settings of a way to exchange models; `start` makes its nodes."""

    def start(self, layout: Layout, vector: Vector, weights: Mapping[int, float]) -> Node:
        """Return a node with the model `vector`, from which all nodes start, and the mixing weights of its neighbours."""
        ...

    def restore(self, layout: Layout, arrays: Arrays, weights: Mapping[int, float]) -> Node:
        """Return the node whose `to_arrays` returned `arrays`; raise one of `CORRUPTION_ERRORS` for other arrays."""
        ...


def check_settings(compressor: Compressor, step_size: float | None) -> None:
    """Refuse a compressor that needs a server or cannot contract, and a step size outside (0, 1]."""
    if compressor.name in OF_A_SERVER:
        raise ValueError(
            f"{compressor} follows a server's rounds; a method that compresses alike in each round is needed"
        )
    if step_size is not None:
        check_range("step_size", step_size, above=0, most=1)
    compressor.contracting()


def named_step_size(step_size: float | None) -> float:
    """Return the step size; raise `ValueError` if it is None."""
    if step_size is None:
        raise ValueError("step_size is None; find_step_size finds one for the graph and the model's shapes")
    return step_size


def method_text(name: str, compressor: Compressor, step_size: float | None) -> str:
    """Return the text of a method, which `parse_method` reads back."""
    return f"{name}({compressor})" if step_size is None else f"{name}({compressor}, step_size={step_size!r})"


def moved(trained: Vector, differences: Iterable[Difference]) -> Vector:
    """Return `trained` plus the sum of `differences`, added in float64, as float32; entries without a difference keep bits."""
    total: NDArray[Any] = trained.astype(np.float64)
    for difference in differences:
        np.add(total, difference, out=total, where=difference != 0)  # -0.0 + 0.0 would be 0.0
    return total.astype(np.float32)


def stored_vector(arrays: Arrays, name: str, n: int) -> Vector:
    """Return a stored vector, float32 (n,); raise `CorruptError` for another dtype or shape."""
    vector = arrays[name]
    if vector.dtype != np.float32 or vector.shape != (n,):
        raise CorruptError(f"the stored {name} is {vector.dtype} {vector.shape}; float32 ({n},) is needed")
    return vector


def under(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return the arrays with `prefix` before their names."""
    return {prefix + name: array for name, array in arrays.items()}
