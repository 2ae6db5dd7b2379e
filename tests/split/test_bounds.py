"""No batch of a node ruins the upper part, and nothing that it returns the lower parts; honest runs lose nothing."""

import numpy as np
import pytest
import torch
from torch import nn

import fedcomp
from fedcomp.core import Vector
from fedcomp.errors import CorruptError
from fedcomp.split import (
    ActivationMemory,
    RoundBounds,
    SplitSettings,
    key_frame,
    layout_of_part,
    weights_of,
    with_scaled_change,
    write_activations,
)
from fedcomp.split.bounds import Sizes
from fedcomp.split.weights import read_key_frame
from fedcomp.wire import parse_server_message
from tests.split.pair import Pair, samples

SETTINGS = SplitSettings(batch_size=5, steps=10, momentum=0.5)
HOSTILE = 2


def with_hostile(settings: SplitSettings = SETTINGS, whole: nn.Module | None = None) -> Pair:
    """Return a pair in a round that node 2 takes part in, too."""
    pair = Pair(settings, whole)
    pair.begin()
    pair.server.begin(HOSTILE, key_frame(pair.layout, weights_of(pair.lower), 1))
    return pair


def attack(pair: Pair, rows: Vector, first: int = 0) -> None:
    """Let the hostile node send a batch of new samples with the activations `rows`."""
    request, _ = parse_server_message(pair.server.message(HOSTILE))
    ids = range(first, first + len(rows))
    frame = write_activations(
        ids,
        rows,
        [0] * len(rows),
        ActivationMemory(rows.shape[1]),
        fedcomp.dense(),
        number=request.number,
        round_number=1,
    )
    pair.server.take(HOSTILE, frame.to_bytes())


def upper_bits(pair: Pair) -> bytes:
    """Return weights and buffers of the upper part, and the momentum of its optimizer."""
    state = pair.server.upper.state_dict()
    buffers = [each["momentum_buffer"] for each in pair.server.optimizer.state.values()]
    return b"".join(tensor.numpy().tobytes() for tensor in (*state.values(), *buffers))


def accuracy(pair: Pair) -> float:
    x, y = samples(200, seed=5)
    pair.model.eval()
    return float((pair.model(x).argmax(1) == y).float().mean())


def batch_norm() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.BatchNorm1d(6), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


@pytest.mark.sample(2)
@pytest.mark.parametrize("magnitude", [1e3, 1e6, 9e14])
@pytest.mark.parametrize("begins", [True, False])
def test_a_hostile_batch_stops_nobody(magnitude: float, begins: bool) -> None:
    """It comes before all others, or after some.  The honest node then trains as it would without it."""
    pair, quiet = with_hostile(), with_hostile()
    rows = np.full((4, 6), magnitude, np.float32) * np.array([[1], [-1], [1], [-1]], np.float32)
    for each in (pair, quiet):
        for _ in range(0 if begins else 3):
            each.server.take(1, each.answer(each.server.message(1)))
    before = upper_bits(pair)
    with pytest.raises(CorruptError, match="root mean square|a step of length"):
        attack(pair, rows)
    assert upper_bits(pair) == before
    for each in (pair, quiet):
        while (weights := each.server.take(1, each.answer(each.server.message(1)))) is None:
            pass
        each.finish(weights)
        each.run(1)
    assert pair.bits() == quiet.bits()


def test_a_refused_batch_moves_no_statistics_of_batch_normalization() -> None:
    pair = with_hostile(whole=batch_norm())
    for _ in range(2):
        pair.server.take(1, pair.answer(pair.server.message(1)))
    before = upper_bits(pair)
    for rows in (np.full((4, 6), 1e4, np.float32), np.full((2, 6), np.float32(9e14))):
        with pytest.raises(CorruptError):
            attack(pair, rows)
        assert upper_bits(pair) == before


def test_a_batch_below_the_limit_has_no_more_weight_than_a_few_others() -> None:
    """Activations at the limit give a gradient far beyond the others: it is clipped to `clip` times their median."""
    pair = with_hostile(SplitSettings(batch_size=5, steps=10))
    for _ in range(4):
        pair.server.take(1, pair.answer(pair.server.message(1)))
    limit = 5 * pair.server.bounds.gradients.largest_median
    before = [weight.detach().clone() for weight in pair.server.upper.parameters()]
    attack(pair, np.full((4, 6), 12, np.float32))
    after = pair.server.upper.parameters()
    length = sum(float((new.detach() - old).square().sum()) for new, old in zip(after, before, strict=True)) ** 0.5
    assert length == pytest.approx(0.1 * limit, rel=1e-4)


def test_an_honest_run_loses_nothing() -> None:
    """The bounds change no bit of it."""
    runs = [Pair(SplitSettings(batch_size=5, steps=20, momentum=0.5, clip=clip)) for clip in (5.0, 0.0)]
    for each in runs:
        each.run(3)
    assert runs[0].bits() == runs[1].bits()
    assert accuracy(runs[0]) > 0.6


