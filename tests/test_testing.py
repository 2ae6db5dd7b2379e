"""The contract: every method keeps it, and each broken part is named."""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from itertools import count
from typing import Any

import numpy as np
import pytest

import fedcomp
from fedcomp.compressor import Compressor
from fedcomp.core import CompensatedUpdate, EncodeContext, Vector
from fedcomp.entropy import GolombTernary, Raw
from fedcomp.errors import TruncatedError
from fedcomp.memory import LinearFeedback, State
from fedcomp.methods import METHODS
from fedcomp.quantize import Eden, ErrorBound, Ternarize, TopK, Unbiased, chain
from fedcomp.quantized import Dense, QuantizedVector, Rotated, Sparse, Ternary
from fedcomp.testing import ContractError, check_code, check_compressor, check_error_bound

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
    "doublesqueeze(codec='random')",
    "qsgd(levels=1, norm='l2', bucket=4096)",
    "qsgd(levels=255, bucket=64, feedback=True)",
    "ecqsgd(alpha=1, beta=1, levels=8, bucket=16)",
    "natural(feedback=True)",
    "natural_dithering(levels=3, norm='l2', bucket=1000)",
    "terngrad(clip=0)",
    "terngrad(scaler='power')",
    "ternary(factor=0.3, feedback=True, dense_below=100)",
    "ternary(factor=0.9, scope='vector')",
    "cgx(bits=8, bucket=128, dense_below=0, feedback=True)",
    "cgx(adaptive=True, tolerance=2.0, dense_below=10)",
    "crosspolytope(bits=0.05)",
    "crosspolytope(bits=0.6, feedback=True)",
    "drive(feedback=True)",
    "eden(bits=0.1)",
    "eden(bits=1.5)",
    "eden(bits=4, feedback=True)",
    "powersgd(rank=4)",
]


@pytest.mark.parametrize("sizes", [(101,), pytest.param((1, 2, 31, 1000), marks=pytest.mark.nightly)], ids=str)
@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_keeps_the_contract(name: str, sizes: tuple[int, ...]) -> None:
    check_compressor(fedcomp.parse(name), sizes=sizes)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_rounds_of_every_method_keep_the_contract(name: str) -> None:
    check_compressor(fedcomp.parse(name), sizes=(1, 1000), damage_up_to=0)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_keeps_the_contract_for_two_blocks(name: str) -> None:
    check_compressor(fedcomp.parse(name), sizes=(40_003,))


@pytest.mark.sample(5)
@pytest.mark.parametrize("text", TEXTS)
def test_every_setting_of_a_method_keeps_the_contract(text: str) -> None:
    check_compressor(fedcomp.parse(text), sizes=(1, 31, 1000), damage_up_to=100)


def test_every_method_is_checked() -> None:
    assert {fedcomp.parse(text).name for text in {*TEXTS, *METHODS}} == set(METHODS)


def test_a_vector_of_300_000_entries_keeps_the_contract() -> None:
    check_compressor(fedcomp.stc(0.01), sizes=(300_000,), seed=3)


def test_a_compressor_that_is_not_registered_can_be_checked() -> None:
    check_compressor(custom(), sizes=(31,))


def custom(**parts: Any) -> Compressor:
    base: dict[str, Any] = {
        "name": "mine",
        "settings": (),
        "quantizer": chain(TopK(0.1), Ternarize()),
        "entropy": GolombTernary(),
        "memory": LinearFeedback(),
    }
    return Compressor(**(base | parts))


@dataclass(frozen=True)
class Changed:
    """A part of a compressor in which some methods are replaced."""

    part: Any
    methods: dict[str, Callable[..., Any]] = field(hash=False)

    def __getattr__(self, name: str) -> Any:
        if name in ("part", "methods") or name not in self.methods:
            return getattr(object.__getattribute__(self, "part"), name)
        return self.methods[name]


