"""The choice of a device."""

import pytest
import torch

from clients.devices import available, pick_device


def test_every_node_has_a_cpu_lists_it_last_and_picks_its_fastest_device() -> None:
    assert available()[-1] == "cpu"
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type == available()[0]


@pytest.mark.parametrize(("name", "there"), [("cuda", ": .*cpu$"), ("mps", ": .*cpu$"), ("cuda:99", "")])
def test_a_missing_device_is_refused_with_the_list_of_devices(name: str, there: str) -> None:
    if name in available():
        assert pick_device(name).type == name
    else:
        with pytest.raises(ValueError, match=f"^device is '{name}'; this node.*{there}"):
            pick_device(name)
