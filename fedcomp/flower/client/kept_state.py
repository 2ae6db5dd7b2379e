"""The code of an app finds its own records in ``Context.state``, as without fedcomp, and may assign, copy and clear it."""

from collections.abc import Generator
from contextlib import contextmanager

from flwr.app import Context

from fedcomp.flower.client.context_store import KEY

SPLIT_KEY = f"{KEY}.split"
"""The records of split learning are this one and those whose keys go on with a dot."""


@contextmanager
def kept_state(context: Context, *, answers_split: bool = False) -> Generator[None]:
    """Run the block, which calls code of the app, without fedcomp's own records in ``context.state``.

    Afterwards ``context.state`` is the object that it was before, with the app's records as the block left them, wherever it
    put them, and fedcomp's own records as they were.  A block that `answers_split` finds and changes those of split learning.
    """
    state = context.state
    hidden = [key for key in state if _is_of(key, KEY) and not (answers_split and _is_of(key, SPLIT_KEY))]
    own = {key: state.pop(key) for key in hidden}
    try:
        yield
    finally:
        left, context.state = dict(context.state.items()), state
        state.clear()
        state.update(left | own)


def _is_of(key: str, family: str) -> bool:
    return key == family or key.startswith(f"{family}.")