def with_quantizer(quantize: Callable[[CompensatedUpdate], QuantizedVector], entropy: Any) -> Compressor:
    return custom(quantizer=Changed(None, {"quantize": quantize}), entropy=entropy)


def with_decode(decode: Callable[[bytes, int | None], Any]) -> Compressor:
    return custom(entropy=Changed(GolombTernary(), {"decode": lambda body, n=None: decode(body, n)}))


def with_memory(**methods: Callable[..., Any]) -> Compressor:
    return custom(memory=Changed(LinearFeedback(), methods))


def drawing_without_the_seed() -> Compressor:
    rng = np.random.default_rng()

    def quantize(value: CompensatedUpdate) -> Ternary:
        ternary = chain(TopK(0.1), Ternarize()).quantize(value)
        return replace(ternary, magnitude=np.float32(ternary.magnitude * rng.uniform(0.5, 1)))

    return with_quantizer(quantize, GolombTernary())


def mutating_the_update() -> Compressor:
    def compensate(update: Any, state: State, context: EncodeContext) -> CompensatedUpdate:
        target = LinearFeedback().compensate(update, state, context)
        update *= 0.5
        return target

    return with_memory(compensate=compensate)


def losing(share: float) -> Compressor:
    def update(target: CompensatedUpdate, quantized: QuantizedVector, state: State) -> State:
        state = LinearFeedback().update(target, quantized, state)
        state["residual"] *= np.float32(1 - share)
        return state

    return with_memory(update=update)


def not_rolling_back() -> Compressor:
    return with_memory(rollback=lambda lost, state: state)


def encoding_nan() -> Compressor:
    return with_quantizer(lambda value: Dense(np.nan_to_num(sum(value.parts), posinf=1, neginf=-1)), Raw())


def raising_the_wrong_error() -> Compressor:
    def quantize(value: CompensatedUpdate) -> Dense:
        if not np.isfinite(sum(value.parts)).all():
            raise ArithmeticError("NaN")
        return Dense(value.dense())

    return with_quantizer(quantize, Raw())


def changing_the_state_before_it_refuses() -> Compressor:
    def compensate(update: Any, state: State, context: EncodeContext) -> CompensatedUpdate:
        with np.errstate(invalid="ignore"):
            state["residual"] += update
        return CompensatedUpdate(state["residual"])

    return with_memory(compensate=compensate)


def ignoring_n() -> Compressor:
    return with_decode(lambda body, n: GolombTernary().decode(body))


def raising_index_errors_on_damage() -> Compressor:
    def decode(body: bytes, n: int | None) -> Ternary:
        try:
            return GolombTernary().decode(body, n)
        except fedcomp.FedcompError as error:
            raise IndexError(str(error)) from error

    return with_decode(decode)


def decoding_damage_to_nan() -> Compressor:
    def decode(body: bytes, n: int | None) -> QuantizedVector:
        try:
            return GolombTernary().decode(body, n)
        except TruncatedError:
            return Dense(np.full(n or 1, np.nan, np.float32))

    return with_decode(decode)


def decoding_damage_to_nothing() -> Compressor:
    def decode(body: bytes, n: int | None) -> Any:
        try:
            return GolombTernary().decode(body, n)
        except TruncatedError:
            return Changed(None, {"dense": lambda: None})

    return with_decode(decode)


def decoding_to_float64() -> Compressor:
    def decode(body: bytes, n: int | None) -> Dense:
        vector: Any = GolombTernary().decode(body, n).dense().astype(np.float64)
        return Dense(vector)

    return with_decode(decode)


def decoding_to_other_signs(with_n: bool) -> Compressor:
    def decode(body: bytes, n: int | None) -> Ternary:
        ternary = GolombTernary().decode(body, n)
        return ternary if (n is not None) != with_n else replace(ternary, negative=~ternary.negative)

    return with_decode(decode)


