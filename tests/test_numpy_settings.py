"""Settings that are numpy scalars, as a sweep over `np.linspace` gives them, count as the Python numbers that they hold."""

import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.core import Registry
from fedcomp.flower import (
    EF21,
    AsyncMode,
    Checkpoint,
    Clipping,
    CompressedStrategy,
    DynamicSampling,
    FedAMS,
    LocalGrid,
    MajorityVote,
    RigL,
    Speeds,
)
from fedcomp.gossip import Choco, DeepSqueeze
from fedcomp.split import SplitSettings
from fedcomp.sync import derive_seed
from fedcomp.training import PLUGINS
from tests.flower import toy

SHAPES = ((50, 60), (40,), (24, 40))
ENTRIES = 4000
NUMBERS: dict[type, tuple[type[np.generic], ...]] = {
    bool: (np.bool_,),
    int: (np.int64, np.uint8),
    float: (np.float64, np.float32, np.float16),
}
REGISTRIES: tuple[Registry[Any, Any], ...] = (fedcomp.METHODS, PLUGINS)


def _numbers(makers: Registry[Any, Any]) -> Iterator[tuple[str, dict[str, np.generic]]]:
    """Yield each setting of each entry whose default is a number, as numpy scalars that hold it."""
    for name in makers:
        for setting in inspect.signature(makers[name]).parameters.values():
            for scalar in NUMBERS.get(type(setting.default), ()):
                number = scalar(setting.default % 256 if scalar is np.uint8 else setting.default)
                if np.isclose(number, setting.default, rtol=1e-3):
                    yield name, {setting.name: number}


def _in_python(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value.item() if isinstance(value, np.generic) else value for key, value in settings.items()}


@pytest.mark.parametrize(("name", "setting"), list(_numbers(fedcomp.METHODS)))
def test_a_method_with_a_numpy_number_writes_the_bodies_of_its_text(name: str, setting: dict[str, np.generic]) -> None:
    compressor = fedcomp.METHODS[name](**setting)
    update = np.random.default_rng(0).standard_normal(ENTRIES).astype(np.float32)
    ways: dict[str, Any] = {"seed": 3, "shapes": SHAPES, "server_round": 2}
    bodies = [
        each.encode(update, each.init(ENTRIES), **ways)[0] for each in (compressor, fedcomp.parse(str(compressor)))
    ]
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("makers", REGISTRIES)
def test_no_part_of_an_entry_holds_a_numpy_number(makers: Registry[Any, Any]) -> None:
    settings = list(_numbers(makers))
    assert len(settings) > 20
    for name, setting in settings:
        entry = makers[name](**setting)
        assert "np." not in repr(entry), setting
        assert repr(entry) == repr(makers[name](**_in_python(setting)))


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (AsyncMode, {"buffer": np.uint8(5), "exponent": np.float32(0.5), "return_rest": np.bool_(True)}),
        (Checkpoint, {"path": "run.npz", "every": np.uint8(3)}),
        (Clipping, {"norm": np.float32(0.5), "median": np.uint8(3)}),
        (Speeds, {"compute_s": np.float32(0.5), "seed": np.int64(4)}),
        (SplitSettings, {"steps": np.int64(5), "learning_rate": np.float32(0.5), "direct": np.bool_(True)}),
        (Choco, {"compressor": fedcomp.eden(bits=2), "step_size": np.float64(0.125)}),
        (DeepSqueeze, {"compressor": fedcomp.stc(), "step_size": np.float32(0.125)}),
    ],
)
def test_settings_hold_python_numbers(make: Callable[..., object], settings: dict[str, Any]) -> None:
    given, meant = make(**settings), make(**_in_python(settings))
    assert given == meant
    assert str(given) == str(meant)
    assert repr(given) == repr(meant)


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (FedAvg, {}),
        (lambda beta, **fedavg: DynamicSampling(FedAvg(**fedavg), beta=beta), {"beta": np.uint8(1)}),
        (EF21, {"eta": np.float32(0.1)}),
        (MajorityVote, {"step": np.float32(0.1)}),
        (FedAMS, {"eta": np.float32(0.1), "beta_1": np.float32(0.9)}),
        (RigL, {"interval": np.uint8(2), "until": np.uint8(200)}),
    ],
)
def test_a_run_with_numpy_settings_is_that_with_python_settings(
    make: Callable[..., FedAvg], settings: dict[str, Any]
) -> None:
    results = []
    numbers: dict[str, Any] = {"seed": np.int64(7), "nodes": np.int64(4)}
    for given, whole in ((settings, numbers), (_in_python(settings), _in_python(numbers))):
        inner = make(fraction_evaluate=0.0, min_train_nodes=2, **given)
        uplink = fedcomp.ef21() if isinstance(inner, EF21) else fedcomp.crosspolytope()
        strategy = CompressedStrategy(inner, uplink=uplink, downlink=fedcomp.stc(density=0.1), seed=whole["seed"])
        random.seed(1)
        model = strategy.start(LocalGrid(toy.app(), whole["nodes"]), toy.model(), 4).arrays
        results.append((toy.floats(model).tolist(), strategy.ledger.total().uplink_bytes))
    assert results[0] == results[1]


def test_numbers_of_few_bits_are_not_met_by_larger_ones() -> None:
    """A round beyond 255, and a seed that is combined with words of 64 bits."""
    settings: dict[str, Any] = {"interval": np.uint8(2), "until": np.uint8(200)}
    rigl = RigL(**settings)
    assert [rigl.moves_in(number) for number in (100, 101, 300)] == [True, False, False]
    seed: Any = np.int64(5)
    nodes: Any = np.uint8(3)
    assert derive_seed(seed, 3) == derive_seed(5, 3)
    grid = LocalGrid(toy.app(), nodes)
    assert type(grid.contexts[1].node_config["num-partitions"]) is int
