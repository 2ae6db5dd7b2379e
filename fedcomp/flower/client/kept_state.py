"""The code of an app may assign, copy, clear and replace its ``Context.state``: fedcomp's own records outlive that."""

from collections.abc import Generator
from contextlib import contextmanager

from flwr.app import Context

from fedcomp.flower.client.context_store import KEY


@contextmanager
def kept_state(context: Context) -> Generator[None]:
    """Run the block, which calls code of the app.

    Afterwards ``context.state`` is the object that it was before, with the app's records as the block left them, wherever it
    put them, and fedcomp's own records as they were.
    """
    state = context.state
    own = {key: record.copy() for key, record in state.items() if key == KEY or key.startswith(f"{KEY}.")}
    try:
        yield
    finally:
        left, context.state = dict(context.state.items()), state
        state.clear()
        state.update(left | own)
