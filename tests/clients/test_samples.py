from pathlib import Path

import numpy as np
import pytest
import torch

from clients.samples import CARDS, number_of, own_samples, partition_of
from fedcomp.data import load, read_card, write_own
from fedcomp.tasks import prepare

RUN: dict[str, object] = {"dataset": "digits", "data-dir": "", "partition": "classes(2)", "seed": 0}
OWN = RUN | {"partition": "own()"}
CPU = torch.device("cpu")


def test_nodes_hold_what_their_partition_says_and_share_no_sample() -> None:
    parts = [own_samples(RUN, {"partition-id": number, "num-partitions": 10}, CPU) for number in range(10)]
    assert all(len(x) == len(y) > 0 for x, y in parts)
    assert all(len(set(y.tolist())) == 2 for _, y in parts)


def test_the_same_node_gets_the_same_samples_again() -> None:
    node = {"partition-id": 3, "num-partitions": 10}
    (x, y), (again, labels) = own_samples(RUN, node, CPU), own_samples(RUN, node, CPU)
    assert torch.equal(x, again)
    assert torch.equal(y, labels)


def test_samples_are_as_the_model_reads_them() -> None:
    x, y = own_samples(RUN, {"partition-id": 0, "num-partitions": 10}, CPU)
    assert x.shape[1:] == (1, 8, 8)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)


def test_features_are_skewed_as_the_partition_says_and_labels_are_not() -> None:
    node = {"partition-id": 9, "num-partitions": 10}
    x, y = own_samples(RUN, node, CPU)
    noisy, labels = own_samples(RUN | {"partition": "classes(2) + noise(0.5)"}, node, CPU)
    assert float((noisy - x).std()) == pytest.approx(0.5, rel=0.05)
    assert torch.equal(y, labels)


@pytest.mark.parametrize("node", [{}, {"partition-id": 0}, {"partition-id": 5, "num-partitions": 5}])
def test_a_node_that_does_not_say_its_partition_is_told_how(node: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"both are needed, as in --node-config 'partition-id=0 num-partitions=10'"):
        partition_of(node)


def test_a_nodes_own_data_dir_goes_before_the_runs() -> None:
    node = {"partition-id": 0, "num-partitions": 2, "data-dir": "/nowhere"}
    with pytest.raises(ValueError, match="/nowhere"):
        own_samples(RUN | {"dataset": "mnist", "data-dir": "/elsewhere"}, node, CPU)


def test_all_samples_of_its_own_folder_are_a_nodes(tmp_path: Path) -> None:
    card = read_card("digits", CARDS)
    train = load(card).train
    write_own(tmp_path, card, train.x[:7], train.y[:7])
    x, y = own_samples(OWN | {"data-dir": "/elsewhere"}, {"data-dir": str(tmp_path)}, CPU)
    assert torch.equal(x, prepare(train.x[:7], card, CPU))
    assert np.array_equal(y.numpy(), train.y[:7])


@pytest.mark.parametrize("node", [{}, {"data-dir": ""}, {"partition-id": 0, "num-partitions": 2}])
def test_own_samples_need_a_folder_of_the_nodes_and_the_runs_is_none(node: dict[str, object]) -> None:
    said = (
        r"node config has no data-dir; .* card, digits\.toml, is needed, as in --node-config 'data-dir=\"/srv/data\"'"
    )
    with pytest.raises(ValueError, match=said):
        own_samples(OWN | {"data-dir": "/elsewhere"}, node, CPU)


def test_a_node_draws_by_its_partition_and_by_its_id_where_nothing_is_shared_out() -> None:
    shared = {"partition-id": 3, "num-partitions": 10}
    assert number_of(RUN, shared, node_id=99) == 3
    assert number_of(OWN, {}, node_id=99) == 99
    assert number_of(OWN, {}, node_id=-1) == 2**64 - 1
    assert number_of(OWN, {"partition-id": 3}, node_id=99) == 3
    with pytest.raises(ValueError, match="both are needed"):
        number_of(RUN, {}, node_id=99)
