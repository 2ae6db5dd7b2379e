"""The contract of compressors and entropy codes, as checks for the parts of this library and for your own.

Each check returns if the contract holds, and otherwise raises `ContractError` with a sentence that says what is wrong.

Examples:
    >>> import fedcomp
    >>> from fedcomp.testing import check_compressor
    >>> check_compressor(fedcomp.topk(density=0.1), sizes=(1, 31))
"""

import contextlib
import copy
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from fedcomp.compressor import Compressor
from fedcomp.core import CompensatedUpdate, Vector
from fedcomp.entropy import EntropyCode
from fedcomp.errors import FedcompError
from fedcomp.memory import State
from fedcomp.methods import METHODS, parse
from fedcomp.quantize import Bounded, Unbiased, error_bound, errors, hard_vectors, squared_error
from fedcomp.quantized import CrossPolytope, QuantizedVector, Rotated

T = TypeVar("T")

ROUNDING = 1e-4
"""Tolerance of sums, relative to the magnitudes that were summed."""
SMALLEST = 1e-44
"""Tolerance of sums of denormals, absolute."""
LARGE, LARGEST = 1e36, 3.2e38
"""Magnitudes near the largest float32: with the first, scales are at their bounds, and with the second, sums are."""
SEEDS, SEEDS_OF_FEW = 32, 128
"""The number of messages of a vector whose errors are averaged: more for vectors of at most `FEW` entries."""
FEW = 100
DEVIATIONS = 5
"""A mean of `SEEDS` errors may exceed the bound by this many standard deviations of the mean."""
BIAS, BIAS_OF_VARIANCE, SMALLEST_BIAS = 1 / 4, 1 / 20, 1e-3
"""The squared error that is allowed for the mean of m unbiased results, which has 1 / m of their squared error.

It is a quarter of their squared error, or a twentieth of the declared variance if that is more, plus 1e-3.  Methods that
rotate need it: where a few entries hold most of the norm, their mean over any number of seeds is not the vector.
"""
EVEN_ENOUGH = 3.0
"""The mean of rotated results may be anything for a vector whose squared norm is in fewer than about this many entries."""
MAX_DAMAGED_PLACES = 48
"""Longer bodies are damaged in this many places, shorter bodies in every byte."""


class ContractError(AssertionError):
    """A part does not keep its contract."""


def check_compressor(
    compressor: Compressor, *, sizes: Iterable[int] = (1, 2, 31, 1000, 100003), seed: int = 0, damage_up_to: int = 5000
) -> None:
    """Check `compressor` on hard vectors of each of the given sizes, over several rounds.

    * The body is bytes, decodes without settings, and decodes to the quantizer's output bit for bit (`check_code`).
    * Equal update, state and seed give equal body and state; the update is not changed.
    * A state that holds a ``residual`` keeps the sum: all decoded plus the residual is all updates.
    * A body of another length than `n` is refused, and so is an update that cannot be encoded, with the state unchanged.
    * The quantizer's error keeps the bound that it declares (`Compressor.error_bound`), and so does its contracting form.
    * A damaged body is refused with `FedcompError`, or decodes to a finite vector.
    * ``parse(str(compressor)) == compressor`` if its name is in `METHODS`.

    Args:
        compressor: Any compressor, registered or not.
        sizes: Numbers of entries.
        seed: Drives the vectors and the damage.
        damage_up_to: Largest size at which bodies are damaged.  Damage tests the parser, and larger sizes test nothing more.

    Raises:
        ContractError: The contract is broken.

    """
    _check_text(compressor)
    sizes = tuple(sizes)
    for n in sizes:
        _Check(compressor, n, seed).run(damaged=n <= damage_up_to)
    for n in sizes:
        if n <= damage_up_to:
            check_error_bound(compressor, n, seed=seed)


