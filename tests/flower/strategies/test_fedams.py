import numpy as np
import pytest
from flwr.serverapp.strategy import FedAdam

from fedcomp.flower import FedAMS
from tests.flower.strategies.by_hand import one_round, record, values


def test_two_steps_by_hand() -> None:
    strategy = FedAMS(eta=0.5, beta_1=0.5, beta_2=0.75, eps=3)
    # g = 1 - -1 = 2; m = 1; v = v_hat = 1; the root of 1 + eps is 2
    first = one_round(strategy, record({"weight": [1.0]}), [{"weight": [-1.0]}])
    assert values(first) == [0.75]
    # g = 0; m = 1/2; v = 3/4, but v_hat stays 1
    second = one_round(strategy, record({"weight": [0.75]}), [{"weight": [0.75]}])
    assert values(second) == [0.625]
    assert strategy.v_t["weight"].tolist() == [0.75]
    assert strategy.v_hat["weight"].tolist() == [1.0]


def test_replies_are_weighted() -> None:
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


def test_decays_may_be_zero_and_just_below_one() -> None:
    FedAMS(beta_1=0, beta_2=np.nextafter(1.0, 0.0))
