"""A model that was trained on a device is compressed there: the run has the same bits, and little crosses to the host."""

import random
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid, to_record
from tests.flower.toy import state_of

torch: Any = pytest.importorskip("torch")
other_device: Any = pytest.importorskip("tests.other_device")

N, ROUNDS, NODES = 40_000, 3, 2
KEPT = 400


def first_model(*, masked: bool) -> ArrayRecord:
    rng = np.random.default_rng(0)
    mask = {"w_mask": np.packbits(rng.random(N) < 0.02)} if masked else {}
    return to_record({"w": rng.standard_normal((N // 100, 100), np.float32), "v": np.ones(10, np.float32), **mask})


def app(device: Any, crossed: list[int], reply: str = "tensors") -> ClientApp:
    """Return an app that adds noise on `device`; `crossed` gets the bytes that its replies brought to the host."""

    def count(message: Message, context: Context, call_next: Any) -> Message:
        before = device.to_host
        answer: Message = call_next(message, context)
        crossed.append(device.to_host - before)
        return answer

    client_app = ClientApp(mods=[count, CompressionMod()])

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = {name: array.numpy() for name, array in message.content.array_records["arrays"].items()}
        rng = np.random.default_rng([context.node_id, len(crossed)])
        mask = np.unpackbits(arrays["w_mask"]).reshape(arrays["w"].shape) if "w_mask" in arrays else np.uint8(1)
        arrays["w"] = arrays["w"] + rng.standard_normal(arrays["w"].shape, np.float32) * mask
        trained: dict[str, Any] = arrays
        if reply == "tensors":
            trained = {name: torch.from_numpy(array).to(other_device.DEVICE) for name, array in arrays.items()}
        content = RecordDict({"arrays": to_record(trained), "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    return client_app


def run(uplink: str, reply: str, *, masked: bool = False, in_memory: bool = True) -> tuple[Any, LocalGrid, list[int]]:
    crossed: list[int] = []
    random.seed(1)  # the order of the nodes decides what they draw
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=fedcomp.parse(uplink), downlink=fedcomp.dense())
    with other_device.OtherDevice() as device:
        grid = LocalGrid(app(device, crossed, reply), NODES, in_memory=in_memory)
        strategy.start(grid, first_model(masked=masked), num_rounds=ROUNDS)
    assert strategy.ledger.failed == strategy.ledger.refused == 0
    return strategy, grid, crossed


@pytest.mark.one_flower
@pytest.mark.parametrize("uplink", ["stc(density=0.01)", "topk(density=0.01)", "eden(bits=1)", "dense()"])
@pytest.mark.parametrize("in_memory", [True, False])
def test_a_run_of_tensors_on_a_device_is_that_of_numpy_arrays(uplink: str, in_memory: bool) -> None:
    expected, host_grid, none = run(uplink, "arrays", in_memory=in_memory)
    found, grid, _ = run(uplink, "tensors", in_memory=in_memory)
    assert found.publisher.replica.vector.tobytes() == expected.publisher.replica.vector.tobytes()
    assert found.ledger.sent_bytes == expected.ledger.sent_bytes
    assert set(none) == {0}
    with other_device.OtherDevice():
        for node in grid.contexts:
            for name, array in state_of(host_grid.contexts[node]).memory.items():
                held = state_of(grid.contexts[node]).memory[name]
                assert isinstance(held, np.ndarray) != (in_memory and uplink.startswith(("stc", "topk")))
                assert torch.as_tensor(held).cpu().numpy().tobytes() == array.tobytes()


def test_only_the_kept_entries_cross_to_the_host() -> None:
    """An index of eight bytes and a value of four for each, some flags, and sums of the first reply of a node."""
    _, _, crossed = run("stc(density=0.01)", "tensors")
    assert len(crossed) == NODES * ROUNDS
    assert all(12 * KEPT <= each < 13 * KEPT < N for each in crossed)


def test_only_the_entries_of_a_mask_cross_to_the_host() -> None:
    expected, _, _ = run("eden(bits=1)", "arrays", masked=True)
    found, _, crossed = run("eden(bits=1)", "tensors", masked=True)
    assert found.publisher.replica.vector.tobytes() == expected.publisher.replica.vector.tobytes()
    assert all(each < N // 8 + 4 * (0.025 * N) for each in crossed)


def test_a_saved_state_brings_the_residual_to_the_host_once() -> None:
    _, _, crossed = run("stc(density=0.01)", "tensors", in_memory=False)
    assert all(4 * N < each < 4 * N + 14 * KEPT for each in crossed)
