"""The task of a node: the user's own code, with any library."""

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

Model = Mapping[str, Any]
"""Tensors by name: numpy arrays in, numpy or torch out."""
Kept = Mapping[str, NDArray[Any]]


class Task(Protocol):
    """The training of one node.  The settings name a function ``make(node, num_nodes, seed, **settings)`` that returns it."""

    def first_model(self) -> Mapping[str, NDArray[Any]]:
        """Return the model from which all nodes start: the same bits on each node."""
        ...

    def train(self, model: Mapping[str, NDArray[Any]], kept: Kept, round_number: int) -> tuple[Model, Kept]:
        """Return the model after the training of a round, and arrays to keep for the next round, such as a momentum.

        A node that was killed trains the round again, from the same `model` and `kept`.
        """
        ...

    def evaluate(self, model: Mapping[str, NDArray[Any]], round_number: int) -> Mapping[str, float]:
        """Return the results of a model after mixing, by name, such as accuracy; empty in a round without evaluation.

        The names are those of entries in ``rounds.jsonl``, which has others already, such as ``round`` and ``seconds``.
        """
        ...
