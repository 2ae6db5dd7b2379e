"""The place of a node's state between two messages: ``Context.state``, memory, or the folder that the node's config names."""

from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from flwr.app import Context

from fedcomp.flower.client.context_store import ContextStore
from fedcomp.flower.client.in_memory import InMemoryState
from fedcomp.flower.client.state_folder import StateFolder, trainings_kept

StateStore = ContextStore | InMemoryState | StateFolder
"""The place of a node's state between two messages; `StateFolder.load` and `StateFolder.save` say how each behaves."""
STATE_DIR = "state-dir"
"""The key in a node's config that names the folder of its state."""


def open_store(context: Context) -> AbstractContextManager[StateStore]:
    """Return the store of a node's state; no other process uses it while it is entered.

    Raises `ValueError` for a state-dir that cannot be used.
    """
    if isinstance(context.state, InMemoryState):
        return nullcontext(context.state)
    path = state_folder(context)
    if path is None:
        return nullcontext(ContextStore(context.state))
    return StateFolder(path, context.state, trainings_kept(context.node_config), context.run_id)


def recall(context: Context) -> None:
    """Put back what the ClientApp kept in ``context.state``, if the node has restarted in this run.

    That is for messages without a frame, which name no training; a state-dir that cannot be used does not concern them.
    """
    with suppress(ValueError, OSError):
        if isinstance(store := open_store(context), StateFolder):
            store.recall()


def state_folder(context: Context) -> Path | None:
    """Return the folder that the node's config names for its state; None without one.

    Raises `ValueError` for anything but an absolute path.
    """
    folder = context.node_config.get(STATE_DIR, "")
    if not isinstance(folder, str):
        raise ValueError(f"{STATE_DIR} in the node config is {folder!r}; the path of a folder is needed")
    if not folder:
        return None
    path = Path(folder).expanduser()
    if not path.is_absolute():
        raise ValueError(
            f"{STATE_DIR} is {folder!r}; an absolute path is needed: a node's processes have other folders"
        )
    return path