def decoding_otherwise_by_another_instance(change: Callable[[Vector], Any]) -> Compressor:
    """A body is decoded by the code twice, then by the compressor, and then by the other instance."""
    calls = count(1)

    def decode(body: bytes, n: int | None) -> Any:
        ternary = GolombTernary().decode(body, n)
        return ternary if next(calls) % 4 else Changed(None, {"dense": lambda: change(ternary.dense())})

    return with_decode(decode)


def decoding_to_all_entries() -> Compressor:
    return with_decode(lambda body, n: Dense(GolombTernary().decode(body, n).dense()))


def encoding_to_bytearray() -> Compressor:
    return custom(entropy=Changed(GolombTernary(), {"encode": lambda value: bytearray(GolombTernary().encode(value))}))


def taking_float64() -> Compressor:
    @dataclass(frozen=True)
    class Lenient(Compressor):
        def encode(self, update: Any, state: State, seed: int = 0, **context: Any) -> tuple[bytes, State]:
            return super().encode(np.asarray(update, np.float32), state, seed, **context)

    return Lenient(**{part.name: getattr(custom(), part.name) for part in fields(Compressor)})


def underflowing() -> Compressor:
    def quantize(value: CompensatedUpdate) -> Dense:
        vector: Vector = value.dense()
        square = np.float32(np.sum(vector**2))  # 0 for denormals
        return Dense(np.sqrt(square) / square * vector)

    return with_quantizer(quantize, Raw())


def with_another_setting() -> Compressor:
    return replace(fedcomp.stc(0.1), settings=(("density", 0.2),))


