"""Laws that relate the methods to each other, through the public face only."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import fedcomp
from fedcomp.core import CompensatedUpdate, EncodeContext, Vector
from fedcomp.memory import State
from fedcomp.quantize import TernGrad

N = 4000


def updates(count: int, n: int = N, seed: int = 0) -> list[Vector]:
    return list(np.random.default_rng(seed).standard_normal((count, n), np.float32))


def bodies(text: str, given: list[Vector], **known: Any) -> list[bytes]:
    """Return the bodies of one sender, round after round."""
    compressor = fedcomp.parse(text)
    state: State = compressor.init(given[0].size)
    sent = []
    for number, update in enumerate(given):
        body, state = compressor.encode(update, state, seed=number, **known)
        sent.append(body)
    return sent


def once(text: str, update: Vector, seed: int = 0, **known: Any) -> Vector:
    compressor = fedcomp.parse(text)
    body, _ = compressor.encode(update, compressor.init(update.size), seed=seed, **known)
    return compressor.decode(body, update.size)


def test_ecq_sgd_with_alpha_and_beta_1_is_qsgd_with_error_feedback_to_the_byte() -> None:
    settings = "levels=8, norm='l2', bucket=16"
    given = updates(10)
    assert bodies(f"ecqsgd(alpha=1, beta=1, {settings})", given) == bodies(f"qsgd({settings}, feedback=True)", given)
    assert bodies(f"ecqsgd(alpha=0.9, beta=1, {settings})", given) != bodies(f"qsgd({settings}, feedback=True)", given)


def test_regtopk_without_an_aggregate_is_top_k_to_the_byte() -> None:
    given = updates(6)
    assert bodies("regtopk(density=0.02)", given) == bodies("topk(density=0.02)", given)


@pytest.mark.parametrize("settings", ["", ", masking=False", ", scope='tensor'", ", nesterov=True"])
def test_dgc_with_every_entry_sent_is_momentum_sgd(settings: str) -> None:
    """Nothing is selected, so there is nothing to mask."""
    velocity = np.zeros(N)
    compressor = fedcomp.parse(f"dgc(density=1.0, momentum=0.9{settings})")
    sent = bodies(str(compressor), updates(8), shapes=SHAPES)
    for update, body in zip(updates(8), sent, strict=True):
        nesterov = "nesterov" in settings
        velocity = 0.9 * (velocity + update) if nesterov else 0.9 * velocity + update
        assert np.allclose(compressor.decode(body, N), velocity + update * nesterov, atol=1e-5)


SHAPES = ((50, 60), (40,), (24, 40))


@pytest.mark.parametrize(
    "text",
    [
        "topk(density=0.02, scope='tensor', dense_below=1)",
        "topk(density=0.02, values='bf16', scope='tensor', dense_below=1000)",
        "stc(density=0.02, scope='tensor', dense_below=1)",
        "stc(density=0.02, scope='tensor')",
    ],
)
def test_by_tensor_all_that_is_sent_and_the_residual_are_all_updates(text: str) -> None:
    compressor = fedcomp.parse(text)
    assert str(compressor) == text
    state, received, given = compressor.init(N), np.zeros(N), updates(6)
    for number, update in enumerate(given):
        body, state = compressor.encode(update, state, seed=number, shapes=SHAPES)
        received += compressor.decode(body, N)
    assert np.allclose(received + state["residual"], np.sum(given, axis=0), atol=1e-4)
    dense = slice(3000, 3040)
    if "dense_below" in text and "bf16" not in text:
        assert not state["residual"][dense].any(), "a dense tensor leaves nothing behind"
        assert np.allclose(received[dense], np.sum(given, axis=0)[dense], atol=1e-5)


def test_a_tensor_by_itself_is_compressed_as_a_vector_of_its_own() -> None:
    for method in ("topk", "stc"):
        (update,) = updates(1)
        whole = once(f"{method}(density=0.02, scope='tensor')", update, shapes=SHAPES)
        start = 0
        for shape in SHAPES:
            part = slice(start, start + math.prod(shape))
            assert whole[part].tobytes() == once(f"{method}(density=0.02)", update[part]).tobytes()
            start = part.stop


@pytest.mark.parametrize("settings", ["", ", warmup=4", ", values='bf16'"])
def test_dgc_by_tensor_is_momentum_sgd_where_tensors_are_sent_whole_and_masked_where_they_are_selected_from(
    settings: str,
) -> None:
    """The authors' code, in float64: a tensor of 3,000 entries, a dense one, one of a single entry, and one of 959."""
    shapes = ((50, 60), (40,), (1, 1), (1, 959))
    text = "dgc(density=0.01, momentum=0.9, warmup=0, scope='tensor', dense_below=1)"
    compressor = fedcomp.parse(
        text.replace(", warmup=0", settings) if "warmup" in settings else text[:-1] + settings + ")"
    )
    atol = 0.05 if "bf16" in settings else 1e-4
    state, velocity, unsent = compressor.init(N), np.zeros(N), np.zeros(N)
    for number, update in enumerate(updates(7)):
        body, state = compressor.encode(update, state, seed=number, server_round=number, shapes=shapes)
        found = compressor.decode(body, N)
        velocity = 0.9 * velocity + update
        unsent += velocity
        assert np.allclose(found[3000:3041], unsent[3000:3041], atol=atol, rtol=0.01), "all of it"
        if "warmup" in settings and number == 0:
            assert 0.3 < np.count_nonzero(found[:3000]) / 3000 < 0.5, "0.01 ** (1 / 5) of the entries"
        for part in (slice(0, 3000), slice(3041, N)):
            chosen = np.flatnonzero(found[part]) + part.start
            assert np.abs(unsent[chosen]).min() >= np.abs(np.delete(unsent[part], chosen - part.start)).max() - atol
            velocity[chosen] = 0
        unsent[found != 0] = 0 if "bf16" not in settings else (unsent - found)[found != 0]
    assert np.allclose(state["velocity"], velocity, atol=1e-4)


