"""Tensors that are never compressed: BatchNorm statistics under all their names, and those that a user names."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

import fedcomp
from fedcomp.flower import EF21, CompressedStrategy, FedAMS, LocalGrid, MajorityVote, QrdaAdagrad, round_model
from tests.flower.toy import Arrays, arrays_of, training

TORCH = ("conv.weight", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked")
KERAS = ("conv/kernel", "bn/gamma", "bn/beta", "bn/moving_mean", "bn/moving_variance", "seed/state")
LIST = tuple(map(str, range(6)))
NODES = 3


def _model() -> list[NDArray[Any]]:
    zeros, ones = np.zeros(16, np.float32), np.ones(16, np.float32)
    return [np.zeros((16, 20), np.float32), ones, zeros, zeros, ones, np.array(0)]


def _sent(node: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the mean and the tiny variance that a node always sends."""
    rng = np.random.default_rng(node)
    return rng.standard_normal(16).astype(np.float32), 1e-3 * rng.random(16, np.float32)


def _run(names: Sequence[str], method: str, exact: Sequence[str] = ()) -> list[NDArray[Any]]:
    """Return the arrays of the model after some rounds in which nodes train it and send their statistics."""

    def change(arrays: Arrays, context: Context, _: int) -> Arrays:
        rng = np.random.default_rng(context.node_id)
        trained = [array + rng.standard_normal(array.shape).astype(np.float32) for array in list(arrays.values())[:3]]
        return dict(zip(names, [*trained, *_sent(context.node_id), arrays[names[5]]], strict=True))

    compressor = fedcomp.parse(method)
    inner = FedAvg(fraction_evaluate=0.0)
    strategy = CompressedStrategy(inner, uplink=compressor, downlink=compressor, exact=exact)
    first = ArrayRecord({name: Array(array) for name, array in zip(names, _model(), strict=True)})
    strategy.start(LocalGrid(training(change), NODES), first, num_rounds=3)
    return list(arrays_of(strategy.arrays).values())


@pytest.mark.parametrize("method", ["auto()", "stc(density=0.02)", "eden(bits=1)"])
@pytest.mark.parametrize("names", [TORCH, KERAS, LIST])
def test_the_statistics_of_a_model_are_the_means_of_those_that_nodes_send(names: Sequence[str], method: str) -> None:
    arrays = _run(names, method)
    means = np.mean([_sent(node) for node in range(1, NODES + 1)], axis=0)
    np.testing.assert_allclose(arrays[3:5], means, rtol=1e-6)
    assert arrays[0].any(), "and the weights are trained"


def test_a_list_of_arrays_says_which_are_taken_for_statistics(flower_log: pytest.LogCaptureFixture) -> None:
    _run(LIST, "stc(density=0.02)")
    assert "fedcomp: arrays 3, 4 of the list travel exactly" in flower_log.text
    flower_log.clear()
    _run(TORCH, "stc(density=0.02)")
    assert "of the list" not in flower_log.text


def test_a_tensor_of_any_name_that_the_user_calls_exact_has_no_error() -> None:
    names = ("w", "a", "b", "own.center", "own.width", "count")
    means = np.mean([_sent(node) for node in range(1, NODES + 1)], axis=0)
    exact = _run(names, "stc(density=0.02)", exact=["own.*"])
    np.testing.assert_allclose(exact[3:5], means, rtol=1e-6)
    assert not np.allclose(_run(names, "stc(density=0.02)")[3:5], means, rtol=0.1), "without it, they are compressed"


def test_a_resumed_server_needs_the_same_exact_tensors() -> None:
    strategy = CompressedStrategy(FedAvg(), exact="own.*")
    assert strategy.exact == ("own.*",)
    first = ArrayRecord({name: Array(np.ones(3, np.float32)) for name in ("w", "own.a")})
    for _ in range(2):
        strategy.start(LocalGrid(ClientApp(), 2), first.copy(), num_rounds=0)
    strategy.exact = ()
    with pytest.raises(ValueError, match="of another model"):
        strategy.start(LocalGrid(ClientApp(), 2), first.copy(), num_rounds=0)


@pytest.mark.parametrize(
    ("inner", "uplink"),
    [(EF21, "ef21(density=0.5)"), (MajorityVote, "dense()"), (FedAMS, "dense()"), (QrdaAdagrad, "dense()")],
)
def test_a_server_optimizer_moves_no_tensor_that_is_exact(inner: type[FedAvg], uplink: str) -> None:
    """It averages it, as FedAvg does."""

    def change(arrays: Arrays, context: Context, _: int) -> Arrays:
        return {"w": arrays["w"] + np.float32(0.1), "s": arrays["s"] + np.float32(context.node_id)}

    inner_strategy = inner(fraction_evaluate=0.0)
    strategy = CompressedStrategy(
        inner_strategy, uplink=fedcomp.parse(uplink), downlink=fedcomp.dense(), exact=["s"], seed=1
    )
    first = ArrayRecord({name: Array(np.full(4, 5, np.float32)) for name in ("w", "s")})
    strategy.start(LocalGrid(training(change), NODES), first, num_rounds=4)
    np.testing.assert_allclose(arrays_of(strategy.arrays)["s"], 5 + 4 * 2, rtol=1e-6)
    assert not np.array_equal(arrays_of(strategy.arrays)["w"], np.full(4, 5))


def test_a_first_model_is_rounded_but_for_exact_tensors() -> None:
    rng = np.random.default_rng(0)
    first = {name: rng.standard_normal(50).astype(np.float32) for name in ("w", "own.scale")}
    rounded = arrays_of(round_model(first, 4, exact=["own.*"]))
    np.testing.assert_array_equal(rounded["own.scale"], first["own.scale"])
    assert not np.array_equal(rounded["w"], first["w"])


def test_the_log_does_not_take_the_users_exact_tensors_for_statistics(flower_log: pytest.LogCaptureFixture) -> None:
    first = ArrayRecord([np.zeros((3, 2), np.float32), np.zeros(2, np.float32)])
    CompressedStrategy(FedAvg(), exact=["1"]).start(LocalGrid(training(lambda a, _c, _r: a), 2), first, num_rounds=0)
    assert "of the list" not in flower_log.text
