"""The compressor, noun of the public face: a quantizer, an entropy code and a memory."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcomp.core import CompensatedUpdate, EncodeContext, Shapes, Vector, check_int, dtype_name, format_call, is_numpy
from fedcomp.entropy import MAX_ENTRIES, EntropyCode, check_claim
from fedcomp.errors import CorruptError
from fedcomp.memory import Memory, State
from fedcomp.quantize import ErrorBound, NormBound, Quantizer, contracting, error_bound
from fedcomp.quantized import QuantizedVector

MAX_SEED = 2**64 - 1
MAX_ROUND = 2**63 - 1
"""Rounds and epochs are stored as int64."""


@dataclass(frozen=True, slots=True)
class Compressor:
    """Frozen settings and no state: `init` returns what a sender remembers, and `encode` takes and returns it.

    ``parse(str(c)) == c``: two compressors of the same name and settings are equal, and a prompt shows the text.

    Examples:
        >>> import numpy as np
        >>> import fedcomp
        >>> compressor = fedcomp.topk(density=0.5)
        >>> body, state = compressor.encode(np.array([4, -2, 1, 0], np.float32), compressor.init(4), seed=1)
        >>> compressor.decode(body, n=4)
        array([ 4., -2.,  0.,  0.], dtype=float32)
        >>> body, state = compressor.encode(np.array([0, 0, 1, 1], np.float32), state, seed=2)
        >>> compressor.decode(body, n=4)
        array([0., 0., 2., 1.], dtype=float32)
    """

    name: str
    settings: tuple[tuple[str, object], ...]
    quantizer: Quantizer[CompensatedUpdate, Any]
    entropy: EntropyCode[Any]
    memory: Memory

    def __repr__(self) -> str:
        """Return the text that `fedcomp.parse` reads."""
        return format_call(self.name, dict(self.settings))

    def init(self, n: int) -> State:
        """Return the state of a sender of vectors of `n` entries that has sent nothing."""
        return self.memory.init(n)

    def error_bound(self, n: int) -> ErrorBound | None:
        """Return the declared bound of the error of vectors of up to `n` entries, without the memory; None if there is none.

        Raises `ValueError` unless `n` is 1 to 2^31.

        Examples:
            >>> import fedcomp
            >>> fedcomp.randk(density=0.25, feedback=False).error_bound(1000)
            Unbiased(variance=3.0)
            >>> fedcomp.topk(density=0.25).error_bound(1000)
            Contracting(factor=0.75)
        """
        check_int("n", n, 1, MAX_ENTRIES, "the entries of a vector")
        return error_bound(self.quantizer, n)

    def contracting(self) -> "Compressor":
        """Return the compressor, of the same name and settings, with the form of its quantizer that contracts.

        A quantizer contracts if its error is shorter than the vector, in the mean over seeds.  A body decodes as before.
        Raises `ValueError` if there is no such form.
        """
        quantizer = contracting(self.quantizer)
        if quantizer is None:
            raise ValueError(
                f"{self} does not contract: what it leaves out of a vector may be longer than the vector; "
                "a compressor that does is needed, such as eden(bits=2) or topk(density=0.05, feedback=False)"
            )
        return self if quantizer is self.quantizer else replace(self, quantizer=quantizer)

    def select(self, state: State, n: int) -> State:
        """Return the part of `state` that belongs to this compressor, for vectors of `n` entries.

        Other compressors may keep arrays in `state` too.  An array that is missing, or that belongs to vectors of another
        length, is as `init` returns it.
        """
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
        max_norm: float | None = None,
    ) -> tuple[bytes, State]:
        """Return the body of `update`, and the state after it.

        Args:
            update: A vector, float32 (n,), as a numpy array or a torch tensor on any device.  It is not changed.
            state: The state that `init` or the last `encode` returned.  It is spent: the new state may reuse its arrays,
                except read-only ones.
            seed: Drives compressors that draw random numbers, 0 to 2^64 - 1.  STC draws none.  Give each message another
                seed, in each round and for each node: with one seed, randk sends the same entries in every round, and an
                unbiased method repeats the same error.
            server_round: The version of the model that the update starts from, if known.
            shapes: The shapes of the tensors behind the vector, in order, if known.
            model: The vector that the update starts from, a numpy array, float32 (n,), if known.
            estimate_epoch: The number of the receiver's running sum, for EF21.
            max_norm: The largest l2 norm of the decoded vector, at least 0; None for no bound.  A memory keeps the rest.

        Returns:
            The body, which decodes without state or settings, and the new state.

        Raises:
            ValueError: The update is not a dense float32 vector, holds NaN or infinity, or cannot be encoded; or an argument
                is out of range.  The state is unchanged.

        """
        _check_update(update)
        n = int(update.shape[0])
        check_int("seed", seed, 0, MAX_SEED)
        check_int("estimate_epoch", estimate_epoch, 0, MAX_ROUND)
        if server_round is not None:
            check_int("server_round", server_round, 0, MAX_ROUND)
        if shapes and sum(map(math.prod, shapes)) != n:
            raise ValueError(f"shapes of {sum(map(math.prod, shapes))} entries; the update has {n}")
        if model is not None and (dtype_name(model.dtype) != "float32" or model.shape != (n,)):
            raise ValueError(f"a model of {model.dtype} {model.shape}; a numpy vector, float32 {(n,)}, is needed")
        context = EncodeContext(int(seed), server_round, shapes, model, estimate_epoch)
        vector = update if is_numpy(update) else update.detach()
        compensated = self.memory.compensate(vector, state, context)
        quantizer = self.quantizer if max_norm is None else NormBound(self.quantizer, max_norm)
        quantized = quantizer.quantize(compensated)
        body = self.entropy.encode(quantized)
        return body, self.memory.update(compensated, quantized, state)

    def decode(self, body: bytes, n: int | None = None) -> Vector:
        """Return the vector, float32 (n,), that `encode` wrote with any settings of the same entropy code.

        Raises `FedcompError` for a damaged body and for anything but bytes.  A body of another length than `n` is refused
        before memory is allocated for it.  Without `n`, so is a body of more than 2^20 entries if it has more than 1024
        entries for each of its bytes: longer vectors of which few entries are sent need `n`.
        """
        if not isinstance(body, bytes):
            if not isinstance(body, bytearray | memoryview):
                raise CorruptError(f"a body of type {type(body).__name__}; bytes are needed")
            body = bytes(body)
        quantized: QuantizedVector = self.entropy.decode(body, n=n)
        if n is None:
            check_claim(body, quantized.n, n)
        return quantized.dense()


def _check_update(update: Any) -> None:
    dtype = dtype_name(getattr(update, "dtype", type(update).__name__))
    shape = tuple(getattr(update, "shape", ()))
    if dtype != "float32" or len(shape) != 1:
        raise ValueError(f"an update of {dtype} {shape}; a float32 vector is needed")
    if not 0 < shape[0] <= MAX_ENTRIES:
        raise ValueError(f"an update of {shape[0]} entries; 1 to {MAX_ENTRIES} can be encoded")
    if is_numpy(update):
        dense = not isinstance(update, np.ma.MaskedArray)
    else:
        dense = hasattr(update, "detach") and str(update.layout) == "torch.strided" and not update.is_meta
    if not dense:
        held = f"{type(update).__name__} {getattr(update, 'layout', '')} {getattr(update, 'device', '')}"
        raise ValueError(f"an update of type {held.strip()}; a dense numpy array or torch tensor is needed")