def check_error_bound(compressor: Compressor, n: int, *, seed: int = 0) -> None:
    """Check the declared bound of the error on vectors of `n` entries: Gaussian, sparse, heavy-tailed, and with few large ones.

    The mean over seeds keeps the bound, up to its own error, and the results of an unbiased quantizer average to the vector.
    Those of one that rotates need not where two or three entries hold most of the norm (`Unbiased`).  The form that
    `Compressor.contracting` returns, if there is one, contracts.  If a quantizer with error feedback declares no bound, its
    error is measured, and must be shorter than the vector.

    Args:
        compressor: Any compressor.
        n: The number of entries.
        seed: Drives the vectors.

    Raises:
        ContractError: The bound is not kept.

    """
    forms: list[tuple[str, Any]] = [("", compressor.quantizer)]
    with contextlib.suppress(ValueError):
        if (contracting := compressor.contracting()) is not compressor:
            forms.append((" in its contracting form", contracting.quantizer))
    for form, quantizer in forms:
        bound = error_bound(quantizer, n)
        limit = squared_error(bound)
        if not isinstance(cast("object", quantizer), Bounded) and "residual" in compressor.memory.vectors:
            limit = 1.0
        if limit == math.inf:
            continue
        for name, vector in hard_vectors(n, np.random.default_rng([seed, n])):
            seeds = SEEDS if n > FEW else SEEDS_OF_FEW
            found, of_mean = errors(quantizer, vector, seeds)
            where, mean = f"{compressor}{form} with {n} entries, {name}", float(found.mean())
            rare = 3 / seeds if found.std() else ROUNDING  # an entry that is rarely drawn may never be drawn
            most = limit * (1 + rare) + DEVIATIONS * float(found.std()) / math.sqrt(seeds) + ROUNDING**2
            text = f"the squared error is {mean:.3g} of the vector's square; {limit:.3g} is declared"
            _need(mean <= most, f"{where}: {text}")
            if isinstance(bound, Unbiased) and not (_spread(vector) < EVEN_ENOUGH and _rotates(quantizer, vector)):
                allowed = max(BIAS * mean, BIAS_OF_VARIANCE * bound.variance) + SMALLEST_BIAS
                text = f"declared as unbiased, the mean of {seeds} results errs by {of_mean:.3g}"
                _need(of_mean <= allowed, f"{where}: {text}")


def _spread(vector: Vector) -> float:
    """Return the number of entries that the squared norm is in: m if m equal entries hold all of it."""
    squares = np.square(vector, dtype=np.float64)
    return float(squares.sum() ** 2 / np.square(squares).sum())


def _rotates(quantizer: Any, vector: Vector) -> bool:
    """Return whether the result of `quantizer` is a rotated vector."""
    return isinstance(quantizer.quantize(CompensatedUpdate(vector)), CrossPolytope | Rotated)


def check_code(code: EntropyCode[Any], quantized_vectors: Iterable[QuantizedVector]) -> None:
    """Check that `code` is lossless: ``decode(encode(v))`` equals v to the bit, with and without its length.

    Compared are `n`, the bits of `dense()`, and the indices and the bits of the values of `sparse()`.

    Args:
        code: Any entropy code.
        quantized_vectors: Vectors of the type that `code` encodes.  (`check_compressor` checks the vectors of a compressor.)

    Raises:
        ContractError: The contract is broken.

    Examples:
        >>> import numpy as np
        >>> from fedcomp.entropy import SparseValues
        >>> from fedcomp.quantized import Sparse
        >>> check_code(SparseValues(), [Sparse(9, np.array([2, 5]), np.array([0.5, -1e-40], np.float32))])

    """
    for quantized in quantized_vectors:
        _lossless_body(code, quantized)