def with_an_unknown_setting() -> Compressor:
    return replace(fedcomp.stc(0.1), settings=(("densety", 0.1),))


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (drawing_without_the_seed, "equal update, state and seed give another body"),
        (mutating_the_update, "encode changed the update"),
        (lambda: losing(0.5), "all decoded plus the residual is not all updates"),
        (lambda: losing(0.01), "all decoded plus the residual is not all updates"),
        (not_rolling_back, "rollback does not restore what was sent"),
        (encoding_nan, "an update with nan at .* was encoded; a ValueError is needed"),
        (raising_the_wrong_error, r"an update with nan at .* raised ArithmeticError \(NaN\); not a ValueError"),
        (changing_the_state_before_it_refuses, "an update with nan at .* was refused, but changed the state"),
        (ignoring_n, "a body of 1 entries decodes to . as well; it must be refused"),
        (raising_index_errors_on_damage, r"raised IndexError \(.*\); not a FedcompError"),
        (decoding_damage_to_nan, r"decodes to a not finite float32 \(1,\)"),
        (decoding_damage_to_nothing, "a body cut to 0 bytes decodes to a NoneType"),
        (decoding_to_float64, r"decodes to a finite float64 \(1,\); a finite float32 \(1,\) is needed"),
        (lambda: decoding_to_other_signs(with_n=True), "entry 0 is .* and decodes to [^ ]*$"),
        (lambda: decoding_to_other_signs(with_n=False), "entry 0 is .* and decodes to .* without n"),
        (lambda: decoding_otherwise_by_another_instance(np.negative), "another instance decodes .* to other bits"),
        (lambda: decoding_otherwise_by_another_instance(np.atleast_2d), "another instance decodes .* to other bits"),
        (decoding_to_all_entries, "sparse.* changed"),
        (encoding_to_bytearray, "the body is bytearray; bytes are needed"),
        (taking_float64, "an update that is a finite float64 .* was encoded; a ValueError is needed"),
        (underflowing, "all zeros in round 0: .* refuses its own body"),
        (with_another_setting, r"parse\('stc\(density=0.2\)'\) is another compressor"),
        (with_an_unknown_setting, r"parse refuses the text 'stc\(densety=0.1\)' of the compressor"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_broken_part_is_named(broken: Callable[[], Compressor], sentence: str) -> None:
    with pytest.raises(ContractError, match=sentence):
        check_compressor(broken(), sizes=SIZES)


def test_the_error_names_the_compressor_and_the_size() -> None:
    with pytest.raises(AssertionError, match=r"^mine\(\) with 1 entries, Gaussian values in round 0: "):
        check_compressor(encoding_to_bytearray(), sizes=SIZES)


def test_bodies_of_vectors_longer_than_damage_up_to_are_not_damaged() -> None:
    check_compressor(raising_index_errors_on_wrong_checksums(), sizes=(31, 1000), damage_up_to=30)
    with pytest.raises(ContractError, match="with 1000 entries: a body cut to 0 bytes raised IndexError"):
        check_compressor(raising_index_errors_on_wrong_checksums(), sizes=(1000,), damage_up_to=1000)


def raising_index_errors_on_wrong_checksums() -> Compressor:
    def encode(value: Ternary) -> bytes:
        body = GolombTernary().encode(value)
        return body + zlib.crc32(body).to_bytes(4, "little")

    def decode(body: bytes, n: int | None = None) -> Ternary:
        if zlib.crc32(body[:-4]).to_bytes(4, "little") != body[-4:]:
            raise IndexError("checksum")
        return GolombTernary().decode(body[:-4], n)

    return custom(entropy=Changed(GolombTernary(), {"encode": encode, "decode": decode}))


E4M3 = np.array(
    [m / 8 / 64 for m in range(8)] + [(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8)]
)[:-1]
"""The 127 values of an 8-bit float without its sign: 4 bits of exponent, 3 of mantissa, at most 448."""
FLOAT8_HEAD = struct.Struct("<qqh")


def float8(magnitudes: Vector) -> tuple[np.ndarray[Any, Any], int]:
    """Return the index in `E4M3` of each magnitude, scaled by a power of two that brings the largest to [128, 256)."""
    shift = int(np.frexp(magnitudes.max(initial=0))[1]) - 8
    values = E4M3[np.ldexp(E4M3, shift) <= np.finfo(np.float32).max]
    return np.abs(np.ldexp(magnitudes.astype(np.float64), -shift)[:, None] - values).argmin(1), shift


@dataclass(frozen=True)
class Threshold:
    """Entries above `factor` times the root mean square, rounded to 8-bit floats."""

    factor: float

    def quantize(self, value: CompensatedUpdate) -> Sparse:
        vector = value.dense()
        indices = np.flatnonzero(np.abs(vector) > self.factor * np.sqrt(np.mean(vector.astype(np.float64) ** 2)))
        codes, shift = float8(np.abs(vector[indices]))
        return Sparse(
            vector.size, indices, np.copysign(np.ldexp(E4M3[codes], shift), vector[indices]).astype(np.float32)
        )


@dataclass(frozen=True)
class LossyFloat8:
    """A code of such entries that finds the power of two again from the rounded values.

    Where the largest was rounded up to a power of two, it is one too high, and the smallest entries lose their last bit.
    """

    def encode(self, value: Sparse, /) -> bytes:
        codes, shift = float8(np.abs(value.values))
        signed = (codes | np.where(np.signbit(value.values), 128, 0)).astype(np.uint8)
        return FLOAT8_HEAD.pack(value.n, signed.size, shift) + value.indices.astype("<i8").tobytes() + signed.tobytes()

    def decode(self, body: bytes, /, n: int | None = None) -> Sparse:
        if len(body) < FLOAT8_HEAD.size:
            raise TruncatedError(f"{len(body)} bytes")
        length, k, shift = FLOAT8_HEAD.unpack_from(body)
        if (
            n not in (None, length)
            or not 0 <= k <= length
            or len(body) != FLOAT8_HEAD.size + 9 * k
            or not -160 < shift <= 120
        ):
            raise TruncatedError(f"{length} entries, {len(body)} bytes")
        raw, signed = np.split(np.frombuffer(body, np.uint8, offset=FLOAT8_HEAD.size), [8 * k])
        indices = raw.view("<i8")
        if k and not (
            indices[0] >= 0 and (np.diff(indices) > 0).all() and indices[-1] < length and (signed & 127).max() < 127
        ):
            raise TruncatedError(f"{k} entries of {length}")
        values = np.ldexp(E4M3[signed & 127], shift)
        if not values.max(initial=0) <= np.finfo(np.float32).max:
            raise TruncatedError(f"a value of {values.max()}")
        return Sparse(length, indices, np.where(signed & 128, -values, values).astype(np.float32))


def test_the_lossy_code_changes_few_vectors() -> None:
    rng, changed = np.random.default_rng(0), 0
    for _ in range(1500):
        vector = np.ldexp(rng.standard_normal(100), rng.integers(-20, 1, 100)).astype(np.float32)
        quantized = Threshold(0).quantize(CompensatedUpdate(vector))
        changed += (
            LossyFloat8().decode(LossyFloat8().encode(quantized)).dense().tobytes() != quantized.dense().tobytes()
        )
    assert 0 < changed < 150


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(20))
def test_a_code_that_is_lossy_for_few_vectors_fails_for_every_seed(seed: int) -> None:
    compressor = custom(quantizer=Threshold(0), entropy=LossyFloat8())
    with pytest.raises(ContractError, match=r"entry \d+ is .* and decodes to"):
        check_compressor(compressor, sizes=(1, 2, 31, 1000), seed=seed)


