"""A compressor: how a vector becomes a body, and what the sender remembers.  The noun of the public face."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcomp.core import CompensatedUpdate, EncodeContext, Shapes, Vector, check_int, dtype_name, format_call
from fedcomp.entropy import MAX_ENTRIES, EntropyCode
from fedcomp.memory import Memory, State
from fedcomp.quantize import Quantizer
from fedcomp.quantized import QuantizedVector

MAX_SEED = 2**64 - 1
MAX_EPOCH = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Compressor:
    """Frozen settings, no state: a codec (quantizer and entropy code) and a memory.

    ``parse(str(c)) == c``: two compressors of the same name and settings are equal.
    """

    name: str
    settings: tuple[tuple[str, object], ...]
    quantizer: Quantizer[CompensatedUpdate, Any]
    entropy: EntropyCode[Any]
    memory: Memory

    def __str__(self) -> str:
        """Return the text that `fedcomp.parse` reads back."""
        return format_call(self.name, dict(self.settings))

    def init(self, n: int) -> State:
        """Return the state of a sender of vectors of `n` entries that has sent nothing."""
        return self.memory.init(n)

    def select(self, state: State, n: int) -> State:
        """Return what this compressor's memory has of `state`, which other compressors may have shared; the rest anew."""
        fresh = self.init(n)
        vectors = self.memory.vectors
        return {
            name: state[name] if name in state and (name not in vectors or state[name].shape == (n,)) else fresh[name]
            for name in fresh
        }

    def encode(
        self,
        update: Any,
        state: State,
        seed: int = 0,
        *,
        server_round: int | None = None,
        shapes: Shapes = (),
        model: Vector | None = None,
        estimate_epoch: int = 0,
    ) -> tuple[bytes, State]:
        """Return the body of `update` and the state after it.

        `update` is float32 (n,), a numpy array or a torch tensor on any device, and is not touched.  The state passed in is
        spent: its memory may live on in the new one.  `seed`, 0 to 2^64 - 1, drives compressors that draw random numbers; STC
        draws none.
        Some compressors use more, if it is known (`EncodeContext`): the round, the `shapes` of the tensors behind the vector,
        the `model` that the update starts from, and the `estimate_epoch`, 0 to 2^63 - 1, of the receiver.
        Raises `ValueError`, the state as it was, for another dtype or shape, and for NaN or infinity.
        """
        _check(update)
        check_int("seed", seed, 0, MAX_SEED)
        check_int("estimate_epoch", estimate_epoch, 0, MAX_EPOCH)
        if shapes and sum(map(math.prod, shapes)) != update.shape[0]:
            raise ValueError(f"shapes of {sum(map(math.prod, shapes))} entries; the update has {update.shape[0]}")
        if model is not None and (dtype_name(model.dtype) != "float32" or model.shape != tuple(update.shape)):
            raise ValueError(
                f"a model of {model.dtype} {model.shape}; a numpy vector, float32 {tuple(update.shape)}, is needed"
            )
        context = EncodeContext(int(seed), server_round, shapes, model, estimate_epoch)
        compensated = self.memory.compensate(
            update if isinstance(update, np.ndarray) else update.detach(), state, context
        )
        quantized = self.quantizer.quantize(compensated)
        body = self.entropy.encode(quantized)
        return body, self.memory.update(compensated, quantized, state)

    def decode(self, body: bytes, n: int | None = None) -> Vector:
        """Return the vector, float32 (n,).  Any instance decodes: the body holds its settings.

        Raises `FedcompError` for a damaged body or, before memory is taken, for one of another length than `n`.
        """
        symbols: QuantizedVector = self.entropy.decode(body, n=n)
        return symbols.dense()


def _check(update: Any) -> None:
    dtype = dtype_name(getattr(update, "dtype", type(update).__name__))
    shape = tuple(getattr(update, "shape", ()))
    if dtype != "float32" or len(shape) != 1:
        raise ValueError(f"an update of {dtype} {shape}; a float32 vector is needed")
    if not 0 < shape[0] <= MAX_ENTRIES:
        raise ValueError(f"an update of {shape[0]} entries; 1 to {MAX_ENTRIES} can be encoded")
