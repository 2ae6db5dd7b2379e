"""What nodes that live in one process need not do each for itself, nor through bytes.

A `LocalGrid` for studies gives it to its nodes as their ``Context.state``.  The messages stay the same to the byte.
"""

import copy
import time
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, RecordDict
from numpy.typing import NDArray

from fedcomp.flower.client.client_state import ClientState
from fedcomp.flower.lazy_array import LazyArray, record_of
from fedcomp.sync import DeltaStep, Replica, from_key_frame
from fedcomp.wire import Frame

CACHE_BYTES = 1 << 28
"""Bytes of steps that are kept."""


class DecodeCache:
    """Steps from version to version, worked out once for all nodes, and the newest model as plain arrays.

    `spared` are the seconds that the work took when it was done: a node on its own would have spent them too.
    """

    def __init__(self) -> None:
        """Begin with nothing worked out."""
        self.saved_seconds = 0.0
        self._steps: OrderedDict[Frame, tuple[DeltaStep, float]] = OrderedDict()
        self._size = 0
        self._key: tuple[Frame, Replica, float] | None = None
        self._plain: tuple[tuple[int, int, int], dict[str, NDArray[Any]]] | None = None

    def step(self, replica: Replica, frame: Frame) -> DeltaStep:
        """Return ``Step.of(replica, frame)``, which is the same for every replica of the frame's base version."""
        known = self._steps.get(frame)
        if known is not None:
            self.saved_seconds += known[1]
            return known[0]
        begin = time.perf_counter()
        step = DeltaStep.of(replica, frame)
        self._steps[frame] = (step, time.perf_counter() - begin)
        self._size += step.size
        while self._size > CACHE_BYTES:
            self._size -= self._steps.popitem(last=False)[1][0].size
        return step

    def begin(self, frame: Frame) -> Replica:
        """Return ``from_key_frame(frame)``; the newest key frame is worked out once."""
        if self._key is None or self._key[0] != frame:
            since = time.perf_counter()
            replica = from_key_frame(frame)
            self._key = (frame, replica, time.perf_counter() - since)
        else:
            self.saved_seconds += self._key[2]
        return replace(self._key[1], vector=self._key[1].vector.copy())  # a replica's vector is its own

    def plain(self, replica: Replica) -> ArrayRecord:
        """Return the replica's tensors, local ones apart, as a ClientApp gets them."""
        mark = (replica.layout.digest, replica.version, replica.fingerprint)
        if self._plain is None or self._plain[0] != mark:
            self._plain = (mark, {name: np.array(array) for name, array in replica.arrays().items()})
        return record_of({name: LazyArray(array) for name, array in self._plain[1].items()})


class InMemoryState(RecordDict):
    """A ``Context.state`` in which the mod's part stays a value; what the app puts beside it is as ever."""

    def __init__(self, shared: DecodeCache) -> None:
        """Begin with nothing remembered."""
        super().__init__()
        self.shared = shared
        self.client = ClientState()

    def copy(self) -> "InMemoryState":
        """Return the same, with a table of its own for the app's records."""
        twin = super().copy()
        twin.shared, twin.client = self.shared, self.client
        return twin

    def snapshot(self) -> "InMemoryState":
        """Return what is remembered now, whatever is done with it later."""
        twin = self.copy()
        twin.client = copy.deepcopy(self.client)
        return twin
