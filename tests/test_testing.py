"""The contract: every method keeps it, and whoever breaks a part of it is told which."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

import fedcomp
from fedcomp.compressor import Compressor
from fedcomp.core.compensated_update import CompensatedUpdate
from fedcomp.core.context import EncodeContext
from fedcomp.core.types import Vector
from fedcomp.entropy.bodies.golomb_ternary import GolombTernary
from fedcomp.entropy.bodies.raw import Raw
from fedcomp.errors import TruncatedError
from fedcomp.memory.error_feedback import ErrorFeedback
from fedcomp.memory.protocol import State
from fedcomp.methods import METHODS
from fedcomp.quantize.protocol import chain
from fedcomp.quantize.ternarize import Ternarize
from fedcomp.quantize.topk import TopK
from fedcomp.quantized.vectors import Dense, QuantizedVector, Sparse, Ternary
from fedcomp.testing import ContractError, check_compressor

SIZES = (1, 2, 31, 1000)
TEXTS = [
    "dense()",
    "stc()",
    "stc(density=1e-6)",
    "stc(density=0.1)",
    "stc(density=1.0)",
    "stc(density=0.01, order='interleaved')",
    "stc(density=0.5, order='interleaved')",
    "topk(density=0.1, values='fp16')",
    "topk(density=1.0, values='bf16')",
    "topk(density=0.1, values='natural', feedback=False)",
    "randk(density=0.7, feedback=False)",
    "hierarchical(density=0.3, levels=1, top_levels=1)",
    "hierarchical(density=0.02, levels=16, top_levels=64, mask='tensor')",
    "regtopk(density=0.1, denominator='asked')",
    "dgc(density=0.1, momentum=0.5, warmup=2, clip=1.0, nodes=10, nesterov=True)",
    "dgc(density=0.1, momentum=0.9, masking=False, values='fp16')",
    "fastsgd(base=2, levels=40, feedback=False)",
    "sparseloco(density=0.1, bits=5, decay=1.0, chunk=100)",
    "ef21(density=0.2, momentum=1.0)",
    "doublesqueeze(codec='topk', density=0.1)",
    "qsgd(levels=1, norm='l2', bucket=4096)",
    "qsgd(levels=255, bucket=64, feedback=True)",
    "ecqsgd(alpha=1, beta=1, levels=8, bucket=16)",
    "natural(feedback=True)",
    "natural_dithering(levels=3, norm='l2', bucket=1000)",
    "terngrad(clip=0)",
    "cgx(bits=8, bucket=128, dense_below=0, feedback=True)",
    "cgx(adaptive=True, tolerance=2.0, dense_below=10)",
    "drive(feedback=True)",
    "eden(bits=0.1)",
    "eden(bits=1.5)",
    "eden(bits=4, feedback=True)",
    "powersgd(rank=4)",
]


@pytest.mark.parametrize("text", sorted({*TEXTS, *METHODS}))
def test_every_method_keeps_the_contract(text: str) -> None:
    check_compressor(fedcomp.parse(text))


def test_every_method_is_among_the_checked() -> None:
    assert {fedcomp.parse(text).name for text in {*TEXTS, *METHODS}} == set(METHODS)


def test_large_vectors_keep_it_too() -> None:
    check_compressor(fedcomp.stc(0.01), sizes=(300_000,), seed=3)


def test_a_compressor_of_ones_own_is_checked_without_a_name_in_methods() -> None:
    check_compressor(custom(), sizes=SIZES)


def custom(**parts: Any) -> Compressor:
    base: dict[str, Any] = {
        "name": "mine",
        "settings": (),
        "quantizer": chain(TopK(0.1), Ternarize()),
        "entropy": GolombTernary(),
        "memory": ErrorFeedback(),
    }
    return Compressor(**(base | parts))


@dataclass(frozen=True)
class Wrong:
    """A stage or a memory that does one thing otherwise than `right`."""

    right: Any
    other: dict[str, Callable[..., Any]] = field(hash=False)

    def __getattr__(self, name: str) -> Any:
        if name in ("right", "other") or name not in self.other:
            return getattr(object.__getattribute__(self, "right"), name)
        return self.other[name]


def wrong_encode(change: Callable[[Ternary], Any]) -> Compressor:
    return custom(
        quantizer=Wrong(chain(TopK(0.1), Ternarize()), {"quantize": lambda value: change(right_quantize(value))})
    )


def right_quantize(value: CompensatedUpdate) -> Ternary:
    return chain(TopK(0.1), Ternarize()).quantize(value)


def unsteady() -> Compressor:
    rng = np.random.default_rng()
    return wrong_encode(lambda sent: replace(sent, magnitude=np.float32(sent.magnitude * rng.uniform(0.5, 1))))


def mutating() -> Compressor:
    def compensate(update: Any, state: State, context: EncodeContext) -> CompensatedUpdate:
        asked = ErrorFeedback().compensate(update, state, context)
        update *= 0.5
        return asked

    return custom(memory=Wrong(ErrorFeedback(), {"compensate": compensate}))


def losing(share: float) -> Compressor:
    def update(asked: CompensatedUpdate, sent: QuantizedVector) -> State:
        state = ErrorFeedback().update(asked, sent)
        state["residual"] *= np.float32(1 - share)
        return state

    return custom(memory=Wrong(ErrorFeedback(), {"update": update}))


def forgetful() -> Compressor:
    return custom(memory=Wrong(ErrorFeedback(), {"rollback": lambda lost, state: state}))


def swallowing_nan() -> Compressor:
    def quantize(value: CompensatedUpdate) -> Dense:
        return Dense(np.nan_to_num(sum(value.parts), posinf=1, neginf=-1))

    return custom(quantizer=Wrong(None, {"quantize": quantize}), entropy=Raw())


def raising_the_wrong_error() -> Compressor:
    def quantize(value: CompensatedUpdate) -> Dense:
        if not np.isfinite(sum(value.parts)).all():
            raise ArithmeticError("NaN")
        return Dense(value.dense())

    return custom(quantizer=Wrong(None, {"quantize": quantize}), entropy=Raw())


def spoiling_the_state() -> Compressor:
    def compensate(update: Any, state: State, context: EncodeContext) -> CompensatedUpdate:
        with np.errstate(invalid="ignore"):
            state["residual"] += update
        return CompensatedUpdate(state["residual"])

    return custom(memory=Wrong(ErrorFeedback(), {"compensate": compensate}))


def wrong_decode(change: Callable[[bytes, int | None], Any]) -> Compressor:
    return custom(entropy=Wrong(GolombTernary(), {"decode": lambda body, n=None: change(body, n)}))


def careless_of_n() -> Compressor:
    return wrong_decode(lambda body, n: GolombTernary().decode(body))


def careless_of_damage() -> Compressor:
    def decode(body: bytes, n: int | None) -> Ternary:
        try:
            return GolombTernary().decode(body, n)
        except fedcomp.FedcompError as error:
            raise IndexError(str(error)) from error

    return wrong_decode(decode)


def answering_damage_with_nan() -> Compressor:
    def decode(body: bytes, n: int | None) -> QuantizedVector:
        try:
            return GolombTernary().decode(body, n)
        except TruncatedError:
            return Dense(np.full(n or 1, np.nan, np.float32))

    return wrong_decode(decode)


@dataclass(frozen=True)
class Double:
    """Symbols whose vector is float64."""

    right: Ternary

    def dense(self) -> Any:
        return self.right.dense().astype(np.float64)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "right"), name)


def decoding_to_doubles() -> Compressor:
    return wrong_decode(lambda body, n: Double(GolombTernary().decode(body, n)))


def decoding_otherwise_without_n() -> Compressor:
    def decode(body: bytes, n: int | None) -> Ternary:
        symbols = GolombTernary().decode(body, n)
        return symbols if n is not None else replace(symbols, negative=~symbols.negative)

    return wrong_decode(decode)


def sending_bytearrays() -> Compressor:
    return custom(entropy=Wrong(GolombTernary(), {"encode": lambda value: bytearray(GolombTernary().encode(value))}))


def taking_float64() -> Compressor:
    @dataclass(frozen=True)
    class Lenient(Compressor):
        def encode(self, update: Any, state: State, seed: int = 0, **known: Any) -> tuple[bytes, State]:
            return super().encode(np.asarray(update, np.float32), state, seed, **known)

    return Lenient(**{name: getattr(custom(), name) for name in ("name", "settings", "quantize", "entropy", "memory")})


def keeping_nothing_of_denormals() -> Compressor:
    def quantize(value: CompensatedUpdate) -> Sparse:
        whole: Vector = value.dense()
        magnitude = np.float32(np.sum(whole.astype(np.float32) ** 2))  # underflows
        return Sparse(whole.size, np.arange(whole.size), np.sqrt(magnitude) / magnitude * whole)

    return custom(
        quantizer=Wrong(None, {"quantize": quantize}), entropy=Wrong(Raw(), {"encode": lambda s: s.values.tobytes()})
    )


def renamed() -> Compressor:
    return replace(fedcomp.stc(0.1), settings=(("density", 0.2),))


def unreadable() -> Compressor:
    return replace(fedcomp.stc(0.1), settings=(("densety", 0.1),))


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (unsteady, "the same update, state and seed give another body"),
        (mutating, "encode changed the update"),
        (lambda: losing(0.5), "all sent plus the residual is not all asked"),
        (lambda: losing(0.01), "all sent plus the residual is not all asked"),
        (forgetful, "restore does not bring back what was sent"),
        (swallowing_nan, "an update with nan at .* was encoded; a ValueError is needed"),
        (raising_the_wrong_error, r"an update with nan at .* raised ArithmeticError \(NaN\); not a ValueError"),
        (spoiling_the_state, "an update with nan at .* was refused, but changed the state"),
        (careless_of_n, "a body of 1 entries decodes to . as well; it must be refused"),
        (careless_of_damage, r"raised IndexError \(.*\); not a FedcompError"),
        (answering_damage_with_nan, r"decodes to a not finite float32 \(1,\)"),
        (decoding_to_doubles, r"the body decodes to a finite float64 \(1,\); a finite float32 \(1,\) is needed"),
        (decoding_otherwise_without_n, "decoded without n, the body gives other bits"),
        (sending_bytearrays, "the body is bytearray; bytes are needed"),
        (taking_float64, "an update that is a finite float64 .* was encoded; a ValueError is needed"),
        (keeping_nothing_of_denormals, "NaN or infinity|not finite"),
        (renamed, r"parse\('stc\(density=0.2\)'\) is another compressor"),
        (unreadable, r"parse does not read the text 'stc\(densety=0.1\)' of the compressor"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_whoever_breaks_the_contract_is_told_what_broke(broken: Callable[[], Compressor], sentence: str) -> None:
    with pytest.raises(ContractError, match=sentence):
        check_compressor(broken(), sizes=SIZES)


def test_the_sentence_names_the_compressor_and_the_size() -> None:
    with pytest.raises(AssertionError, match=r"^mine\(\) with 1 entries, Gaussian values in round 0: "):
        check_compressor(sending_bytearrays(), sizes=SIZES)
