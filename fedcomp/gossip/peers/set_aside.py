"""Files that this node cannot use are renamed, not removed: the node starts without them, and a person can look at them."""

import logging
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from fedcomp.core import names_aside
from fedcomp.errors import CorruptError
from fedcomp.gossip.peers.peer_state import PeerState

log = logging.getLogger("fedcomp.gossip")
SUFFIX = ".damaged"
MAX_KEPT = 9


def set_aside(path: Path) -> Path:
    """Rename the file, link or folder `path`, and return its new name; the last of `MAX_KEPT` names is used again."""
    names = list(islice(names_aside(path, SUFFIX), MAX_KEPT))
    aside = next((name for name in names if not name.exists() and not name.is_symlink()), names[-1])
    path.rename(aside)
    return aside


def open_state(path: Path, load: Callable[[], PeerState], start: Callable[[], PeerState]) -> PeerState:
    """Return the state that `load` reads from `path`, or the result of `start` if there is no fitting state.

    A damaged file, or a file of another node or training, is set aside.  Raises `OSError` if the file cannot be opened: its
    content may be valid.
    """
    if not path.exists() and not path.is_symlink():
        return start()
    try:
        return load()
    except CorruptError as error:
        aside = set_aside(path)
        text = (
            "%s; it is renamed to %s, and this node starts from the first model: its neighbours send what it has missed. "
            "To use it after all, stop this node, correct its settings, and rename the file back"
        )
        log.warning(text, error, aside.name)
        return start()
