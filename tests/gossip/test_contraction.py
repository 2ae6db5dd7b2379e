"""Every compressor in gossip: it brings models together and trains, or is refused in one sentence before anything runs."""

from dataclasses import replace

import numpy as np
import pytest

import fedcomp
from fedcomp.gossip import Choco, DeepSqueeze, Network, find_step_size, parse_method, parse_topology
from tests.contraction import OUTCOMES, WORKS

GRAPH = parse_topology("ring()", 4)
SHAPE = (12, 13)
PAIRS = [pair for pair in OUTCOMES if pair[1] in ("choco", "deep_squeeze")]
WORKING = [pair for pair in PAIRS if OUTCOMES[pair] == WORKS]


def averaged(method: Choco | DeepSqueeze, rounds: int, common: float = 0) -> list[float]:
    """Return the consensus distance after each round in which nobody trains, as a share of that of the first models.

    Those are Gaussian, plus `common` times a Gaussian vector that is the same for all.
    """
    net = Network(GRAPH, {"w": np.zeros(SHAPE, np.float32)}, method)
    rng = np.random.default_rng(7)
    own, shared = rng.standard_normal((4, *SHAPE)), common * rng.standard_normal(SHAPE)
    models = [{"w": (each + shared).astype(np.float32)} for each in own]
    stacked = np.array([model["w"].ravel() for model in models])
    first, found = np.sqrt(np.square(stacked - stacked.mean(axis=0)).sum(axis=1).mean()), list[float]()
    for _ in range(rounds):
        net.exchange(models)
        models = [net.model(node) for node in range(4)]
        found.append(net.consensus_distance / float(first))
    return found


@pytest.mark.parametrize(("text", "use"), PAIRS)
def test_a_pair_is_taken_or_refused_in_one_sentence(text: str, use: str) -> None:
    whole = f"{use}({text})"
    if OUTCOMES[text, use] == WORKS:
        assert str(parse_method(whole)) == f"{use}({fedcomp.parse(text)})"
        return
    with pytest.raises(ValueError, match=OUTCOMES[text, use]) as error:
        parse_method(whole)
    assert "\n" not in str(error.value)


def test_every_method_has_an_outcome() -> None:
    for use in ("choco", "deep_squeeze"):
        assert {fedcomp.parse(text).name for text, of in OUTCOMES if of == use} == set(fedcomp.METHODS) - {"int8"}


CRUDE = ("choco(randk(density=0.1, feedback=False))", "deep_squeeze(randk(density=0.1))")
"""They send a tenth of a vector at random: with too large a step size, models diverge.  `make nightly` has all others."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(whole, marks=() if whole in CRUDE else pytest.mark.nightly)
        for whole in (f"{use}({text})" for text, use in WORKING)
    ],
)
def found(request: pytest.FixtureRequest) -> Choco | DeepSqueeze:
    """Each working pair with its step size; pytest runs both tests of a pair before it finds the next step size."""
    return find_step_size(GRAPH, parse_method(request.param), (SHAPE,))


def test_the_step_size_that_is_found_brings_models_together_and_keeps_them_so(found: Choco | DeepSqueeze) -> None:
    """The models of CHOCO come closer without end; the distance of Deep-Squeeze falls to a floor and stays there."""
    distances = averaged(found, 100)
    if isinstance(found, Choco):
        assert distances[99] < 0.5
        assert distances[99] < max(distances[49], 1e-5)
    else:
        last = float(np.mean(distances[80:]))
        assert last < 0.3
        assert last < 1.3 * float(np.mean(distances[50:70]))


@pytest.mark.sample(1)
@pytest.mark.parametrize("text", ["drive(feedback=True)", "efsign()", "qsgd(levels=7, bucket=64, feedback=True)"])
def test_the_floor_of_deep_squeeze_is_proportional_to_its_step_size_and_to_the_norm_of_the_models(text: str) -> None:
    def floor(step_size: float, common: float, use: str = f"deep_squeeze({text})") -> float:
        return float(np.mean(averaged(replace(parse_method(use), step_size=step_size), 60, common)[40:]))

    whole = floor(0.25, common=5)
    assert floor(0.125, common=5) == pytest.approx(whole / 2, rel=0.25)
    assert floor(0.25, common=10) == pytest.approx(2 * whole, rel=0.25)
    assert floor(0.25, common=10, use="choco(drive())") < 1e-3 * whole


def test_nodes_that_train_learn_together_what_none_of_them_knows(found: Choco | DeepSqueeze) -> None:
    """Node i moves towards a target of its own; the mean of the targets is what all of them should learn."""
    rng = np.random.default_rng(3)
    targets = rng.standard_normal((4, *SHAPE)).astype(np.float32)
    net = Network(GRAPH, {"w": np.zeros(SHAPE, np.float32)}, found)
    mean = targets.mean(axis=0)

    def worst() -> float:
        return max(float(np.linalg.norm(net.model(node)["w"] - mean)) for node in range(4)) / float(
            np.linalg.norm(mean)
        )

    for number in range(60):
        rate = np.float32(0.1 / (1 + number / 30))
        net.exchange([{"w": (w := net.model(node)["w"]) + rate * (target - w)} for node, target in enumerate(targets)])
    assert worst() < 1.2  # each of the targets alone is 1.7 away
