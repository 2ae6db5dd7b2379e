"""The contract of a compressor, as a check that any compressor can be put through, this library's and yours.

check_compressor(my_compressor)  # raises ContractError with a sentence that names what broke
"""

import copy
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fedcomp.compressor import Compressor
from fedcomp.core import Vector
from fedcomp.errors import FedcompError
from fedcomp.memory import State
from fedcomp.methods import METHODS, parse

ROUNDING = 1e-4  # how far sums may be apart, relative to what was summed
LEAST = 1e-44  # below this there are only a few denormals
LARGEST = 3.2e38
CUTS = 48  # places at which a body is cut or changed, where it has more


class ContractError(AssertionError):
    """A compressor does not do what every compressor promises."""


def check_compressor(compressor: Compressor, *, sizes: Iterable[int] = (1, 2, 31, 1000, 100003), seed: int = 0) -> None:
    """Return if `compressor` keeps the contract on vectors of the given sizes; raise `ContractError` if not.

    A state that holds a ``residual`` promises that all sent plus the residual is all asked; other states promise nothing
    about sums.  `seed` drives the vectors and the damage.
    """
    _check_text(compressor)
    for n in sizes:
        _Check(compressor, n, seed).run()


def _check_text(compressor: Compressor) -> None:
    if compressor.name not in METHODS:
        return
    try:
        again = parse(str(compressor))
    except ValueError as error:
        raise ContractError(f"parse does not read the text {str(compressor)!r} of the compressor: {error}") from error
    _need(again == compressor, f"parse({str(compressor)!r}) is another compressor: {again}")


