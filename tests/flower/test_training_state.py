"""The training state in a node's ``Context.state``: what comes back after a restart, and what stays out of the way."""

import doctest
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from flwr.app import ConfigRecord, RecordDict

from fedcomp.flower import load_training_state, save_training_state, training_state

ROOT = Path(__file__).parents[2]
STATE = {
    "momentum": {"layers.a/b.weight": torch.tensor([[2.0, -1.0]]), "bias": torch.tensor([0.5])},
    "admm(table='ternary')": {"bias": torch.zeros(0, 3), "chosen": torch.tensor([True, False])},
    "adam": {"steps": torch.tensor(7.0)},
}


@pytest.mark.parametrize("restart", [False, True])
def test_the_state_comes_back_with_its_round_and_may_be_written_to(restart: bool) -> None:
    records = RecordDict({"others": ConfigRecord({"a": 1})})
    save_training_state(records, STATE, 3)
    if restart:
        records = RecordDict.inflate(records.deflate(), records.children)
    loaded, server_round = load_training_state(records)
    assert server_round == 3
    assert loaded.keys() == STATE.keys()
    for part, tensors in STATE.items():
        assert loaded[part].keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert loaded[part][name].dtype == tensor.dtype
            assert torch.equal(loaded[part][name], tensor)
    loaded["momentum"]["bias"].add_(1)
    assert torch.equal(load_training_state(records)[0]["momentum"]["bias"], STATE["momentum"]["bias"])
    assert records["others"] == ConfigRecord({"a": 1})


def test_an_empty_state_removes_the_one_before() -> None:
    records = RecordDict({"others": ConfigRecord({"a": 1})})
    save_training_state(records, STATE, 3)
    save_training_state(records, {"momentum": {}}, 4)
    assert list(records) == ["others"]
    assert load_training_state(records) == ({}, 0)


def test_a_part_with_a_slash_is_refused_and_what_was_there_stays() -> None:
    records = RecordDict()
    save_training_state(records, STATE, 3)
    with pytest.raises(ValueError, match="is 'a/b'; a name without a slash"):
        save_training_state(records, {"a/b": {"c": torch.zeros(1)}}, 4)
    assert load_training_state(records)[1] == 3


def test_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="'adam/steps' of the training state has the type int; a tensor is needed"):
        save_training_state(RecordDict(), {"adam": {"steps": 3}}, 4)  # type: ignore[dict-item]


def test_the_example_prints_what_it_shows() -> None:
    result = doctest.testmod(training_state)
    assert (result.failed, result.attempted > 0) == (0, True)


def test_a_server_without_torch_can_import_it() -> None:
    """In a process that has not imported torch yet."""
    text = "import sys; sys.modules['torch'] = None; import fedcomp.flower"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_sparse_momentum_is_kept_dense_and_a_dtype_that_numpy_lacks_is_named() -> None:
    embedding = torch.nn.Embedding(6, 2, sparse=True)
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1, momentum=0.9)
    embedding(torch.tensor([1, 1, 4])).sum().backward()
    optimizer.step()
    buffer = optimizer.state[embedding.weight]["momentum_buffer"]
    assert buffer.is_sparse
    records = RecordDict()
    save_training_state(records, {"momentum": {"weight": buffer}}, 3)
    assert torch.equal(load_training_state(records)[0]["momentum"]["weight"], buffer.to_dense())
    with pytest.raises(ValueError, match=r"the tensor 'a/b' of the training state is torch\.float8_e4m3fn"):
        save_training_state(records, {"a": {"b": torch.zeros(2).to(torch.float8_e4m3fn)}}, 4)
