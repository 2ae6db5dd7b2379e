"""AMSGrad, majority vote and EF21: each step by hand, and the laws of each."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAdam, FedAvg

import fedcomp
from fedcomp.flower import EF21, CompressedStrategy, FedAMS, LocalGrid, MajorityVote
from tests.flower.strategies.by_hand import grid, one_round, record, values
from tests.flower.toy import training


def test_two_steps_of_amsgrad_by_hand() -> None:
    strategy = FedAMS(eta=0.5, beta_1=0.5, beta_2=0.75, eps=3)
    # g = 1 - -1 = 2; m = 1; v = v_hat = 1; the root of 1 + eps is 2
    first = one_round(strategy, record({"weight": [1.0]}), [{"weight": [-1.0]}])
    assert values(first) == [0.75]
    # g = 0; m = 1/2; v = 3/4, but v_hat stays 1
    second = one_round(strategy, record({"weight": [0.75]}), [{"weight": [0.75]}])
    assert values(second) == [0.625]
    assert strategy.v_t["weight"].tolist() == [0.75]
    assert strategy.v_hat["weight"].tolist() == [1.0]


def test_replies_of_fedams_are_weighted() -> None:
    strategy = FedAMS(eta=1, beta_1=0, beta_2=0, eps=1e-12)
    published = record({"weight": [0.0, 0.0]})
    model = one_round(strategy, published, [{"weight": [1.0, -3.0]}, {"weight": [-3.0, 1.0]}], weights=[9, 1])
    assert values(model) == pytest.approx([1.0, -1.0]), (
        "a first step is the sign of the mean, which the heavier node decides"
    )


def test_with_growing_gradients_it_is_flowers_fedadam_without_bias_correction() -> None:
    rng = np.random.default_rng(0)
    published = rng.standard_normal((5, 4), np.float32)
    fedams = FedAMS(eta=0.1, beta_1=0.5, beta_2=0.9, eps=1e-20)
    fedadam = FedAdam(eta=0.1, beta_1=0.5, beta_2=0.9, tau=1e-10)
    update = rng.standard_normal((5, 4), np.float32)
    for server_round in range(1, 6):
        update *= 2
        moves = []
        for strategy in (fedams, fedadam):
            sent = [{"weight": published + update}]
            model = one_round(strategy, record({"weight": published}), sent, server_round=server_round)
            assert model is not None
            moves.append(model["weight"].numpy() - published)
        corrected = np.sqrt(1 - 0.9 ** (server_round + 1)) / (1 - 0.5 ** (server_round + 1))
        np.testing.assert_allclose(moves[0] * corrected, moves[1], rtol=1e-4)


def test_v_hat_never_decreases() -> None:
    rng = np.random.default_rng(0)
    strategy = FedAMS()
    bound = np.zeros(9)
    for scale in (1.0, 10.0, 0.1, 3.0, 0.01):
        one_round(strategy, record({"weight": np.zeros(9)}), [{"weight": rng.standard_normal(9) * scale}])
        assert (strategy.v_hat["weight"] >= bound).all()
        bound = strategy.v_hat["weight"].copy()


def test_decays_of_fedams_may_be_zero_and_just_below_one() -> None:
    FedAMS(beta_1=0, beta_2=np.nextafter(1.0, 0.0))


def test_each_entry_moves_in_the_direction_of_most_votes() -> None:
    published = record({"weight": [0.0, 1.0, 2.0, 3.0]})
    sent = [
        {"weight": [0.1, 1.1, 1.9, 3.0]},  # up, up, down, no vote
        {"weight": [0.1, 0.9, 1.9, 2.9]},  # up, down, down, down
        {"weight": [-9.0, 1.0, 9.0, 3.0]},  # down, no vote, up, no vote
    ]
    model = one_round(MajorityVote(step=0.5), published, sent)
    assert values(model) == [0.5, 1.0, 1.5, 2.5], "a tie moves nothing; a single vote decides"


def test_votes_have_neither_weight_nor_size() -> None:
    published = record({"weight": [0.0]})
    sent = [{"weight": [1e-30]}, {"weight": [1e-30]}, {"weight": [-1e30]}]
    assert values(one_round(MajorityVote(step=0.25), published, sent, weights=[1, 1, 1000])) == [0.25]


def test_the_direction_is_the_sign_of_the_sum_of_signs() -> None:
    rng = np.random.default_rng(0)
    published = rng.standard_normal((7, 9))
    models = [published + rng.integers(-1, 2, (7, 9)) * rng.random((7, 9)) for _ in range(6)]
    model = one_round(MajorityVote(step=0.01), record({"weight": published}), [{"weight": each} for each in models])
    expected = published + 0.01 * np.sign(sum(np.sign(each - published) for each in models))
    np.testing.assert_array_equal(np.array(values(model)).reshape(7, 9), expected)


def test_votes_far_below_a_weights_rounding_count_under_a_compressed_uplink() -> None:
    """Weights of 1 plus votes of 1e-17 are weights of 1, in float64 too: the votes come from the differences."""
    uplink, dense = fedcomp.parse("signsgd(step=1e-17)"), fedcomp.dense()
    strategy = CompressedStrategy(MajorityVote(step=0.5, fraction_evaluate=0.0), uplink=uplink, downlink=dense)
    published = ArrayRecord({"weight": Array(np.ones((4, 3), np.float32))})
    client = training(lambda given, context, _: {"weight": given["weight"] - np.float32(0.25)})
    strategy.start(LocalGrid(client, 3), published, num_rounds=1)
    assert values(strategy.arrays) == [0.5] * 12


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