class _Check:
    """One size: makes the vectors, and puts the compressor through them."""

    def __init__(self, compressor: Compressor, n: int, seed: int) -> None:
        self.compressor, self.n, self.seed = compressor, n, seed
        self.rng = np.random.default_rng([seed, n])
        self.other = parse(str(compressor)) if compressor.name in METHODS else compressor
        self.shapes = _shapes(n, self.rng)
        self.model = self.rng.standard_normal(n, np.float32)
        self.known: dict[str, Any] = {}
        self.what = f"{compressor} with {n} entries"

    def run(self) -> None:
        vectors = dict(self.vectors())
        for name, vector in vectors.items():
            body, _ = self.rounds([(name, vector)])
            self.check_wrong_length(body)
            self.check_damage(body)
        ordinary = [item for item in vectors.items() if item[0] != "huge values"]
        body, state = self.rounds([*ordinary, *reversed(ordinary)])
        self.check_damage(body)
        self.rounds([("huge values", vectors["huge values"]), ("all zeros", vectors["all zeros"])])
        self.known = {"shapes": self.shapes, "model": self.model}
        body, _ = self.rounds([*ordinary, ("huge values", vectors["huge values"]), ordinary[0]])
        self.check_damage(body)
        self.known = {}
        self.check_refused(state)

    def vectors(self) -> Iterator[tuple[str, Vector]]:
        rng, n = self.rng, self.n
        yield "Gaussian values", rng.standard_normal(n, np.float32)
        yield "all zeros", np.zeros(n, np.float32)
        one = np.zeros(n, np.float32)
        one[n // 2] = -0.75
        yield "one value that is not zero", one
        yield "ties", rng.choice(np.array([-1, -0.5, 0, 0.5, 1], np.float32), n)
        yield "denormals", (rng.integers(-9, 10, n) * 2.0**-149).astype(np.float32)
        yield "huge values", (rng.choice([-1.0, 1.0], n) * rng.uniform(0.9, 1, n) * LARGEST).astype(np.float32)

    def rounds(self, updates: list[tuple[str, Vector]]) -> tuple[bytes, State]:
        """Encode `updates` one after the other; return the last body and the state after it."""
        state = self.compressor.init(self.n)
        asked, sent, scale = np.zeros(self.n), np.zeros(self.n), np.zeros(self.n)
        body = b""
        for order, (name, update) in enumerate(updates):
            if self.known:
                self.known |= {"server_round": order}
                self.model += self.rng.standard_normal(self.n, np.float32)
            here = f"{self.what}, {name} in round {order}"
            body, state = self.encode(update, state, self.seed + order, here)
            vector = self.decode(body, here)
            asked += update
            sent += vector
            scale += np.abs(update, dtype=np.float64) + np.abs(vector, dtype=np.float64)
            if "residual" in state:
                residual = _numpy(state["residual"])
                apart = np.abs(sent + residual - asked) - (ROUNDING * scale + LEAST)
                _need(
                    float(apart.max()) <= 0,
                    f"{here}: all sent plus the residual is not all asked, entry {int(apart.argmax())} first of all",
                )
        if "residual" in state:
            self.check_restore(body, state)
        return body, state

    def encode(self, update: Vector, state: State, seed: int, here: str) -> tuple[bytes, State]:
        """Return what `Compressor.encode` does, done twice from equal states."""
        before, spare = update.tobytes(), copy.deepcopy(state)
        body, after = self.compressor.encode(update, state, seed=seed, **self.known)
        _need(type(body) is bytes, f"{here}: the body is {type(body).__name__}; bytes are needed")
        _need(update.tobytes() == before, f"{here}: encode changed the update")
        for key, array in after.items():
            found = _numpy(array)
            finite = found.dtype.kind != "f" or bool(np.isfinite(found).all())
            _need(finite, f"{here}: the state's {key} holds NaN or infinity")
        again, after_again = self.compressor.encode(update, spare, seed=seed, **self.known)
        _need(again == body, f"{here}: the same update, state and seed give another body")
        _need(_bits(after_again) == _bits(after), f"{here}: the same update, state and seed give another state")
        return body, after

    def decode(self, body: bytes, here: str) -> Vector:
        """Return the vector in `body`, decoded in every way that there is."""
        vector = self.compressor.decode(body, self.n)
        _need(
            self.is_vector(vector),
            f"{here}: the body decodes to {_describe(vector)}; a finite float32 ({self.n},) is needed",
        )
        for way, found in (("without n", self.compressor.decode(body)), ("elsewhere", self.other.decode(body, self.n))):
            _need(_same(found, vector), f"{here}: decoded {way}, the body gives other bits")
        return vector

    def is_vector(self, vector: Any) -> bool:
        fits = isinstance(vector, np.ndarray) and vector.dtype == np.float32 and vector.shape == (self.n,)
        return fits and bool(np.isfinite(vector).all())

    def check_restore(self, body: bytes, state: State) -> None:
        """A body that was lost after all: its mass comes back into the residual."""
        before = _numpy(state["residual"]).astype(np.float64)
        vector = self.compressor.decode(body, self.n)
        symbols = self.compressor.entropy.decode(body, n=self.n)
        with np.errstate(over="ignore"):
            after = _numpy(self.compressor.memory.rollback(symbols, copy.deepcopy(state))["residual"])
        apart = np.abs(after - before - vector) > ROUNDING * (np.abs(before) + np.abs(vector)) + LEAST
        _need(not apart[np.isfinite(after)].any(), f"{self.what}: restore does not bring back what was sent")

    def check_wrong_length(self, body: bytes) -> None:
        for n in {0, self.n - 1, self.n + 1, 2 * self.n}:
            try:
                self.compressor.decode(body, n)
            except FedcompError:
                continue
            except Exception as error:
                raise ContractError(f"{self.what}: decode to {n} raised {_name(error)}; not a FedcompError") from error
            raise ContractError(f"{self.what}: a body of {self.n} entries decodes to {n} as well; it must be refused")

    def check_damage(self, body: bytes) -> None:
        """Bodies cut short, grown or changed in a byte: refused, or a vector like any other."""
        places: Iterable[int] = range(len(body))
        if len(body) > CUTS:
            places = sorted({0, 1, len(body) - 1, *self.rng.integers(0, len(body), CUTS).tolist()})
        for place in places:
            changed = bytearray(body)
            changed[place] ^= int(self.rng.integers(1, 256))
            self.check_damaged(body[:place], f"cut to {place} bytes")
            self.check_damaged(bytes(changed), f"changed in byte {place}")
        self.check_damaged(body + b"\0", "with a byte behind it")

    def check_damaged(self, body: bytes, how: str) -> None:
        try:
            vector = self.compressor.decode(body, self.n)
        except FedcompError:
            return
        except Exception as error:
            raise ContractError(f"{self.what}: a body {how} raised {_name(error)}; not a FedcompError") from error
        _need(self.is_vector(vector), f"{self.what}: a body {how} decodes to {_describe(vector)}")

    def check_refused(self, state: State) -> None:
        """Updates that cannot be encoded are refused with `ValueError`, and leave the state as it was."""
        n = self.n
        good = self.rng.standard_normal(n, np.float32)
        for place in {0, n // 2, n - 1}:
            for value in (np.nan, np.inf, -np.inf):
                bad = good.copy()
                bad[place] = value
                self.check_refusal(bad, state, f"an update with {value} at {place}")
        others: list[Any] = [
            good.astype(np.float64),
            good.astype(np.float16),
            good.astype(np.int64),
            good.astype(">f4"),
        ]
        others += [good[:, None], good[None], good[0], good[:0], good.tolist(), None]
        if state:
            others += [np.append(good, good[:1])] + ([good[:-1]] if n > 1 else [])
        for other in others:
            self.check_refusal(other, state, f"an update that is {_describe(other)}")

    def check_refusal(self, update: Any, state: State, what: str) -> None:
        before = _bits(state)
        try:
            self.compressor.encode(update, state, seed=self.seed)
        except ValueError:
            _need(_bits(state) == before, f"{self.what}: {what} was refused, but changed the state")
        except Exception as error:
            raise ContractError(f"{self.what}: {what} raised {_name(error)}; not a ValueError") from error
        else:
            raise ContractError(f"{self.what}: {what} was encoded; a ValueError is needed")


def _shapes(n: int, rng: np.random.Generator) -> tuple[tuple[int, ...], ...]:
    """Return shapes of tensors of `n` entries in all: matrices, vectors, a scalar and one of no entries, where they fit."""
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


def _bits(state: State) -> dict[str, tuple[str, bytes]]:
    return {key: (str(_numpy(array).dtype), _numpy(array).tobytes()) for key, array in state.items()}


def _same(one: Any, other: Any) -> bool:
    return _describe(one) == _describe(other) and _numpy(one).tobytes() == _numpy(other).tobytes()


def _describe(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return f"a {type(value).__name__}"
    finite = value.dtype.kind != "f" or bool(np.isfinite(value).all())
    return f"{'a finite' if finite else 'a not finite'} {value.dtype} {value.shape}"


def _name(error: Exception) -> str:
    return f"{type(error).__name__} ({error})"
