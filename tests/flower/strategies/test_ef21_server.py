import numpy as np
from flwr.serverapp.strategy import FedAvg

from fedcomp.flower import EF21
from tests.flower.strategies.by_hand import grid, one_round, record, values


def test_absent_nodes_count_with_an_increment_of_zero() -> None:
    strategy = EF21(eta=0.5, fraction_train=0.5)
    # two of four nodes reply with increments 1 and 3: the mean over four is 1, and half of that is the step
    model = one_round(strategy, record({"weight": [10.0]}), [{"weight": [11.0]}, {"weight": [13.0]}], nodes=grid(4))
    assert values(model) == [10.5]
    # all increments are 0: the same step again, from the published model
    model = one_round(strategy, record({"weight": [20.0]}), [{"weight": [20.0]}, {"weight": [20.0]}], nodes=grid(4))
    assert values(model) == [20.5]


def test_increments_are_not_weighted() -> None:
    sent = [{"weight": [1.0]}, {"weight": [3.0]}]
    assert values(one_round(EF21(), record({"weight": [0.0]}), sent, weights=[1, 1000])) == [2.0]


def test_with_exact_increments_from_every_node_it_is_fedavg() -> None:
    rng = np.random.default_rng(0)
    published = rng.standard_normal((6, 5))
    strategy, estimates = EF21(), [np.zeros((6, 5)) for _ in range(4)]
    for _ in range(6):
        updates = [rng.standard_normal((6, 5)) for _ in estimates]
        increments = [update - estimate for update, estimate in zip(updates, estimates, strict=True)]
        estimates = updates
        given = record({"weight": published})
        mine = one_round(strategy, given, [{"weight": published + increment} for increment in increments])
        plain = one_round(FedAvg(), given, [{"weight": published + update} for update in updates])
        np.testing.assert_allclose(values(mine), values(plain), atol=1e-12)
        published = np.array(values(mine)).reshape(6, 5)


def test_with_absent_nodes_the_step_is_the_mean_of_all_nodes_last_updates() -> None:
    rng = np.random.default_rng(1)
    published = rng.standard_normal(8)
    strategy, estimates = EF21(eta=0.3), [np.zeros(8) for _ in range(5)]
    for _ in range(10):
        sent: list[dict[str, np.ndarray] | None] = []
        present = rng.random(5) < 0.5
        present[rng.integers(5)] = True
        for node in range(5):
            if present[node]:
                update = rng.standard_normal(8)
                sent.append({"weight": published + (update - estimates[node])})
                estimates[node] = update
            else:
                sent.append(None)
        model = one_round(strategy, record({"weight": published}), sent)
        np.testing.assert_allclose(values(model), published + 0.3 * np.mean(estimates, 0), atol=1e-12)
        published = np.array(values(model))