def test_without_a_bound_one_batch_ruins_the_upper_part() -> None:
    pair = with_hostile(SplitSettings(batch_size=5, steps=10, clip=0.0))
    attack(pair, np.full((4, 6), 9e14, np.float32))
    assert max(float(weight.detach().abs().max()) for weight in pair.server.upper.parameters()) > 1e12


def test_each_node_has_one_vote_in_the_median() -> None:
    sizes = Sizes()
    for node in range(3):
        sizes.add(node, 1.0 + node)
    for _ in range(50):
        sizes.add(2, 1e9)
    assert (sizes.median, sizes.largest_median) == (2, 2)


def test_lower_weights_far_from_where_they_started_move_back() -> None:
    """Of changes 1, 1, 2 and 10^9 the median is 1.5: at most 5 times that counts."""
    start = {"w": np.zeros(4, np.float32), "steps": np.array(3)}
    changes = dict(enumerate((1.0, 1.0, 2.0, 1e9)))
    weights = {
        node: {"w": np.array([change, 0, 0, 0], np.float32), "steps": np.array(4)} for node, change in changes.items()
    }
    factors = RoundBounds(5.0, ["w"]).factors(start, weights)
    assert {node: each["w"] for node, each in factors.items()} == {0: 1, 1: 1, 2: 1, 3: pytest.approx(7.5e-9)}
    bounded = with_scaled_change(start, weights[3], factors[3])
    assert bounded["w"].tolist() == pytest.approx([7.5, 0, 0, 0])
    assert bounded["steps"] == 4
    assert RoundBounds(0.0, ["w"]).factors(start, weights) == {node: {"w": 1.0, "steps": 1.0} for node in range(4)}
    alone = RoundBounds(5.0, ["w"]).factors(start, {3: weights[3]})
    assert alone[3]["w"] == pytest.approx(1e-8), "nobody to compare with: ten times the norm of the weights, or of 1"


def test_each_statistic_is_bounded_apart_in_its_own_unit() -> None:
    """Variances of a million move neither the bound of the weights nor are moved by it; whole numbers are bounded, too."""
    start = {"w": np.ones(4, np.float32), "var": np.ones(1, np.float32), "count": np.array(10)}
    honest = {"w": np.full(4, 1.5, np.float32), "var": np.full(1, 1e6, np.float32), "count": np.array(22)}
    bounds = RoundBounds(5.0, ["w"])
    for hostile in (
        {"w": np.full(4, 1e9, np.float32)},
        {"var": np.full(1, 3e38, np.float32)},
        {"count": np.array(2**62)},
    ):
        factors = bounds.factors(start, {0: honest, 1: honest, 2: honest | hostile})
        assert factors[0] == factors[1] == dict.fromkeys(start, 1.0)
        [name] = hostile
        assert {key for key, factor in factors[2].items() if factor < 1} == {name}
        bounded = with_scaled_change(start, honest | hostile, factors[2])
        change, usual = bounded[name] - start[name], honest[name] - start[name]
        np.testing.assert_allclose(np.asarray(change), 5 * np.asarray(usual), rtol=1e-6)
    assert RoundBounds(5.0, ["w"]).factors(start, {0: honest})[0] == dict.fromkeys(start, 1.0), "nobody to compare with"


@pytest.mark.parametrize("magnitude", [1.0, 1e300])
def test_what_the_other_nodes_leave_as_it_was_stays_so(magnitude: float) -> None:
    """Such as a mean that the samples are divided by, and frozen statistics."""
    start = {"w": np.ones(4, np.float32), "mean": np.full(2, 3.0)}
    honest = start | {"w": np.zeros(4, np.float32)}
    hostile = honest | {"mean": np.full(2, -magnitude)}
    bounds = RoundBounds(5.0, ["w"])
    factors = bounds.factors(start, {0: honest, 1: hostile, 2: honest})
    assert factors == {0: dict.fromkeys(start, 1.0), 1: {"w": 1.0, "mean": 0.0}, 2: dict.fromkeys(start, 1.0)}
    assert np.array_equal(with_scaled_change(start, hostile, factors[1])["mean"], start["mean"])
    bounds.forget([0, 2])
    assert bounds.factors(start, {1: hostile})[1]["mean"] == 1


@pytest.mark.parametrize("name", ["running_var", "num_batches_tracked"])
def test_a_negative_statistic_is_refused(name: str) -> None:
    """The mean of several nodes could be negative, too: the root of it is NaN, and a cumulative average divides by 0."""
    norm = nn.BatchNorm1d(3)
    arrays = weights_of(norm)
    arrays[name] = np.asarray(arrays[name] - 5, arrays[name].dtype)
    with pytest.raises(CorruptError, match=f"{name} is -[45]; at least 0 is possible"):
        read_key_frame(key_frame(layout_of_part(norm), arrays, 1), layout_of_part(norm))
