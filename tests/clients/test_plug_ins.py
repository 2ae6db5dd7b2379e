"""The learning rate of a round, and the plug-ins of a run."""

import pytest

from clients.plug_ins import learning_rate, training_plan
from fedcomp.training import Plan, fedprox, mixed_precision


def test_the_learning_rate_follows_the_schedule_from_the_first_round_on() -> None:
    run = {"learning-rate": 0.4, "learning-rate-schedule": "steps([0.5], factor=0.1)", "num-rounds": 4}
    assert [learning_rate(run, server_round) for server_round in (1, 2, 3, 4)] == pytest.approx([0.4, 0.4, 0.04, 0.04])
    assert learning_rate(run | {"learning-rate-schedule": "constant"}, 3) == 0.4
    cosine = run | {"learning-rate-schedule": "cosine"}
    assert learning_rate(cosine, 4) == pytest.approx(0.4 * 0.1464466)
    assert learning_rate(cosine, 9) == 0.0, "a round after the last one"


def test_flowers_fedprox_adds_its_plug_in() -> None:
    run = {"training": "mixed_precision()"}
    assert training_plan(run, {}) == mixed_precision()
    assert training_plan(run, {"proximal-mu": 0.5, "server-round": 3}) == mixed_precision() + fedprox(0.5)
    assert training_plan({"training": ""}, {"proximal-mu": 0.0}) == Plan()
