"""The code of an app may assign, copy, clear and replace its ``Context.state``: fedcomp's own records outlive that."""

from collections.abc import Generator
from contextlib import contextmanager

from flwr.app import Context

from fedcomp.flower.client.context_store import KEY

SPLIT_KEY = f"{KEY}.split"
"""The records of split learning are this one and those whose keys go on with a dot."""


@contextmanager
def kept_state(context: Context, *, answers_split: bool = False) -> Generator[None]:
    """Run the block, which calls code of the app.

    Afterwards ``context.state`` is the object that it was before, with the app's records as the block left them, wherever it
    put them, and fedcomp's own records as they were.  A block that `answers_split` changes those of split learning.
    """
    state = context.state
    own = {
        key: record.copy()
        for key, record in state.items()
        if _is_of(key, KEY) and not (answers_split and _is_of(key, SPLIT_KEY))
    }
    try:
        yield
    finally:
        left, context.state = dict(context.state.items()), state
        state.clear()
        state.update(left | own)


def _is_of(key: str, family: str) -> bool:
    return key == family or key.startswith(f"{family}.")
