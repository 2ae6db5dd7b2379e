"""A compressor: how a vector becomes a body, and what the sender remembers.  The noun of the public face."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.call import format_call
from fedcomp.entropy import MAX_ENTRIES, EntropyCode
from fedcomp.memory import Memory, State
from fedcomp.stage import Stage, Vector
from fedcomp.symbols import LazySum, Symbols


@dataclass(frozen=True, slots=True)
class Compressor:
    """Frozen settings, no state: a codec (quantizer and entropy code) and a memory.

    ``parse(str(c)) == c``: two compressors of the same name and settings are equal.
    """

    name: str
    settings: tuple[tuple[str, object], ...]
    quantize: Stage[LazySum, Any]
    entropy: EntropyCode[Any]
    memory: Memory

    def __str__(self) -> str:
        """Return the text that `fedcomp.parse` reads back."""
        return format_call(self.name, dict(self.settings))

    def init(self, n: int) -> State:
        """Return the state of a sender of vectors of `n` entries that has sent nothing."""
        return self.memory.init(n)

    def recall(self, state: State, n: int) -> State:
        """Return what this compressor's memory has of `state`, which other compressors may have shared; the rest anew."""
        fresh = self.init(n)
        return {name: state.get(name, fresh[name]) for name in fresh}

    def encode(self, update: Any, state: State, seed: int = 0) -> tuple[bytes, State]:
        """Return the body of `update` and the state after it.

        `update` is float32 (n,), a numpy array or a torch tensor on any device, and is not touched.  The state passed in is
        spent: its memory may live on in the new one.  `seed` drives compressors that draw random numbers; STC draws none.
        Raises `ValueError`, the state as it was, for another dtype or shape, and for NaN or infinity.
        """
        _check(update, state)
        asked = self.memory.compensate(update if isinstance(update, np.ndarray) else update.detach(), state)
        sent = self.quantize.encode(asked)
        body = self.entropy.encode(sent)
        return body, self.memory.keep(asked, sent)

    def decode(self, body: bytes, n: int | None = None) -> Vector:
        """Return the vector, float32 (n,).  Any instance decodes: the body holds its settings.

        Raises `FedcompError` for a damaged body or, before memory is taken, for one of another length than `n`.
        """
        symbols: Symbols = self.entropy.decode(body, n=n)
        return symbols.dense()


def _check(update: Any, state: State) -> None:
    dtype = str(getattr(update, "dtype", type(update).__name__)).removeprefix("torch.")
    shape = tuple(getattr(update, "shape", ()))
    if dtype != "float32" or len(shape) != 1:
        raise ValueError(f"an update of {dtype} {shape}; a float32 vector is needed")
    if not 0 < shape[0] <= MAX_ENTRIES:
        raise ValueError(f"an update of {shape[0]} entries; 1 to {MAX_ENTRIES} can be encoded")
    for name, array in state.items():
        if tuple(np.shape(array)) != shape:
            raise ValueError(
                f"an update of {shape[0]} entries; the state's {name} has the shape {tuple(np.shape(array))}"
            )
