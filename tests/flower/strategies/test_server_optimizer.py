"""The laws of every server optimizer."""

import itertools
import math
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, Strategy

import fedcomp
from fedcomp.flower import (
    EF21,
    CompressedStrategy,
    DynamicSampling,
    FedAMS,
    LocalGrid,
    MajorityVote,
    QcmdAdagrad,
    QrdaAdagrad,
)
from fedcomp.flower.compat import AggregationError
from fedcomp.flower.strategies.dynamic_sampling import aggregating
from fedcomp.flower.strategies.reply_use import ReplyUse, reply_use_of
from fedcomp.flower.strategies.server_optimizer import ServerOptimizer
from tests.flower.strategies.by_hand import grid, one_round, record, values
from tests.flower.toy import app, floats, model

Make = Callable[..., ServerOptimizer]
STRATEGIES: dict[str, Make] = {
    "FedAMS": FedAMS,
    "QcmdAdagrad": QcmdAdagrad,
    "QrdaAdagrad": QrdaAdagrad,
    "QrdaAdagrad around zero": lambda **fedavg: QrdaAdagrad(center="zero", **fedavg),
    "MajorityVote": MajorityVote,
    "EF21": EF21,
}
HALF = {"fraction_train": 0.5, "fraction_evaluate": 0.0}
every = pytest.mark.parametrize("make", STRATEGIES.values(), ids=STRATEGIES.keys())


def uplink_of(inner: Strategy) -> fedcomp.Compressor:
    """Return an uplink that fits `inner`."""
    return fedcomp.parse("ef21(density=0.05)" if isinstance(aggregating(inner), EF21) else "stc(density=0.05)")


def _batch_norm(rng: np.random.Generator) -> dict[str, Any]:
    """Return a model of parameters of all dtypes, and of counters and BatchNorm statistics."""
    return {
        "layer.weight": rng.standard_normal((3, 4)).astype(np.float32),
        "layer.bias": rng.standard_normal(4).astype(np.float64),
        "half.weight": rng.standard_normal((2, 2)).astype(np.float16),
        "scale": np.asarray(rng.standard_normal(), np.float32),
        "norm.running_mean": rng.standard_normal(4).astype(np.float32),
        "norm.running_var": rng.random(4).astype(np.float32),
        "norm.num_batches_tracked": np.asarray(rng.integers(100), np.int64),
        "seen": rng.integers(0, 9, 3).astype(np.int32),
    }


@every
def test_counters_and_batchnorm_statistics_follow_the_weighted_mean_and_parameters_do_not(make: Make) -> None:
    rng = np.random.default_rng(0)
    published, sent = record(_batch_norm(rng)), [_batch_norm(rng) for _ in range(3)]
    stepped = one_round(make(), published, sent, weights=[1, 2, 3])
    plain = one_round(FedAvg(), published, sent, weights=[1, 2, 3])
    assert stepped is not None
    assert plain is not None
    assert stepped.keys() == published.keys()
    for name in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "seen"):
        mean, kept = plain[name].numpy(), stepped[name].numpy()
        assert kept.dtype == published[name].numpy().dtype
        np.testing.assert_array_equal(kept, mean if kept.dtype.kind == "f" else np.rint(mean))
    for name in ("layer.weight", "layer.bias", "half.weight", "scale"):
        assert stepped[name].dtype == published[name].dtype
        assert stepped[name].shape == published[name].shape
        assert (stepped[name].numpy() != plain[name].numpy()).all()


@every
def test_a_step_starts_from_the_published_model_and_not_from_its_own_last_one(make: Make) -> None:
    begun, update = np.array([1.0, -2.0, 0.5]), np.array([0.25, -0.5, 0.125])
    ends = []
    for shift in (0.0, 64.0):
        strategy = make()
        one_round(strategy, record({"weight": begun}), [{"weight": begun + 2 * update}] * 2)
        again = begun + shift
        end = one_round(strategy, record({"weight": again}), [{"weight": again + update}] * 2)
        ends.append(np.array(values(end)))
    np.testing.assert_allclose(ends[1] - ends[0], 64 if strategy.starts_from_published else 0)