def test_ternary_draws_nothing_and_a_tensor_by_itself_is_a_vector_of_its_own() -> None:
    (update,) = updates(1)
    assert (
        once("ternary()", update, seed=1, shapes=SHAPES).tobytes()
        == once("ternary()", update, seed=2, shapes=SHAPES).tobytes()
    )
    whole, start = once("ternary(factor=0.5)", update, shapes=SHAPES), 0
    for shape in SHAPES:
        part = slice(start, start + math.prod(shape))
        assert whole[part].tobytes() == once("ternary(factor=0.5, scope='vector')", update[part]).tobytes()
        start = part.stop
    dense = once("ternary(dense_below=1)", update, shapes=SHAPES)
    assert np.array_equal(dense[3000:3040], update[3000:3040])


def test_ternary_errs_less_than_terngrad_in_every_tensor() -> None:
    (update,) = updates(1)
    errors = {text: np.square(once(text, update, shapes=SHAPES) - update) for text in ("ternary()", "terngrad()")}
    for part in (slice(0, 3000), slice(3000, 3040), slice(3040, N)):
        assert errors["ternary()"][part].sum() < 0.4 * errors["terngrad()"][part].sum()


def test_terngrad_updates_with_scales_of_powers_sum_as_whole_numbers_in_any_order() -> None:
    """Forty nodes whose updates differ in size by a factor of twenty."""
    rng = np.random.default_rng(0)
    given = [update * np.float32(rng.uniform(0.05, 1)) for update in updates(40)]
    sent = [once("terngrad(scaler='power')", update, seed, shapes=SHAPES) for seed, update in enumerate(given)]
    for part in (slice(0, 3000), slice(3000, 3040), slice(3040, N)):
        scales = {float(magnitude) for vector in sent for magnitude in np.abs(vector[part]) if magnitude}
        assert {math.frexp(scale)[0] for scale in scales} == {0.5}, "powers of two"
        assert 2 <= len(scales) <= 6
        counts = np.sum([vector[part].astype(np.float64) for vector in sent], axis=0) / min(scales)
        assert np.array_equal(counts, np.rint(counts))
    forward, backward = np.zeros(N, np.float32), np.zeros(N, np.float32)
    for one, other in zip(sent, reversed(sent), strict=True):
        forward += one
        backward += other
    assert forward.tobytes() == backward.tobytes(), "no rounding, so no order"
    own = [once("terngrad()", update, seed, shapes=SHAPES) for seed, update in enumerate(given)]
    assert np.sum(own, axis=0).tobytes() != np.sum(own[::-1], axis=0).tobytes()


