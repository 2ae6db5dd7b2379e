"""Node state and decoded frames in memory, for the many nodes of a `LocalGrid`; messages stay the same to the byte."""

import copy
import time
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from fedcomp.core import Arrays
from fedcomp.flower.client.client_state import ClientState, for_training
from fedcomp.flower.compat import view_record
from fedcomp.sync import DeltaStep, Origin, Replica, from_key_frame
from fedcomp.wire import Frame

CACHE_BYTES = 1 << 28
"""The most bytes of decoded delta frames that a cache keeps."""


class DecodeCache:
    """Decodes each frame once for all nodes of a process, and keeps the newest model as plain arrays.

    `saved_seconds` are the CPU seconds that nodes on their own would have spent in addition.
    """

    def __init__(self) -> None:
        self.saved_seconds = 0.0
        self._steps: OrderedDict[Frame, tuple[DeltaStep, float]] = OrderedDict()
        self._size = 0
        self._key: tuple[Frame, Replica, float] | None = None
        self._plain: tuple[tuple[int, int, int], Arrays] | None = None

    def step(self, replica: Replica, frame: Frame) -> DeltaStep:
        """Return ``DeltaStep.of(replica, frame)``, which is the same for every replica where the frame starts."""
        known = self._steps.get(frame)
        if known is not None:
            self.saved_seconds += known[1]
            return known[0]
        start_s = time.thread_time()
        step = DeltaStep.of(replica, frame)
        self._steps[frame] = (step, time.thread_time() - start_s)
        self._size += step.size
        while self._size > CACHE_BYTES:
            self._size -= self._steps.popitem(last=False)[1][0].size
        return step

    def begin(self, frame: Frame) -> Replica:
        """Return ``from_key_frame(frame)``; the newest key frame is decoded once."""
        if self._key is None or self._key[0] != frame:
            start_s = time.thread_time()
            replica = from_key_frame(frame)
            self._key = (frame, replica, time.thread_time() - start_s)
        else:
            self.saved_seconds += self._key[2]
        base = self._key[1]  # each replica owns its vector and its counts
        return replace(base, vector=base.vector.copy(), origin=Origin(base, np.zeros(base.vector.size, np.int32)))

    def plain(self, replica: Replica) -> ArrayRecord:
        """Return the tensors of `replica`, without the local ones, as a ClientApp gets them."""
        place = (replica.layout.digest, replica.version, replica.fingerprint)
        if self._plain is None or self._plain[0] != place:
            self._plain = (place, replica.arrays())
        return view_record(self._plain[1])


class InMemoryState(RecordDict):
    """A ``Context.state`` that holds the mod's state as a value, and is its store; the app's own records are as usual."""

    def __init__(self, cache: DecodeCache) -> None:
        super().__init__()
        self.cache = cache
        self.client = ClientState()

    def copy(self) -> "InMemoryState":
        """Return a copy that shares the mod's state, and has its own table of records."""
        twin = super().copy()
        twin.cache, twin.client = self.cache, self.client
        return twin

    def snapshot(self) -> "InMemoryState":
        """Return a copy that later changes do not affect."""
        twin = self.copy()
        twin.client = copy.deepcopy(self.client)
        return twin

    def load(self, training_id: int, places: Collection[tuple[int, int]] = ()) -> ClientState:
        """Return the state of `training_id`, 0 meaning any; an empty one if there is none."""
        return for_training(self.client, training_id)

    def save(self, state: ClientState) -> None:
        """Replace the stored state."""
        state.followed = ()  # key frames of every node may be large
        self.client = state