def _lossless_body(code: EntropyCode[Any], quantized: QuantizedVector) -> bytes:
    """Return the body of `quantized`, checked to decode to its bits."""
    where = f"{code} with {quantized.n} entries"
    body = code.encode(quantized)
    _need(type(body) is bytes, f"{where}: the body is {type(body).__name__}; bytes are needed")
    dense, sparse = quantized.dense(), quantized.sparse()
    for way, n in (("", quantized.n), (" without n", None)):
        try:
            decoded: QuantizedVector = code.decode(body, n=n)
        except FedcompError as error:
            raise ContractError(f"{where}: the code refuses its own body{way}: {_name(error)}") from error
        _need(decoded.n == quantized.n, f"{where}: the body decodes to {decoded.n} entries{way}")
        vector, entries = decoded.dense(), decoded.sparse()
        found, needed = _describe(vector), _describe(dense)
        _need(found == needed, f"{where}: the body decodes to {found}{way}; {needed} is needed")
        changed = np.flatnonzero(vector.view(np.uint32) != dense.view(np.uint32))
        for place in changed[:1].tolist():
            raise ContractError(f"{where}: entry {place} is {dense[place]!r} and decodes to {vector[place]!r}{way}")
        same = (sparse is None) == (entries is None)
        if sparse is not None and entries is not None:
            same = np.array_equal(sparse.indices, entries.indices) and _same(sparse.values, entries.values)
        _need(same, f"{where}: sparse() changed{way}")
    return body


def _check_text(compressor: Compressor) -> None:
    if compressor.name not in METHODS:
        return
    try:
        parsed = parse(str(compressor))
    except ValueError as error:
        raise ContractError(f"parse refuses the text {str(compressor)!r} of the compressor: {error}") from error
    _need(parsed == compressor, f"parse({str(compressor)!r}) is another compressor: {parsed}")


@dataclass(frozen=True)
class _CheckedCode:
    """An entropy code that checks each quantized vector that it encodes."""

    code: EntropyCode[Any]

    def encode(self, value: QuantizedVector, /) -> bytes:
        return _lossless_body(self.code, value)

    def decode(self, value: bytes, /, n: int | None = None) -> QuantizedVector:
        decoded: QuantizedVector = self.code.decode(value, n=n)
        return decoded