@pytest.mark.parametrize("clip", [0, 2.5])
def test_terngrad_with_a_scale_of_a_power_has_the_mean_of_its_own_scale(clip: float) -> None:
    (update,) = updates(1, 400)
    clipped = np.clip(update, -clip * update.std(), clip * update.std()) if clip else update
    draws = 1500
    for scaler in ("own", "power"):
        quantizer = fedcomp.parse(f"terngrad(clip={clip}, scaler={scaler!r})").quantizer
        tensors = EncodeContext(0, shapes=((update.size,),) * draws)
        drawn = quantizer.quantize(CompensatedUpdate(np.tile(update, draws), context=tensors)).dense()
        mean = drawn.reshape(draws, -1).mean(axis=0)
        assert np.abs(mean - clipped).max() < 5 * 4 / np.sqrt(draws), "five standard errors of entries within 4"
        assert np.abs(mean - clipped).mean() < 0.05


def test_doublesqueezes_random_codec_contracts_by_what_its_magnitude_says() -> None:
    """E||Q(v) - v||^2 = (1 - a) ||v||^2, a = |v|^2 / (max |v| |v|_1), for vectors of light and of heavy tails."""
    rng, quantizer = np.random.default_rng(0), fedcomp.parse("doublesqueeze(codec='random')").quantizer
    light, heavy = rng.standard_normal(2000), rng.standard_t(2, 2000)
    exact = (np.ones(2000), 20), (np.eye(1, 2000)[0], 20)  # a = 1: every seed gives the same
    for given, seeds in ((light, 200), (heavy, 200), *exact):
        vector = given.astype(np.float32)
        wide = vector.astype(np.float64)
        square = np.square(wide).sum()
        kept = square / (np.abs(wide).max() * np.abs(wide).sum())
        drawn = (quantizer.quantize(CompensatedUpdate(vector, context=EncodeContext(seed))) for seed in range(seeds))
        found = [each.dense() for each in drawn]
        errors = [np.square(one - wide).sum() / square for one in found]
        assert np.mean(errors) == pytest.approx(1 - kept, abs=0.03)
        assert kept >= 2 / (1 + math.sqrt(2000))
        magnitude = square / np.abs(wide).sum()
        assert all(np.allclose(np.abs(one[one != 0]), magnitude, rtol=1e-5) for one in found)


def test_doublesqueezes_random_codec_keeps_a_far_smaller_residual_than_the_unbiased_one() -> None:
    given = updates(150, 1000)
    compressor = fedcomp.parse("doublesqueeze(codec='random')")
    unbiased = replace(compressor, quantizer=TernGrad(0.0))
    norms = {}
    for name, each in (("contracting", compressor), ("unbiased", unbiased)):
        state, sent = each.init(1000), np.zeros(1000)
        for number, update in enumerate(given):
            body, state = each.encode(update, state, seed=number)
            sent += each.decode(body, 1000)
        norms[name] = float(np.linalg.norm(state["residual"]) / np.sqrt(1000))
        assert np.allclose(sent + state["residual"], np.sum(given, axis=0), atol=1e-2)
    assert norms["contracting"] < 1.5
    assert norms["unbiased"] > 5 * norms["contracting"]


def test_a_tied_vote_costs_one_bit_an_entry_with_a_coin() -> None:
    votes = np.random.default_rng(0).choice([-0.001, 0, 0.001], N, p=[0.4, 0.2, 0.4]).astype(np.float32)
    sizes = {ties: len(bodies(f"signsgd(step=0.001, ties={ties!r})", [votes])[0]) for ties in ("zero", "coin")}
    assert sizes["coin"] < N / 8 + 20 < sizes["zero"]
    assert bodies("signsgd(step=0.001)", [votes]) == bodies("signsgd(step=0.001, ties='zero')", [votes])
    found = once("signsgd(step=0.001, ties='coin')", votes)
    assert np.array_equal(found[votes != 0], votes[votes != 0])


def test_hierarchical_quantization_with_one_level_gives_sparse_ternary_compressions_values() -> None:
    for update in updates(3):
        assert (
            once("hierarchical(density=0.05, levels=1, top_levels=1)", update).tobytes()
            == once("stc(density=0.05)", update).tobytes()
        )


def test_doublesqueeze_is_the_method_that_its_codec_names() -> None:
    given = updates(4)
    assert bodies("doublesqueeze()", given) == bodies("efsign()", given)
    assert bodies("doublesqueeze(codec='topk', density=0.1)", given) == bodies("topk(density=0.1)", given)
    with pytest.raises(ValueError, match="density is 0.1; only codec='topk' takes one"):
        fedcomp.parse("doublesqueeze(density=0.1)")


def test_rand_k_multiplies_by_n_over_k_without_feedback_alone() -> None:
    (update,) = updates(1)
    for feedback, factor in ((True, 1), (False, 5)):
        found = once(f"randk(density=0.2, feedback={feedback})", update)
        kept = found != 0
        assert np.allclose(found[kept], factor * update[kept])


