"""Complex tensors, as Fourier neural operators have them, and other byte orders: they train as in plain Flower."""

import random

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedMedian, FedYogi, Strategy
from numpy.typing import NDArray

import fedcomp
from fedcomp.errors import CorruptError
from fedcomp.flower import (
    EF21,
    CompressedStrategy,
    DynamicSampling,
    FedAMS,
    LocalGrid,
    MajorityVote,
    QcmdAdagrad,
    QrdaAdagrad,
    records,
    round_model,
    to_record,
)
from fedcomp.sync import RecordSender, decode_record, start_replica
from fedcomp.wire import layout_of, parse_layout
from tests.flower.toy import Arrays, arrays_of, training

FLOATS = ["complex64", "complex128", ">f4", ">f8", ">f2", ">c8", "<c16"]


def _model(dtype: str) -> Arrays:
    draw = np.random.default_rng(1).standard_normal
    values = draw((5, 4)) + 1j * draw((5, 4))
    return {
        "spectral.weight": (values if np.dtype(dtype).kind == "c" else values.real).astype(dtype),
        "bias": draw(4).astype(np.float32),
        "scalar": np.array(0.5, dtype),
        "norm.running_mean": draw(3).astype(dtype),
        "steps": np.array([1, 2], ">i8"),
    }


def _step(given: Arrays) -> Arrays:
    return {
        name: array + (1 if name == "steps" else 0.25 - 0.5j if array.dtype.kind == "c" else 0.25)
        for name, array in given.items()
    }


@pytest.mark.parametrize("inner", [FedAvg, FedAvgM, FedMedian])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_dense_run_is_that_of_plain_flower(dtype: str, inner: type[FedAvg]) -> None:
    first, results = _model(dtype), []
    for wrap in (False, True):
        random.seed(1)
        plain: Strategy = inner(fraction_evaluate=0.0)
        strategy = CompressedStrategy(plain, uplink=fedcomp.dense(), downlink=fedcomp.dense()) if wrap else plain
        app = training(lambda given, *_: _step(given), mod=wrap)
        result = strategy.start(LocalGrid(app, 2), ArrayRecord({n: Array(a) for n, a in first.items()}), num_rounds=2)
        results.append(arrays_of(result.arrays))
    tolerance = 1e-3 if dtype == ">f2" else 1e-5
    for name, array in results[0].items():
        np.testing.assert_allclose(results[1][name], array, rtol=tolerance, atol=tolerance)
        assert results[1][name].dtype == first[name].dtype.newbyteorder("="), "the dtype of the first model"


@pytest.mark.parametrize("uplink", ["stc(density=0.3)", "topk(density=0.3)", "eden(bits=4)", "powersgd(rank=1)"])
def test_compressed_complex_models_learn(uplink: str) -> None:
    target = _model("complex64")["spectral.weight"]

    def towards(given: Arrays) -> Arrays:
        return given | {"w": given["w"] + (target - given["w"]) / 2}

    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.parse(uplink))
    app = training(lambda given, *_: towards(given))
    strategy.start(LocalGrid(app, 2), to_record({"w": np.zeros_like(target)}), num_rounds=60)
    assert strategy.ledger.failed == strategy.ledger.refused == 0
    assert np.abs(strategy.arrays["w"].numpy() - target).max() < 0.05 * np.abs(target).max()


@pytest.mark.parametrize("kind", [EF21, FedAMS, MajorityVote, QcmdAdagrad, QrdaAdagrad])
def test_a_server_optimizer_moves_a_complex_model_as_the_model_of_its_pairs(kind: type[FedAvg]) -> None:
    first = _model("complex64")["spectral.weight"]
    uplink = fedcomp.parse("ef21(density=0.5)" if kind is EF21 else "dense()")
    models: list[NDArray[np.float32]] = []
    for start in (first, first.view(np.float32).reshape(*first.shape, 2)):
        strategy = CompressedStrategy(kind(fraction_evaluate=0.0), uplink=uplink, downlink=fedcomp.dense())
        app = training(lambda given, *_: {"w": (given["w"] * np.float32(0.5)).astype(given["w"].dtype)})
        strategy.start(LocalGrid(app, 3), to_record({"w": start}), num_rounds=4)
        assert strategy.ledger.refused == 0
        models.append(strategy.arrays["w"].numpy().view(np.float32).ravel())
    np.testing.assert_array_equal(models[0], models[1])
    assert (models[0][1::2] != first.view(np.float32).ravel()[1::2]).any(), "imaginary parts move"


