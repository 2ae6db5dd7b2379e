"""The place of a node's state between two messages: ``Context.state``, this process, or the files of a folder.

Flower keeps ``Context.state`` for as long as the SuperNode runs; files outlive a restart of the device.
"""

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from flwr.app import Context

from fedcomp.flower.client.client_state import ClientState
from fedcomp.flower.client.context_store import ContextStore
from fedcomp.flower.client.in_memory import DecodeCache, InMemoryState, InProcessStore
from fedcomp.flower.client.state_folder import StateFolder

SETTING = "state-dir"
"""The key in a node's config that names the folder."""


class StateStore(Protocol):
    """Saves and loads the state of a node."""

    def load(self, training_id: int, places: Collection[tuple[int, int]] = ()) -> ClientState:
        """Return the state of a training; an empty state if there is none.

        If `training_id` is 0, the Flower run identifies the training, or `places` do: the (version, fingerprint) pairs from
        which the server's message leads on.
        """
        ...

    def save(self, state: ClientState) -> None:
        """Keep `state` until the next message."""
        ...


def open_store(context: Context) -> AbstractContextManager[StateStore]:
    """Return the store of a node's state; no other process uses it while it is entered.

    Raises `ValueError` for a state-dir that cannot be used.
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
        raise ValueError(f"{SETTING} is {folder!r}; an absolute path is needed: a node's processes have other folders")
    return StateFolder(path, context.state)


def cache_of(context: Context) -> DecodeCache | None:
    """Return the cache that the nodes of this process share, if there is one."""
    return context.state.cache if isinstance(context.state, InMemoryState) else None
