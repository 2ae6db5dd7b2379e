import pytest
import torch

from clients.devices import available, pick_device


def test_the_cpu_is_always_there_and_comes_last() -> None:
    assert available()[-1] == "cpu"
    assert pick_device("cpu") == torch.device("cpu")


def test_auto_is_the_fastest_that_there_is() -> None:
    assert pick_device("auto").type == available()[0]


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_a_device_is_given_where_it_is_and_refused_with_what_there_is_where_it_is_not(kind: str) -> None:
    if kind in available():
        assert pick_device(kind).type == kind
    else:
        with pytest.raises(ValueError, match=rf"^device is '{kind}'; this node has: .*cpu$"):
            pick_device(kind)


def test_a_gpu_of_a_number_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^device is 'cuda:99'; this node"):
        pick_device("cuda:99")