@pytest.mark.parametrize("kind", [FedAdagrad, FedAdam, FedYogi])
@pytest.mark.parametrize("wrapped", [False, True])
def test_optimizers_of_flower_that_square_complex_numbers_are_refused(kind: type[FedAvg], wrapped: bool) -> None:
    inner = kind(fraction_evaluate=0.0)
    strategy = CompressedStrategy(DynamicSampling(inner, beta=0.1) if wrapped else inner)
    with pytest.raises(ValueError, match="'w' is complex64.*FedAMS"):
        strategy.start(LocalGrid(training(lambda given, *_: given), 2), to_record({"w": np.ones(2, np.complex64)}))


def test_complex_numbers_are_pairs_in_the_vector() -> None:
    arrays = {"w": np.array([[1 + 2j, 3 - 4j]], np.complex64), "b": np.ones(1, np.float32)}
    layout = layout_of(arrays)
    vector, exact = layout.flatten(arrays)
    assert vector.tolist() == [1, 2, 3, -4, 1]
    assert layout.shapes == ((1, 2, 2), (1,))
    assert parse_layout(layout.text) == layout
    for name, array in layout.unflatten(vector, exact).items():
        np.testing.assert_array_equal(array, arrays[name])
        assert array.dtype == arrays[name].dtype


def test_a_complex_reply_to_a_real_model_is_refused_and_a_real_one_to_a_complex_model_counts() -> None:
    real, complex_ = {"w": np.zeros(2, np.float32)}, {"w": np.zeros(2, np.complex64)}
    with pytest.raises(ValueError, match="'w' is complex64; the model's is float32"):
        layout_of(real).flatten(complex_)
    assert layout_of(complex_).flatten({"w": np.array([1, 2])})[0].tolist() == [1, 0, 2, 0]


def test_complex_nan_and_overflow_are_refused() -> None:
    layout = layout_of({"w": np.zeros(1, np.complex64), "bn.running_mean": np.zeros(1, np.complex64)})
    good = {"w": np.ones(1), "bn.running_mean": np.ones(1)}
    for bad in (np.array([1 + 1j * np.nan]), np.array([np.inf + 0j]), np.array([1e300 + 0j])):
        for name in good:
            with pytest.raises(ValueError, match=name):
                layout.flatten(good | {name: bad})
    with pytest.raises(CorruptError, match="running_mean"):
        layout.check_exact(np.array([0, np.inf], "<f4").tobytes())


def test_complex_further_records_and_first_models_of_few_bits() -> None:
    model = start_replica(layout_of({"w": np.zeros(4, np.float32)}), {"w": np.zeros(4, np.float32)})
    control = {"c": np.array([1 + 2j, -3j, 0, 1], np.complex64)}
    arrived = decode_record(RecordSender().encode(control, "topk(density=1.0)", model, 1, 0), 1, model.layout)
    np.testing.assert_array_equal(arrived["c"], control["c"])
    rounded = records.to_arrays(round_model(control))["c"]
    assert rounded.dtype == np.complex64
    np.testing.assert_allclose(rounded, control["c"], atol=0.05)


def test_a_state_dict_of_torch_with_complex_parameters_runs() -> None:
    weight = torch.randn(3, 2, dtype=torch.cfloat)
    app = training(lambda given, *_: _step(given))
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.dense(), downlink=fedcomp.dense())
    result = strategy.start(LocalGrid(app, 2), ArrayRecord({"w": weight}), num_rounds=2)
    torch.testing.assert_close(result.arrays.to_torch_state_dict()["w"], weight + (0.5 - 1j))


def test_a_lazy_conjugate_of_torch_is_read_as_its_values() -> None:
    weight = torch.randn(3, 2, dtype=torch.cfloat)
    record = to_record({"w": weight.conj(), "imag": weight.conj().imag})
    np.testing.assert_array_equal(record["w"].numpy(), weight.numpy().conj())
    np.testing.assert_array_equal(record["imag"].numpy(), -np.imag(weight.numpy()))


def test_a_list_of_arrays_of_the_other_byte_order_is_taken_by_position() -> None:
    app = training(lambda given, *_: {str(i): (a + 1).astype(">f4") for i, a in enumerate(given.values())})
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.dense(), downlink=fedcomp.dense())
    first = {"b": np.zeros(2, ">f4"), "a": np.ones(2, np.float32)}
    strategy.start(LocalGrid(app, 2), ArrayRecord({n: Array(a) for n, a in first.items()}), num_rounds=2)
    for name, array in arrays_of(strategy.arrays).items():
        np.testing.assert_array_equal(array, first[name] + 2)