@every
def test_errors_are_left_out_and_a_round_without_weights_changes_nothing(make: Make) -> None:
    published, sent = record({"weight": [1.0, -2.0]}), {"weight": np.array([0.5, 3.0], np.float32)}
    troubled, smooth = make(), make(fraction_train=0.7)  # two of three
    for _ in range(2):
        assert one_round(troubled, published, []) is None
        assert one_round(troubled, published, [None, None]) is None
        assert one_round(troubled, published, [sent, sent], weights=[0, 0]) is None
        left = one_round(troubled, published, [sent, None, sent])
        assert values(left) == values(one_round(smooth, published, [sent, sent], nodes=grid(3)))


@every
def test_replies_of_another_model_are_refused(make: Make) -> None:
    for sent in ({"weight": [1.0]}, {"other": [1.0, 2.0]}):
        with pytest.raises(AggregationError):
            one_round(make(), record({"weight": [1.0, -2.0]}), [sent])


@every
def test_replies_count_only_in_the_round_that_configure_train_began(make: Make) -> None:
    strategy, published = make(), record({"weight": [1.0]})
    (message, *_) = strategy.configure_train(1, published, ConfigRecord(), grid(2))
    content = RecordDict({"arrays": published, "metrics": MetricRecord({"num-examples": 1})})
    reply = Message(content, reply_to=message)
    assert strategy.aggregate_train(1, [reply])[0] is not None
    with pytest.raises(AggregationError, match="configure_train"):
        strategy.aggregate_train(1, [reply])


@pytest.mark.sample(2)
@pytest.mark.one_flower
@every
def test_under_lossy_links_the_model_stays_finite_and_keeps_changing(make: Make) -> None:
    random.seed(0)
    inner = make(**HALF)
    strategy = CompressedStrategy(inner, uplink=uplink_of(inner), downlink=fedcomp.stc(density=0.05))
    seen: list[ArrayRecord] = []

    def watch(server_round: int, arrays: ArrayRecord) -> None:
        seen.append(arrays)

    strategy.start(LocalGrid(app(), 4), model(), num_rounds=12, evaluate_fn=watch)
    vectors = [floats(arrays) for arrays in seen]
    assert all(np.isfinite(vector).all() for vector in vectors)
    assert all((before != after).any() for before, after in itertools.pairwise(vectors))
    assert strategy.version == 12


@pytest.mark.parametrize(
    ("kind", "setting", "values"),
    [
        (EF21, "eta", (0, -1.0, math.inf, math.nan, "x", None, True, 1j)),
        (MajorityVote, "step", (0, -1.0, math.inf, math.nan, "1", None, True, 1j)),
        (FedAMS, "eta", (0, math.inf, "x", True)),
        (FedAMS, "eps", (0.0, None)),
        (FedAMS, "beta_1", (1.0, 1j)),
        (FedAMS, "beta_2", (-0.1, math.nan)),
        (QcmdAdagrad, "eta", (0, True)),
        (QcmdAdagrad, "delta", (-1.0, "x")),
        (QrdaAdagrad, "l1_strength", (-1e-9, math.nan)),
        (QrdaAdagrad, "center", ("middle", None, 0)),
    ],
)
def test_a_setting_out_of_range_is_refused(kind: Make, setting: str, values: tuple[object, ...]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=re.escape(f"{setting} is {value!r};")):
            kind(**{setting: value})


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_that_read_only_the_mean_get_one_merged_reply_and_the_others_get_all(name: str) -> None:
    counts: list[int] = []
    for wrap in (False, True):
        inner = STRATEGIES[name](fraction_train=1.0, fraction_evaluate=0.0)
        given = inner.round_result

        def counted(replies: Any, given: Any = given) -> Any:
            step = given(replies)
            counts.append(len(step.replies))
            return step

        inner.round_result = counted  # type: ignore[method-assign]
        strategy: Strategy = DynamicSampling(inner, beta=0.0) if wrap else inner
        CompressedStrategy(strategy, uplink=uplink_of(strategy)).start(LocalGrid(app(), 5), model(), num_rounds=2)
        assert (reply_use_of(strategy) is ReplyUse.MEAN) == (name not in ("MajorityVote", "EF21"))
    assert counts == [1 if reply_use_of(inner) is ReplyUse.MEAN else 5] * 4
