"""bfloat16 models: they train like any other model, from README's own lines but one, which Flower itself refuses."""

from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian, Strategy
from torch import nn

import fedcomp
from fedcomp.errors import NoUpdateError
from fedcomp.flower import (
    CompressedStrategy,
    CompressionMod,
    LocalGrid,
    load_training_state,
    save_training_state,
    to_record,
    to_torch,
)
from fedcomp.flower.compat import record_from_bytes, record_from_objects, record_to_bytes, record_to_objects
from fedcomp.wire import BFLOAT16
from tests.flower.toy import training

ALL = {"fraction_evaluate": 0.0}


def words(tensor: torch.Tensor) -> np.ndarray:
    return tensor.contiguous().view(torch.int16).numpy().view(BFLOAT16)


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)


def test_flower_itself_refuses_a_torch_tensor_of_bfloat16() -> None:
    with pytest.raises(TypeError, match="BFloat16"):
        ArrayRecord({"w": torch.ones(2, dtype=torch.bfloat16)})


@pytest.mark.parametrize("inner", [FedAvg(**ALL), FedMedian(**ALL), FedAdam(**ALL)])  # type: ignore[arg-type]
def test_a_bfloat16_model_trains_and_keeps_its_dtype(inner: Strategy) -> None:
    initial = torch.full((4, 4), 1.0, dtype=torch.bfloat16)
    strategy = CompressedStrategy(inner, uplink=fedcomp.dense(), downlink=fedcomp.topk(density=0.5))
    app = training(lambda given, context, _: {"w": words(tensor(given["w"]) + 2.0**-7)})
    strategy.start(LocalGrid(app, 3), ArrayRecord({"w": Array(words(initial))}), num_rounds=4)
    assert strategy.ledger.failed == strategy.ledger.refused == 0
    final = tensor(strategy.arrays["w"].numpy())
    assert final.dtype == torch.bfloat16
    if not isinstance(inner, FedAdam):
        moved = strategy.publisher.replica.vector - 1 + strategy.publisher.memory["residual"]
        np.testing.assert_allclose(moved, 4 * 2.0**-7, rtol=1e-6)
        assert torch.equal(final, torch.from_numpy(strategy.publisher.replica.vector).reshape(4, 4).to(torch.bfloat16))


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 10), nn.BatchNorm1d(10), nn.Linear(10, 4)).to(torch.bfloat16)


def _client(record: type[ArrayRecord] | None = None) -> ClientApp:
    """Return README's client, with a model of bfloat16 and steps of 0.25; it replies with `record`, or what fedcomp makes."""
    app = ClientApp(mods=[CompressionMod()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = _net()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())  # type: ignore[union-attr]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.25)
        context.state["kept"] = message.content["arrays"]
        arrays = record(model.state_dict()) if record is not None else to_record(model.state_dict())
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        _net().load_state_dict(message.content["arrays"].to_torch_state_dict())  # type: ignore[union-attr]
        reply = RecordDict({"metrics": MetricRecord({"num-examples": 1}), "arrays": message.content["arrays"]})
        return Message(reply, reply_to=message)

    return app


def test_flower_has_nothing_to_warn_of(flower_log: pytest.LogCaptureFixture) -> None:
    """It warns when a record takes the place of one of another class."""
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    strategy.start(LocalGrid(_client(), 2), to_record(_net().state_dict()), num_rounds=2)
    assert strategy.version == 2
    assert "overwritten" not in flower_log.text


@pytest.mark.parametrize("store", ["Context.state", "in memory", "state-dir"])
@pytest.mark.parametrize("local", [(), ("2.*",)])
def test_the_lines_of_the_readme_work_on_client_server_evaluation_and_result(
    local: tuple[str, ...], store: str, tmp_path: Path
) -> None:
    def config(node: int) -> UserConfig:
        return {"state-dir": str(tmp_path / str(node))} if store == "state-dir" else {}

    seen: list[int] = []

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model = _net()
        model.load_state_dict(arrays.to_torch_state_dict())
        seen.append(server_round)
        return MetricRecord({"w": next(model.parameters())[0, 0].item()})

    dense = fedcomp.dense()
    strategy = CompressedStrategy(FedAvg(), uplink=dense, downlink=dense, local=local)
    grid = LocalGrid(
        _client() if not local else _partial_client(), 2, node_config=config, in_memory=store == "in memory"
    )
    first = _net().state_dict()
    result = strategy.start(grid, to_record(first), num_rounds=3, evaluate_fn=evaluate)
    assert (strategy.version, strategy.ledger.failed, strategy.ledger.refused) == (3, 0, 0)
    assert seen == [0, 1, 2, 3]
    trained = result.arrays.to_torch_state_dict()
    assert {name: tensor.dtype for name, tensor in trained.items()} == {n: t.dtype for n, t in first.items()}
    torch.testing.assert_close(trained["0.weight"], first["0.weight"] + 0.75, rtol=0.01, atol=0.01)
    for context in grid.contexts.values():
        for name, tensor in to_torch(context.state.array_records["kept"]).items():
            assert tensor.dtype == first[name].dtype, "what Flower stored and read again is bfloat16, too"


def _partial_client() -> ClientApp:
    """Return a client that brings the tensors which the first message lacks."""
    app = ClientApp(mods=[CompressionMod()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = _net()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=False)  # type: ignore[union-attr]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.25)
        context.state["kept"] = to_record(model.state_dict())
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": to_record(model.state_dict()), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        given = message.content["arrays"].to_torch_state_dict()  # type: ignore[union-attr]
        assert given["2.weight"].dtype == torch.bfloat16, "the local tensor, as it was trained here"
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return app


def test_where_flower_refuses_bfloat16_the_error_says_what_to_write() -> None:
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    with pytest.raises(NoUpdateError, match=r"to_record\(model.state_dict\(\)\) takes tensors of bfloat16"):
        strategy.start(LocalGrid(_client(ArrayRecord), 2), to_record(_net().state_dict()), num_rounds=1)


def test_a_record_is_the_same_after_every_way_that_flower_sends_or_stores_it() -> None:
    state = {"w": torch.tensor([0.5, -1e-3, torch.inf], dtype=torch.bfloat16), "steps": torch.tensor(3)}
    record = to_record(state)
    content = RecordDict({"arrays": record})
    for way in (
        content,
        record_from_objects(content.object_id, record_to_objects(content)),
        record_from_bytes(record_to_bytes(content)),
        RecordDict({"arrays": record.copy()}),
        RecordDict({"arrays": ArrayRecord(dict(record))}),
    ):
        tensors = to_torch(way.array_records["arrays"])
        assert list(tensors) == list(state)
        assert all(torch.equal(tensors[name], tensor) for name, tensor in state.items())
        assert tensors["w"].dtype == torch.bfloat16
    assert torch.equal(record.to_torch_state_dict(keep_input=False)["w"], state["w"])
    assert not record


def test_training_state_of_bfloat16_comes_back() -> None:
    records, momentum = RecordDict(), torch.tensor([0.5, -1e-3], dtype=torch.bfloat16)
    save_training_state(records, {"momentum": {"w": momentum}}, 1)
    again = load_training_state(record_from_bytes(record_to_bytes(records)))[0]["momentum"]["w"]
    assert again.dtype == torch.bfloat16
    assert torch.equal(again, momentum)