def test_ecq_sgd_refuses_settings_whose_error_grows_without_end() -> None:
    with pytest.raises(ValueError, match=r"alpha is 1 and beta 1; alpha\^2 gamma .* must be below 1 and is 5.66"):
        fedcomp.parse("ecqsgd(alpha=1, beta=1)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topk(dense_below=10)", "dense_below is 10"),
        ("dgc(scope='layer')", "'layer'.*'vector', 'tensor'"),
        ("stc(order='interleaved', scope='tensor')", "'interleaved'"),
        ("dgc(warmup=4, warmup_steps=5)", "5; .* 1 to 4"),
        ("signsgd(step=None)", "step is None"),
        ("signsgd(ties='heads')", "'heads'"),
        ("cgx(bits=8, adaptive=True, tolerance=0.3)", "0.3.*1 is needed"),
        ("topk(feedback=1)", "feedback is 1; it is True or False"),
        ("randk(density='a')", "density is 'a'"),
        ("hierarchical(mask='layer')", "mask is 'layer'; it is one of 'vector', 'tensor'"),
        ("regtopk(mu=-1)", "mu is -1; it is a number, above 0"),
        ("regtopk(nodes=1.5)", "nodes is 1.5; it is a whole number"),
        ("dgc(momentum=1)", "momentum is 1; it is a number, at least 0 and at most 0.9999"),
        ("sparseloco(decay=2)", "decay is 2; it is a number, at least 0 and at most 1"),
        ("ef21(momentum=0)", "momentum is 0; it is the weight of the newest update"),
        ("doublesqueeze(codec='bits')", "codec is 'bits'; it is one of 'sign', 'topk', 'random'"),
        ("doublesqueeze(codec='random', density=0.1)", "density is 0.1; only codec='topk'"),
        ("terngrad(scaler='max')", "scaler is 'max'; it is one of 'own', 'power'"),
        ("ternary(factor=1)", "factor is 1; it is a multiple of the mean magnitude"),
        ("ternary(scope='vector', dense_below=1)", "dense_below is 1; only scope='tensor'"),
        ("ternary(scope='layer')", "'layer'.*'tensor', 'vector'"),
        ("ecqsgd(alpha=-1)", "alpha is -1; it is a number, at least 0 and at most 1"),
        (
            "qsgd(levels=4, norm='l2', feedback=True)",
            "feedback is True; .* the error would grow without end: its variance is 5.66",
        ),
        ("cgx(rounding='up')", "rounding is 'up'; it is one of 'nearest', 'random'"),
        ("fastsgd(base=16)", "fastsgd.* has error feedback, and the error of its message has no bound"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name_value_and_range(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fedcomp.parse(text)


@pytest.mark.parametrize("name", sorted(fedcomp.METHODS))
def test_a_torch_tensor_gives_the_same_bytes_and_state_as_a_numpy_vector(name: str) -> None:
    shapes = ((60, 60), (400,))
    compressor = fedcomp.parse(name)
    one, other = compressor.init(N), compressor.init(N)
    for number, update in enumerate(updates(4)):
        known: dict[str, Any] = {"seed": number, "server_round": number, "shapes": shapes}
        body, one = compressor.encode(update, one, **known)
        again, other = compressor.encode(torch.from_numpy(update), other, **known)
        assert body == again
    for key, array in one.items():
        assert np.array_equal(array, np.asarray(other[key])), key


@pytest.mark.parametrize("name", sorted(fedcomp.METHODS))
def test_rollback_takes_back_exactly_the_entries_of_a_body(name: str) -> None:
    """Sent and restored, the next message is that of a sender whose memory holds what was sent as well."""
    compressor = fedcomp.parse(name)
    _, state = compressor.encode(updates(1)[0], compressor.init(N), seed=1)
    body, state = compressor.encode(updates(2)[1], state, seed=2)
    if not compressor.memory.vectors:
        assert compressor.memory.rollback(compressor.entropy.decode(body, n=N), state) == {}
        return
    where = {"estimate": -1.0, "unsent_velocity": 1.0, "decayed": 1.0, "accumulated_error": 1.0, "residual": 1.0}
    (key,) = [key for key in compressor.memory.vectors if key in where]
    before = np.array(state[key])
    after = compressor.memory.rollback(compressor.entropy.decode(body, n=N), state)[key]
    assert np.allclose(after, before + where[key] * compressor.decode(body, N), atol=1e-5)
    assert not np.allclose(after, before)
