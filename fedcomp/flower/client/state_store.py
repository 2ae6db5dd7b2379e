"""Where a node's memory is between two messages: in ``Context.state``, in this process, or in files of a folder.

Flower keeps ``Context.state`` for as long as the SuperNode runs; files outlive a restart of the device.
"""

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from flwr.app import Context, RecordDict

from fedcomp.flower.client import client_state
from fedcomp.flower.client.client_state import ClientState
from fedcomp.flower.client.in_memory import DecodeCache, InMemoryState
from fedcomp.flower.client.state_folder import StateFolder

SETTING = "state-dir"
"""The key in a node's config that names the folder."""


class StateStore(Protocol):
    """A node's memory."""

    def load(self, training_id: int, places: Collection[tuple[int, int]] = ()) -> ClientState:
        """Return what is remembered of the training `lineage`, an empty state where that is nothing.

        Where it is not said, 0, it is known from the Flower run, or from `places`, the versions and fingerprints that the
        server may mean.
        """
        ...

    def save(self, state: ClientState) -> None:
        """Keep `state` until the next message."""
        ...


class ContextStore:
    """The records of a ``Context.state``."""

    def __init__(self, records: RecordDict) -> None:
        """Use `records`."""
        self._records = records

    def load(self, training_id: int, places: Collection[tuple[int, int]] = ()) -> ClientState:
        """Return the state in the records."""
        return client_state.of_training(client_state.load(self._records), training_id)

    def save(self, state: ClientState) -> None:
        """Write the state back."""
        state.save(self._records)


class InProcessStore:
    """A `InMemoryState`, which holds the value itself."""

    def __init__(self, records: InMemoryState) -> None:
        """Use `records`."""
        self._records = records

    def load(self, training_id: int, places: Collection[tuple[int, int]] = ()) -> ClientState:
        """Return the value."""
        return client_state.of_training(self._records.client, training_id)

    def save(self, state: ClientState) -> None:
        """Hold the value."""
        state.followed = []  # key frames, perhaps, of every node
        self._records.client = state


def open_store(context: Context) -> AbstractContextManager[StateStore]:
    """Return the node's memory; while it is entered, nobody else works with it.

    Raises `ValueError` for a state-dir that cannot be one.
    """
    if isinstance(context.state, InMemoryState):
        return nullcontext(InProcessStore(context.state))
    folder = context.node_config.get(SETTING, "")
    if not isinstance(folder, str):
        raise ValueError(f"{SETTING} in the node config is {folder!r}; the path of a folder is needed")
    if not folder:
        return nullcontext(ContextStore(context.state))
    path = Path(folder).expanduser()
    if not path.is_absolute():
        raise ValueError(f"{SETTING} is {folder!r}; an absolute path is needed, for a node's processes work elsewhere")
    return StateFolder(path, context.state)


def shared_of(context: Context) -> DecodeCache | None:
    """Return what the nodes of this process share, if they do."""
    return context.state.shared if isinstance(context.state, InMemoryState) else None
