"""Tensors that are no weights, beside weights: the log names them, and what it advises helps."""

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
COPIES = "have the shapes of all other matrices"
SIGNS = "negative, of which none was"
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
        assert "fedcomp: 'c.in.weight', 'c.out.weight' are 0 at first" in found[0], "no bias"

    @pytest.mark.parametrize(
        "start",
        [
            {"x": np.ones(300, np.float32), "c": np.zeros(300, np.float32)},
            weights() | zeros(weights(), "m.") | zeros(weights(), "v."),
        ],
        ids=["one vector", "two moments"],
    )
    def test_in_other_forms(self, start: Arrays, flower_log: pytest.LogCaptureFixture) -> None:
        run(start, learn, rounds=1)
        assert any(COPIES in each for each in lines(flower_log))

    @pytest.mark.parametrize(
        "start",
        [
            weights(),
            {"w": np.zeros((SIDE, SIDE), np.float32), "b": np.zeros(SIDE, np.float32)},
            weights() | {"residual.weight": np.zeros((SIDE, SIDE), np.float32)},
            {"a": np.ones((SIDE, 8), np.float32), "b": np.zeros((8, SIDE), np.float32)},
            {
                "w": np.ones((SIDE, SIDE), np.float32),
                "scale": np.ones(SIDE, np.float32),
                "b": np.zeros(SIDE, np.float32),
            },
        ],
        ids=["network", "all zero", "one layer of zeros", "adapters", "biases"],
    )
    def test_weights_that_are_0_at_first_are_not_named(
        self, start: Arrays, flower_log: pytest.LogCaptureFixture
    ) -> None:
        run(start, learn, rounds=1)
        assert not any(COPIES in each for each in lines(flower_log))

    @pytest.mark.parametrize(
        "settings",
        [{"exact": ["c.*"]}, {"local": ["c.*"]}, {"uplink": fedcomp.dense(), "downlink": fedcomp.dense()}],
        ids=["exact", "local", "dense"],
    )
    def test_what_has_no_error_is_not_named(
        self, settings: dict[str, object], flower_log: pytest.LogCaptureFixture
    ) -> None:
        run(weights() | zeros(weights()), learn, rounds=1, **settings)
        assert not any(COPIES in each for each in lines(flower_log))


class TestLostSigns:
    """Variances and counts beside the weights."""

    @staticmethod
    def with_variance(arrays: Arrays, context: Context, number: int) -> Arrays:
        """Learn, and measure the variances of features; some features hardly vary."""
        variances = np.geomspace(1e-4, 4, SIDE, dtype=np.float32)
        return learn(arrays, context, number) | {"obs_var": variances}

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
        assert "compression makes entries of 'obs_var' negative" in found[0]
        assert "exact=" in found[0]

    def test_what_the_log_advises_helps(self, flower_log: pytest.LogCaptureFixture) -> None:
        model = run(self.start(), self.with_variance, 12, exact=["obs_var"])
        np.testing.assert_allclose(model["obs_var"], np.geomspace(1e-4, 4, SIDE), atol=1e-3)
        assert not any(SIGNS in each for each in lines(flower_log))

    def test_a_count_that_starts_at_0_is_named(self, flower_log: pytest.LogCaptureFixture) -> None:
        def count(arrays: Arrays, context: Context, number: int) -> Arrays:
            seen = rng_of(context, number).poisson(np.geomspace(1e-3, 20, SIDE)).astype(np.float32)
            return learn(arrays, context, number) | {"count": arrays["count"] * np.float32(0.9) + seen}

        run(weights() | {"count": np.zeros(SIDE, np.float32)}, count, 12, uplink=fedcomp.dense())
        assert any(f"'count' {SIGNS}" in each for each in lines(flower_log))

    @pytest.mark.parametrize("compressor", [None, fedcomp.eden(bits=1), fedcomp.stc(density=0.1)])
    def test_weights_are_not_named(
        self, compressor: fedcomp.Compressor | None, flower_log: pytest.LogCaptureFixture
    ) -> None:
        """Scales that stay near 1, and those of residual blocks, which begin near 0 and are smaller than their error."""
        start = weights() | {"norm.scale": np.ones(SIDE, np.float32), "block.scale": np.full(SIDE, 1e-6, np.float32)}
        run(start, learn, 12, uplink=compressor, downlink=compressor)
        assert not any(SIGNS in each for each in lines(flower_log))

    @pytest.mark.parametrize("fall", [1.2, 0.1])
    def test_what_the_nodes_make_negative_is_not_named(self, fall: float, flower_log: pytest.LogCaptureFixture) -> None:
        """At once, or later, within the error of compression."""

        def step(arrays: Arrays, context: Context, number: int) -> Arrays:
            return {"w": learn(arrays, context, number)["w"] - np.float32(fall)}

        start, links = (
            {"w": np.ones((SIDE, SIDE), np.float32)},
            {"uplink": fedcomp.eden(4), "downlink": fedcomp.eden(4)},
        )
        model = run(start, step, 12, **links)
        assert (model["w"] < 0).any()
        assert not any(SIGNS in each for each in lines(flower_log))


class TestExplodingChanges:
    """Training that diverges."""

    @staticmethod
    def growing(factor: float) -> object:
        """Return a step that grows by this factor in each round."""

        def step(arrays: Arrays, _: Context, number: int) -> Arrays:
            direction = normal(np.random.default_rng(9), SIDE, SIDE)
            return {"w": arrays["w"] + np.float32(0.01 * factor**number) * direction}

        return step

    def start(self, size: float = 0.3) -> Arrays:
        return {"w": np.float32(size) * normal(np.random.default_rng(1), SIDE, SIDE)}

    def test_it_is_logged_once(self, flower_log: pytest.LogCaptureFixture) -> None:
        run(self.start(), self.growing(2.0), 14)
        found = [each for each in lines(flower_log) if EXPLODES in each]
        assert len(found) == 1
        assert "fedcomp: round 11: " in found[0], "2^7 times the fourth change"

    @pytest.mark.parametrize(
        ("factor", "size", "links"), [(1.5, 0.3, None), (2.0, 1e3, None), (2.0, 0.3, fedcomp.dense())]
    )
    def test_other_training_is_not(
        self, factor: float, size: float, links: fedcomp.Compressor | None, flower_log: pytest.LogCaptureFixture
    ) -> None:
        """Slower growth; a learning rate that rises while the model stays as large; and divergence without compression."""
        run(self.start(size), self.growing(factor), 14, uplink=links, downlink=links)
        assert not any(EXPLODES in each for each in lines(flower_log))

    def test_a_model_of_zeros_has_no_first_length(self, flower_log: pytest.LogCaptureFixture) -> None:
        run(self.start(0.0), self.growing(2.0), 14)
        assert any(EXPLODES in each for each in lines(flower_log))
