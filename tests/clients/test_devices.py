"""The choice of a device."""

import pytest
import torch

from clients.devices import available, pick_device


def test_every_node_has_a_cpu_and_lists_it_last() -> None:
    assert available()[-1] == "cpu"
    assert pick_device("cpu") == torch.device("cpu")


def test_auto_is_the_fastest_device() -> None:
    assert pick_device("auto").type == available()[0]


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_a_missing_device_is_refused_with_the_list_of_devices(kind: str) -> None:
    if kind in available():
        assert pick_device(kind).type == kind
    else:
        with pytest.raises(ValueError, match=rf"^device is '{kind}'; this node has: .*cpu$"):
            pick_device(kind)


def test_a_gpu_with_too_high_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^device is 'cuda:99'; this node"):
        pick_device("cuda:99")
