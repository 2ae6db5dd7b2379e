import pytest
import torch

from clients.samples import own_samples, partition_of

RUN: dict[str, object] = {"dataset": "digits", "data-dir": "", "partition": "classes(2)", "seed": 0}
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
