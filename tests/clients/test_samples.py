"""The samples of a node: its partition, or those in its own folder."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clients.samples import CARDS, node_number, own_samples, partition_of
from fedcomp.data import load, read_card, write_own
from fedcomp.tasks import prepare

RUN: dict[str, object] = {"dataset": "digits", "data-dir": "", "partition": "classes(2)", "seed": 0}
OWN = RUN | {"partition": "own()"}
CPU = torch.device("cpu")


def test_each_node_has_the_samples_of_its_partition_as_the_model_reads_them() -> None:
    parts = [own_samples(RUN, {"partition-id": number, "num-partitions": 10}, CPU) for number in range(10)]
    assert all(len(x) == len(y) > 0 for x, y in parts)
    assert all(len(set(y.tolist())) == 2 for _, y in parts)
    x, y = own_samples(RUN, {"partition-id": 3, "num-partitions": 10}, CPU)
    assert torch.equal(x, parts[3][0])
    assert torch.equal(y, parts[3][1])
    assert (x.shape[1:], x.dtype, y.dtype) == ((1, 8, 8), torch.float32, torch.int64)


def test_the_partition_skews_features_but_not_labels() -> None:
    node = {"partition-id": 9, "num-partitions": 10}
    x, y = own_samples(RUN, node, CPU)
    noisy, labels = own_samples(RUN | {"partition": "classes(2) + noise(0.5)"}, node, CPU)
    assert float((noisy - x).std()) == pytest.approx(0.5, rel=0.05)
    assert torch.equal(y, labels)


@pytest.mark.parametrize("node", [{}, {"partition-id": 0}, {"partition-id": 5, "num-partitions": 5}])
def test_a_node_without_a_partition_is_refused_with_an_example(node: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="partition-id=0 num-partitions=10"):
        partition_of(node)


def test_the_data_dir_of_a_node_precedes_that_of_the_run() -> None:
    node = {"partition-id": 0, "num-partitions": 2, "data-dir": "/nowhere"}
    with pytest.raises(ValueError, match="/nowhere"):
        own_samples(RUN | {"dataset": "mnist", "data-dir": "/elsewhere"}, node, CPU)


def test_a_node_gets_all_samples_in_its_own_folder(tmp_path: Path) -> None:
    card = read_card("digits", CARDS)
    train = load(card).train
    write_own(tmp_path, card, train.x[:7], train.y[:7])
    x, y = own_samples(OWN | {"data-dir": "/elsewhere"}, {"data-dir": str(tmp_path)}, CPU)
    assert torch.equal(x, prepare(train.x[:7], card, CPU))
    assert np.array_equal(y.numpy(), train.y[:7])


@pytest.mark.parametrize("node", [{}, {"data-dir": ""}, {"partition-id": 0, "num-partitions": 2}])
def test_own_samples_need_a_folder_of_the_node_itself(node: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"digits\.toml.* --node-config 'data-dir="):
        own_samples(OWN | {"data-dir": "/elsewhere"}, node, CPU)


def test_the_number_of_a_node_is_its_partition_or_else_its_id() -> None:
    shared = {"partition-id": 3, "num-partitions": 10}
    assert node_number(RUN, shared, node_id=99) == 3
    assert node_number(OWN, {}, node_id=99) == 99
    assert node_number(OWN, {}, node_id=-1) == 2**64 - 1
    assert node_number(OWN, {"partition-id": 3}, node_id=99) == 3
    with pytest.raises(ValueError, match="None"):
        node_number(RUN, {}, node_id=99)
