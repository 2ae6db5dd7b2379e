"""Tensors that are not weights, beside weights: the log names them, and what it advises helps."""

import logging

import numpy as np
import pytest
from flwr.app import Context
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid, to_record
from tests.flower.toy import Arrays, training

SIDE, NODES = 40, 4
COPIES = "tensors of zeros have the shapes of all other matrices"
SIGNS = "entries are negative after compression, and none was before, in "
EXPLODES = "training diverges"


def lines(log: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings."""
    return [each.getMessage() for each in log.records if each.levelno == logging.WARNING]


def rng_of(context: Context, number: int) -> np.random.Generator:
    """Return the random numbers of a node in a round."""
    return np.random.default_rng([context.node_id, number])


def normal(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    """Return random numbers of the variance 1."""
    return rng.standard_normal(shape, np.float32)


def learn(arrays: Arrays, context: Context, number: int) -> Arrays:
    """Take a step that is random, but for what all nodes share."""
    shared, own = np.random.default_rng(number), rng_of(context, number)
    return {
        name: array + 0.05 * normal(shared, *array.shape) + 0.05 * normal(own, *array.shape)
        for name, array in arrays.items()
    }


def weights() -> Arrays:
    """Return the first weights of a network with two layers, and biases of zeros."""
    rng = np.random.default_rng(3)
    return {
        "in.weight": normal(rng, SIDE, SIDE),
        "in.bias": np.zeros(SIDE, np.float32),
        "out.weight": normal(rng, 10, SIDE),
        "out.bias": np.zeros(10, np.float32),
    }


def zeros(arrays: Arrays, prefix: str = "c.") -> Arrays:
    """Return tensors of zeros in these shapes."""
    return {prefix + name: np.zeros_like(array) for name, array in arrays.items()}


def run(start: Arrays, step: object, rounds: int = 3, **settings: object) -> Arrays:
    """Train, and return the last model."""
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), **settings)  # type: ignore[arg-type]
    strategy.start(LocalGrid(training(step), NODES), to_record(start), num_rounds=rounds)  # type: ignore[arg-type]
    return {name: array.numpy() for name, array in strategy.arrays.items()}


class TestZeroCopies:
    """Control variates and momenta beside the weights."""

    def test_they_are_named_once(self, flower_log: pytest.LogCaptureFixture) -> None:
        run(weights() | zeros(weights()), learn)
        found = [each for each in lines(flower_log) if COPIES in each]
        assert len(found) == 1
        assert f"fedcomp: round 1: {COPIES}: 'c.in.weight', 'c.out.weight'. If" in found[0], "no bias"

    @pytest.mark.parametrize(
        "beside",
        [
            zeros(weights(), "m.") | zeros(weights(), "v."),
            zeros(weights()) | {"scale": np.ones((1, 1), np.float32)},
            zeros(weights()) | {"frozen": np.ones((7, 3), np.float32)},
        ],
        ids=["two moments", "a scalar without a copy", "a frozen matrix without a copy"],
    )
    def test_in_other_forms(self, beside: Arrays, flower_log: pytest.LogCaptureFixture) -> None:
        def step(arrays: Arrays, context: Context, number: int) -> Arrays:
            return learn(arrays, context, number) | {name: arrays[name] for name in arrays if name == "frozen"}

        run(weights() | beside, step, rounds=1)
        assert any(COPIES in each for each in lines(flower_log))

    @pytest.mark.parametrize(
        "start",
        [
            weights(),
            {"w": np.zeros((SIDE, SIDE), np.float32), "b": np.zeros(SIDE, np.float32)},
            weights() | {"residual.weight": np.zeros((SIDE, SIDE), np.float32)},
            {"a": np.ones((SIDE, 8), np.float32), "b": np.zeros((8, SIDE), np.float32)},
            {"w1": np.ones((SIDE, SIDE), np.float32), "w2": np.zeros((SIDE, SIDE), np.float32)},
            {name: np.full((SIDE,), value, np.float32) for name, value in (("scale", 1.0), ("bias", 0.0))},
        ],
        ids=["network", "all zero", "one layer of zeros", "adapters", "residual block", "normalization"],
    )
    def test_weights_that_are_0_at_first_are_not_named(
        self, start: Arrays, flower_log: pytest.LogCaptureFixture
    ) -> None:
        run(start, learn, rounds=1)
        assert not any(COPIES in each for each in lines(flower_log))

    @pytest.mark.parametrize(
        ("settings", "is_named"),
        [
            ({"exact": ["c.*"]}, False),
            ({"local": ["c.*"]}, False),
            ({"uplink": fedcomp.dense(), "downlink": fedcomp.dense()}, False),
            ({"uplink": fedcomp.dense()}, True),
            ({"downlink": fedcomp.dense()}, True),
        ],
        ids=["exact", "local", "dense", "dense up", "dense down"],
    )
    def test_only_what_has_an_error_is_named(
        self, settings: dict[str, object], is_named: bool, flower_log: pytest.LogCaptureFixture
    ) -> None:
        run(weights() | zeros(weights()), learn, rounds=1, **settings)
        assert any(COPIES in each for each in lines(flower_log)) is is_named


class TestLostSigns:
    """Variances and counts beside the weights."""

    @staticmethod
    def with_variance(arrays: Arrays, context: Context, number: int) -> Arrays:
        """Learn, and measure the variances of features; some features hardly vary."""
        return learn(arrays, context, number) | {"obs_var": np.geomspace(1e-4, 4, SIDE, dtype=np.float32)}

    def start(self) -> Arrays:
        return weights() | {"obs_var": np.ones(SIDE, np.float32)}

    @pytest.mark.parametrize("links", ["auto()|auto()", "dense()|eden(bits=1)", "eden(bits=1)|dense()"])
    def test_a_variance_that_becomes_negative_is_named_once(
        self, links: str, flower_log: pytest.LogCaptureFixture
    ) -> None:
        uplink, downlink = map(fedcomp.parse, links.split("|"))
        model = run(self.start(), self.with_variance, 12, uplink=uplink, downlink=downlink)
        assert model["obs_var"].min() < 0
        found = [each for each in lines(flower_log) if SIGNS in each]
        assert len(found) == 1
        assert f"{SIGNS}'obs_var'. If" in found[0]

    def test_what_the_log_advises_helps(self, flower_log: pytest.LogCaptureFixture) -> None:
        model = run(self.start(), self.with_variance, 12, exact=["obs_var"])
        np.testing.assert_allclose(model["obs_var"], np.geomspace(1e-4, 4, SIDE), atol=1e-3)
        assert not any(SIGNS in each for each in lines(flower_log))

    @pytest.mark.parametrize("begin", [1, 2], ids=["from zeros", "in the second round"])
    def test_a_count_is_named(self, begin: int, flower_log: pytest.LogCaptureFixture) -> None:
        def count(arrays: Arrays, context: Context, number: int) -> Arrays:
            seen = rng_of(context, number).poisson(np.geomspace(1e-3, 20, SIDE)).astype(np.float32)
            seen = np.zeros_like(seen) if number < begin else seen
            return learn(arrays, context, number) | {"count": arrays["count"] * np.float32(0.9) + seen}

        run(weights() | {"count": np.zeros(SIDE, np.float32)}, count, 12, uplink=fedcomp.dense())
        assert any(f"{SIGNS}'count'" in each for each in lines(flower_log))

    @pytest.mark.parametrize("links", ["auto()|auto()", "eden(bits=1)|eden(bits=1)", "stc(density=0.01)|eden(bits=1)"])
    @pytest.mark.parametrize("rounds", [5, 12])
    @pytest.mark.parametrize("seed", range(3))
    def test_weights_are_not_named(
        self, links: str, rounds: int, seed: int, flower_log: pytest.LogCaptureFixture
    ) -> None:
        """Scales near 1, those of residual blocks, which begin near 0 and are smaller than their error, and biases of zeros."""
        start = weights() | {"norm.scale": np.ones(SIDE, np.float32), "block.scale": np.full(SIDE, 1e-6, np.float32)}
        uplink, downlink = map(fedcomp.parse, links.split("|"))
        run(start, learn, rounds, uplink=uplink, downlink=downlink, seed=seed)
        assert not any(SIGNS in each for each in lines(flower_log))

    def test_what_the_nodes_make_negative_is_not_named(self, flower_log: pytest.LogCaptureFixture) -> None:
        def step(arrays: Arrays, context: Context, number: int) -> Arrays:
            return {"w": learn(arrays, context, number)["w"] - np.linspace(0, 1.5, SIDE, dtype=np.float32)}

        start, links = (
            {"w": np.ones((SIDE, SIDE), np.float32)},
            {"uplink": fedcomp.eden(4), "downlink": fedcomp.eden(4)},
        )
        model = run(start, step, 1, **links)
        assert (model["w"] < 0).any()
        assert not any(SIGNS in each for each in lines(flower_log))

    def test_later_rounds_are_not_looked_at(self, flower_log: pytest.LogCaptureFixture) -> None:
        """A scale may fall to 0 by training; there, the error makes it negative first."""

        def step(arrays: Arrays, context: Context, number: int) -> Arrays:
            return {"w": learn(arrays, context, number)["w"] - np.float32(0.1)}

        start, links = (
            {"w": np.ones((SIDE, SIDE), np.float32)},
            {"uplink": fedcomp.eden(4), "downlink": fedcomp.eden(4)},
        )
        assert (run(start, step, 12, **links)["w"] < 0).any()
        assert not any(SIGNS in each for each in lines(flower_log))


class TestExplodingChanges:
    """Training that diverges."""

    @staticmethod
    def growing(factor: float, size: float = 0.1) -> object:
        """Return a step that has this size in the first round, and grows by this factor in each."""

        def step(arrays: Arrays, _: Context, number: int) -> Arrays:
            direction = normal(np.random.default_rng(9), SIDE, SIDE)
            return {"w": arrays["w"] + np.float32(size * factor ** (number - 1)) * direction}

        return step

    def start(self, size: float = 1.0) -> Arrays:
        return {"w": np.float32(size) * normal(np.random.default_rng(1), SIDE, SIDE)}

    @pytest.mark.parametrize("size", [1.0, 0.0])
    def test_it_is_logged_once(self, size: float, flower_log: pytest.LogCaptureFixture) -> None:
        run(self.start(size), self.growing(2.0), 14)
        found = [each for each in lines(flower_log) if EXPLODES in each]
        assert len(found) == 1
        assert "fedcomp: round 11: " in found[0], "2^7 times the fourth change; the model has the size 0.1 (2^10 - 1)"
        assert "the change is 1" in found[0]

    @pytest.mark.parametrize(
        ("factor", "size", "step", "links"),
        [
            (1.5, 1.0, 1.0, None),
            (2.0, 1e4, 0.1, None),
            (2.0, 1e-3, 1e-3, None),
            (2.0, 30.0, 0.1, None),
            (2.0, 1.0, 0.1, fedcomp.dense()),
        ],
        ids=["slower", "small beside the model", "small model", "hardly larger model", "not compressed"],
    )
    def test_other_training_is_not(
        self,
        factor: float,
        size: float,
        step: float,
        links: fedcomp.Compressor | None,
        flower_log: pytest.LogCaptureFixture,
    ) -> None:
        run(self.start(size), self.growing(factor, step), 11, uplink=links, downlink=links)
        assert not any(EXPLODES in each for each in lines(flower_log))

    def test_rounds_without_a_change_are_none_of_the_first(self, flower_log: pytest.LogCaptureFixture) -> None:
        def late(arrays: Arrays, context: Context, number: int) -> Arrays:
            return arrays if number < 5 else self.growing(2.0)(arrays, context, number - 4)  # type: ignore[operator]

        run(self.start(), late, 15)
        assert next(each for each in lines(flower_log) if EXPLODES in each).startswith("fedcomp: round 15: ")

    def test_the_longest_of_the_first_changes_counts(self, flower_log: pytest.LogCaptureFixture) -> None:
        def step(arrays: Arrays, context: Context, number: int) -> Arrays:
            first = {"w": arrays["w"] + 3 * normal(np.random.default_rng(8), SIDE, SIDE)}
            return first if number == 1 else self.growing(2.0)(arrays, context, number)  # type: ignore[operator]

        run(self.start(), step, 14)
        assert next(each for each in lines(flower_log) if EXPLODES in each).startswith("fedcomp: round 13: ")
