"""The choice of a device."""

import re

import pytest
import torch

from clients.devices import available, pick_device


def test_every_node_has_a_cpu_lists_it_last_and_picks_its_fastest_device() -> None:
    assert available()[-1] == "cpu"
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type == available()[0]


@pytest.mark.parametrize(
    "name", ["", "gpu", "cuda:", "cuda:01", "cuda:-1", "cuda:x", "cuda:٣", "cpu:0", "mps:1", "auto "]
)
def test_what_is_no_device_is_refused_with_what_a_device_is(name: str) -> None:
    with pytest.raises(ValueError, match=f"^device is {re.escape(repr(name))}; auto, cpu, cuda, cuda:<number> or mps"):
        pick_device(name)


@pytest.mark.parametrize(("name", "there"), [("cuda", ": .*cpu$"), ("mps", ": .*cpu$"), ("cuda:99", "")])
def test_a_missing_device_is_refused_with_the_list_of_devices(name: str, there: str) -> None:
    if name in available():
        assert pick_device(name).type == name
    else:
        with pytest.raises(ValueError, match=f"^device is '{name}'; this node.*{there}"):
            pick_device(name)