class _Check:
    """The checks at one size: makes the vectors, and runs the compressor on them."""

    def __init__(self, compressor: Compressor, n: int, seed: int) -> None:
        self.compressor, self.n, self.seed = compressor, n, seed
        self.checked = replace(compressor, entropy=_CheckedCode(compressor.entropy))
        self.other = parse(str(compressor)) if compressor.name in METHODS else compressor
        self.rng = np.random.default_rng([seed, n])
        self.shapes = _shapes(n, self.rng)
        self.model = self.rng.standard_normal(n, np.float32)
        self.context: dict[str, Any] = {}
        self.where = f"{compressor} with {n} entries"

    def run(self, *, damaged: bool) -> None:
        vectors = dict(self.vectors())
        bodies: list[bytes] = []
        for name, vector in vectors.items():
            body, _ = self.rounds([(name, vector)])
            self.check_wrong_length(body)
            bodies.append(body)
        ordinary = [item for item in vectors.items() if item[0] != "huge values"]
        body, state = self.rounds([*ordinary, *reversed(ordinary)])
        bodies.append(body)
        self.rounds([("huge values", vectors["huge values"]), ("all zeros", vectors["all zeros"])])
        self.context = {"shapes": self.shapes, "model": self.model}
        body, _ = self.rounds([*ordinary, ("huge values", vectors["huge values"]), ordinary[0]])
        bodies.append(body)
        self.context = {}
        for body in bodies if damaged else ():
            self.check_damage(body)
        self.check_refused(state)

    def vectors(self) -> Iterator[tuple[str, Vector]]:
        rng, n = self.rng, self.n
        yield "Gaussian values", rng.standard_normal(n, np.float32)
        yield "all zeros", np.zeros(n, np.float32)
        one = np.zeros(n, np.float32)
        one[n // 2] = -0.75
        yield "a single nonzero value", one
        yield "ties", rng.choice(np.array([-1, -0.5, 0, 0.5, 1], np.float32), n)
        yield "denormals", (rng.integers(-9, 10, n) * 2.0**-149).astype(np.float32)
        wide = np.ldexp(rng.uniform(-2, 2, n), rng.integers(-149, 100, n)).astype(np.float32)
        wide[n // 2] = np.nextafter(np.float32(2.0**100), np.float32(0))  # rounds up to the next power of two
        yield "all magnitudes", wide
        for name, magnitude in (("large values", LARGE), ("huge values", LARGEST)):
            yield name, (rng.choice([-1.0, 1.0], n) * rng.uniform(0.9, 1, n) * magnitude).astype(np.float32)

    def rounds(self, updates: list[tuple[str, Vector]]) -> tuple[bytes, State]:
        """Encode `updates` in order; return the last body and the state after it."""
        state = self.compressor.init(self.n)
        target, sent, scale = np.zeros(self.n), np.zeros(self.n), np.zeros(self.n)
        body = b""
        for number, (name, update) in enumerate(updates):
            if self.context:
                self.context |= {"server_round": number}
                self.model += self.rng.standard_normal(self.n, np.float32)
            where = f"{self.where}, {name} in round {number}"
            body, state = self.encode(update, state, self.seed + number, where)
            vector = self.decode(body, where)
            target += update
            sent += vector
            scale += np.abs(update, dtype=np.float64) + np.abs(vector, dtype=np.float64)
            if "residual" in state:
                excess = np.abs(sent + _numpy(state["residual"]) - target) - (ROUNDING * scale + SMALLEST)
                entry = int(excess.argmax())
                _need(excess[entry] <= 0, f"{where}: all decoded plus the residual is not all updates at entry {entry}")
        if "residual" in state:
            self.check_rollback(body, state)
        return body, state

    def encode(self, update: Vector, state: State, seed: int, where: str) -> tuple[bytes, State]:
        """Return body and state of `Compressor.encode`, called twice from equal states."""
        before, spare = update.tobytes(), copy.deepcopy(state)
        try:
            body, after = self.checked.encode(update, state, seed=seed, **self.context)
        except ContractError as error:
            raise ContractError(f"{where}: {error}") from None
        except Exception as error:
            raise ContractError(f"{where}: encode raised {_name(error)}") from error
        _need(update.tobytes() == before, f"{where}: encode changed the update")
        for key, array in after.items():
            _need(_finite(_numpy(array)), f"{where}: the state's {key} holds NaN or infinity")
        again, after_again = self.compressor.encode(update, spare, seed=seed, **self.context)
        _need(again == body, f"{where}: equal update, state and seed give another body")
        _need(_bits(after_again) == _bits(after), f"{where}: equal update, state and seed give another state")
        return body, after

    def decode(self, body: bytes, where: str) -> Vector:
        vector = self.compressor.decode(body, self.n)
        _need(self.is_vector(vector), f"{where}: the body decodes to {_describe(vector)}; {self.needed} is needed")
        same = _same(self.other.decode(body, self.n), vector)
        _need(same, f"{where}: another instance decodes the body to other bits")
        return vector

    @property
    def needed(self) -> str:
        return f"a finite float32 ({self.n},)"

    def is_vector(self, vector: Any) -> bool:
        return _kind(vector) == (np.dtype(np.float32), (self.n,)) and _finite(vector)

    def check_rollback(self, body: bytes, state: State) -> None:
        """Check that the content of a lost body returns to the residual."""
        before = _numpy(state["residual"]).astype(np.float64)
        quantized = self.compressor.entropy.decode(body, n=self.n)
        vector = quantized.dense()
        with np.errstate(over="ignore"):
            after = _numpy(self.compressor.memory.rollback(quantized, copy.deepcopy(state))["residual"])
            wrong = np.abs(after - before - vector) > ROUNDING * (np.abs(before) + np.abs(vector)) + SMALLEST
        _need(not wrong[np.isfinite(after)].any(), f"{self.where}: rollback does not restore what was sent")

    def check_wrong_length(self, body: bytes) -> None:
        for n in {0, self.n - 1, self.n + 1, 2 * self.n}:
            found = _attempt(FedcompError, f"{self.where}: decode to {n}", partial(self.compressor.decode, body, n))
            _need(not found, f"{self.where}: a body of {self.n} entries decodes to {n} as well; it must be refused")

    def check_damage(self, body: bytes) -> None:
        """Cut, change and lengthen `body`: each result is refused, or decodes to a finite vector."""
        places: Iterable[int] = range(len(body))
        if len(body) > MAX_DAMAGED_PLACES:
            places = sorted({0, 1, len(body) - 1, *self.rng.integers(0, len(body), MAX_DAMAGED_PLACES).tolist()})
        for place in places:
            changed = bytearray(body)
            changed[place] ^= int(self.rng.integers(1, 256))
            self.check_damaged(body[:place], f"cut to {place} bytes")
            self.check_damaged(bytes(changed), f"changed in byte {place}")
        self.check_damaged(body + b"\0", "with a byte appended")

    def check_damaged(self, body: bytes, damage: str) -> None:
        where = f"{self.where}: a body {damage}"
        for vector in _attempt(FedcompError, where, partial(self.compressor.decode, body, self.n)):
            _need(self.is_vector(vector), f"{where} decodes to {_describe(vector)}")

    def check_refused(self, state: State) -> None:
        """Check that updates that cannot be encoded are refused with `ValueError`, and that the state is unchanged."""
        n = self.n
        good = self.rng.standard_normal(n, np.float32)
        for place in {0, n // 2, n - 1}:
            for value in (np.nan, np.inf, -np.inf):
                bad = good.copy()
                bad[place] = value
                self.check_refusal(bad, state, f"an update with {value} at {place}")
        others: list[Any] = [good.astype(dtype) for dtype in (np.float64, np.float16, np.int64, ">f4")]
        others += [good[:, None], good[None], good[0], good[:0], good.tolist(), None]
        if state:
            others += [np.append(good, good[:1])] + ([good[:-1]] if n > 1 else [])
        for other in others:
            self.check_refusal(other, state, f"an update that is {_describe(other)}")

    def check_refusal(self, update: Any, state: State, text: str) -> None:
        before, where = _bits(state), f"{self.where}: {text}"
        encoded = _attempt(ValueError, where, partial(self.compressor.encode, update, state, self.seed))
        _need(not encoded, f"{where} was encoded; a ValueError is needed")
        _need(_bits(state) == before, f"{where} was refused, but changed the state")


def _attempt(refusal: type[Exception], where: str, call: Callable[[], T]) -> list[T]:
    """Return the result of `call` in a list, which is empty if it raises `refusal`; other errors break the contract."""
    try:
        return [call()]
    except refusal:
        return []
    except Exception as error:
        raise ContractError(f"{where} raised {_name(error)}; not a {refusal.__name__}") from error


def _shapes(n: int, rng: np.random.Generator) -> tuple[tuple[int, ...], ...]:
    """Return shapes of `n` entries in all: an empty tensor, matrices, vectors and a scalar, as far as they fit."""
    shapes: list[tuple[int, ...]] = [(0, 3)]
    while n > 1:
        rows = int(rng.integers(1, math.isqrt(n) + 1))
        columns = int(rng.integers(1, n // rows + 1))
        shapes.append((rows, columns) if rows > 1 else (columns,))
        n -= rows * columns
    return (*shapes, ()) if n else tuple(shapes)


def _need(holds: bool, sentence: str) -> None:
    if not holds:
        raise ContractError(sentence)


def _numpy(array: Any) -> np.ndarray[Any, Any]:
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def _finite(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _bits(state: State) -> dict[str, tuple[str, bytes]]:
    return {key: (str(_numpy(array).dtype), _numpy(array).tobytes()) for key, array in state.items()}


def _same(one: Any, other: Any) -> bool:
    return _kind(one) == _kind(other) and _numpy(one).tobytes() == _numpy(other).tobytes()


def _kind(value: Any) -> tuple[object, ...]:
    is_array = isinstance(cast(object, value), np.ndarray)
    return (value.dtype, value.shape) if is_array else (type(cast(object, value)),)


def _describe(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return f"a {type(value).__name__}"
    array = cast(Any, value)
    return f"{'a finite' if _finite(array) else 'a not finite'} {array.dtype} {array.shape}"


def _name(error: Exception) -> str:
    return f"{type(error).__name__} ({error})"
