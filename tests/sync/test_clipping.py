"""The share of exact tensors in the norm of an update."""

import math

import numpy as np
import pytest

from fedcomp.errors import CorruptError
from fedcomp.quantized import Sparse
from fedcomp.sync.clipping import Clipping, check_norm, clip_exact, scaled
from fedcomp.sync.mean import dense_change, weighted_mean
from fedcomp.sync.replica import Replica, start_replica
from fedcomp.sync.updates import Update
from fedcomp.wire import layout_of


def published() -> Replica:
    arrays = {
        "w": np.zeros(3, np.float32),
        "norm.running_mean": np.ones(2, np.float32),
        "norm.num_batches_tracked": np.array(7),
    }
    return start_replica(layout_of(arrays), arrays)


def exact(mean: list[float], count: int) -> bytes:
    return np.array(mean, "<f4").tobytes() + np.array(count, "<i8").tobytes()


def test_a_change_of_3_leaves_4_of_5() -> None:
    changed = exact([1, 4], 7)
    assert clip_exact(changed, published(), 5) == (changed, 4)


def test_a_counter_stays_as_published_and_takes_no_share() -> None:
    assert clip_exact(exact([1, 4], 8), published(), 5) == (exact([1, 4], 7), 4)


def test_a_change_of_the_whole_norm_leaves_nothing() -> None:
    changed = exact([4, 5], 7)
    assert clip_exact(changed, published(), 5) == (changed, 0)


def test_a_change_beyond_the_norm_is_not_sent() -> None:
    replica = published()
    assert clip_exact(exact([7, 1], 7), replica, 5) == (replica.exact, 5)


def test_an_unchanged_model_leaves_the_whole_norm() -> None:
    replica = published()
    assert clip_exact(replica.exact, replica, 5) == (replica.exact, 5)


def update(change: float, mean: list[float], count: int) -> Update:
    return Update(Sparse(3, np.array([1]), np.array([change], np.float32)), exact(mean, count), 0, 0)


def test_an_update_of_norm_13_is_accepted_under_13_and_refused_under_12() -> None:
    replica = published()
    check_norm(update(12, [1, 6], 7), replica, 13)  # 12 and 5
    with pytest.raises(CorruptError, match="norm 13; the clipping norm is 12"):
        check_norm(update(12, [1, 6], 7), replica, 12)


def test_counters_and_numbers_that_are_not_finite_count_for_the_receiver() -> None:
    replica = published()
    for damaged in (update(0, [1, 1], 20), update(math.nan, [1, 1], 7), update(0, [math.nan, 1], 7)):
        with pytest.raises(CorruptError, match="clipping norm is 12"):
            check_norm(damaged, replica, 12)


# ---- robust averages -------------------------------------------------------------------------------------------------


def update_of(values: list[float], mean: list[float] | None = None, count: int = 7) -> Update:
    return Update(Sparse(3, np.arange(3), np.array(values, np.float32)), exact(mean or [1, 1], count), 0, 0)


def test_an_update_longer_than_the_bound_is_brought_to_it() -> None:
    long, short = update_of([0, 3, 4]), update_of([1, 0, 0])
    assert Clipping(norm=2.5).scales([long, short], published()) == [0.5, 1]
    assert Clipping(median=2).scales([short, long, short], published()) == [1, 0.4, 1]
    assert Clipping(2.0, 2.0).scales([short, long, long, long], published()) == [1, 0.4, 0.4, 0.4]
    assert Clipping().scales([long, short], published()) == [1, 1]
    assert Clipping(median=3).scales([], published()) == []


def test_floats_that_are_sent_exactly_count_and_counters_do_not() -> None:
    assert Clipping(norm=1).scales([update_of([0, 0, 3], [1, 5]), update_of([0, 0, 1], count=99)], published()) == [
        0.2,
        1,
    ]


def test_half_an_update_is_half_of_every_float() -> None:
    half, replica = scaled(update_of([0, 3, 4], [1, 5], count=9), 0.5, published()), published()
    change, arrays = dense_change(half, replica.layout)
    assert change.tolist() == [0, 1.5, 2]
    assert arrays["norm.running_mean"].tolist() == [1, 3]
    assert arrays["norm.num_batches_tracked"] == 9
    mean, _ = weighted_mean([(half, 1.0), (update_of([0, 0, 0]), 3.0)], replica.layout)
    assert mean.tolist() == [0, 0.375, 0.5]
    quarter, _ = dense_change(scaled(half, 0.5, replica), replica.layout)
    assert quarter.tolist() == [0, 0.75, 1]


def test_the_median_is_that_of_the_updates_that_change_something() -> None:
    updates = [update_of([0, 0, 0])] * 4 + [update_of([0, 3, 4]), update_of([1, 0, 0]), update_of([0, 1, 0])]
    assert Clipping(median=2).scales(updates, published()) == [1, 1, 1, 1, 0.4, 1, 1]
    assert Clipping(median=2).scales(updates[:4], published()) == [1, 1, 1, 1]


@pytest.mark.parametrize("settings", [{"norm": -1.0}, {"median": math.nan}])
def test_a_bound_out_of_range_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="^(norm|median) is"):
        Clipping(**settings)


def test_exact_complex_numbers_count_as_both_of_their_parts() -> None:
    arrays = {"w": np.zeros(3, np.float32), "norm.running_mean": np.array([1 + 1j], np.complex64)}
    replica = start_replica(layout_of(arrays), arrays)
    changed = replica.layout.exact_bytes({"norm.running_mean": np.array([4 + 5j])})  # 3 and 4 further
    assert clip_exact(changed, replica, 13) == (changed, 12)
    update = Update(Sparse(3, np.array([1]), np.array([12], np.float32)), changed, 0, 0)
    assert Clipping(norm=6.5).scales([update], replica) == [0.5]
    half = scaled(update, 0.5, replica)
    assert replica.layout.unflatten_exact(half.exact)["norm.running_mean"] == 2.5 + 3j