@pytest.mark.parametrize("seed", [3, 12])
def test_a_rotation_keeps_its_bound_where_two_entries_hold_most_of_the_norm(seed: int) -> None:
    """Its mean is far from such a vector: by 0.18 and 0.45 of the squared norm."""
    check_error_bound(fedcomp.drive(), 255, seed=seed)


@dataclass(frozen=True)
class Shrunk:
    """A rotation with the scale of least error, which shrinks every vector, declared as unbiased."""

    def quantize(self, value: CompensatedUpdate, /) -> Rotated:
        return Eden(1, "minimal").quantize(value)

    def error_bound(self, n: int) -> ErrorBound | None:
        return Unbiased(0.4)


def test_a_biased_rotation_is_refused() -> None:
    with pytest.raises(ContractError, match="Gaussian.*declared as unbiased"):
        check_error_bound(replace(fedcomp.drive(), quantizer=Shrunk()), 255)


def test_a_code_is_checked_on_quantized_vectors_alone() -> None:
    rng = np.random.default_rng(0)
    vectors = [chain(TopK(0.3), Ternarize()).quantize(CompensatedUpdate(rng.standard_normal(50, np.float32)))] * 3
    check_code(GolombTernary(), vectors)
    lossy: Any = Changed(GolombTernary(), {"decode": lambda body, n=None: replace(vectors[0], magnitude=np.float32(1))})
    with pytest.raises(ContractError, match="with 50 entries: entry"):
        check_code(lossy, vectors)


def test_minus_zero_and_zero_are_different_bits() -> None:
    lossy: Any = Changed(Raw(), {"decode": lambda body, n=None: Dense(Raw().decode(body, n).vector + np.float32(0))})
    check_code(Raw(), [Dense(np.array([-0.0], np.float32))])
    with pytest.raises(ContractError, match="entry 0 is .*-0.0.* and decodes to .*0.0"):
        check_code(lossy, [Dense(np.array([-0.0], np.float32))])


def test_tensors_of_zero_one_and_two_dimensions_are_checked() -> None:
    seen: set[int] = set()

    def quantize(value: CompensatedUpdate) -> Dense:
        seen.update(len(shape) for shape in value.context.shapes)
        return Dense(value.dense())

    check_compressor(with_quantizer(quantize, Raw()), sizes=(31,))
    assert seen == {0, 1, 2}
