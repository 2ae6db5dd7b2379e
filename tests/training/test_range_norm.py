"""Batch normalization by ranges: by hand, beside the deviation of normal values, and what it leaves in the layer."""

import math

import pytest
import torch
from torch import Tensor, nn

from fedcomp.training.range_norm import normalized_by_ranges, range_deviation

KAPPA = 0.175 * (1 + math.sqrt(math.pi * math.log(4)))


def test_the_deviation_of_a_channel_by_hand() -> None:
    """Five values are two parts of two, and one that counts in the mean alone: ranges of 3 and 1."""
    values = torch.tensor([[1.0, 4.0, 2.0, 1.0, 90.0]])
    expected = KAPPA / math.sqrt(2 * math.log(2)) * (3 + 1) / 2
    torch.testing.assert_close(range_deviation(values), torch.tensor([expected]))


def test_sixteen_parts_of_a_large_batch_have_the_mean_of_their_ranges() -> None:
    values = torch.zeros(1, 16 * 20)
    values[0, ::20] = torch.arange(16.0)
    expected = KAPPA / math.sqrt(2 * math.log(20)) * 7.5
    torch.testing.assert_close(range_deviation(values), torch.tensor([expected]))


@pytest.mark.parametrize(("count", "tolerance"), [(16 * 64, 0.14), (16 * 1000, 0.1), (16 * 20000, 0.06)])
def test_the_more_normal_values_the_closer_is_it_to_their_deviation(count: int, tolerance: float) -> None:
    values = 3 * torch.randn(20, count, generator=torch.Generator().manual_seed(0)) + 5
    assert float(range_deviation(values).mean()) == pytest.approx(3, rel=tolerance)


def normalized(layer: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
    with normalized_by_ranges([layer]):
        outputs: Tensor = layer(x)
    assert "forward" not in vars(layer), "the layer is an ordinary one again"
    return outputs


@pytest.mark.parametrize("shape", [(64, 3), (16, 3, 5), (8, 3, 4, 5), (4, 3, 2, 3, 4)])
def test_outputs_are_centred_and_divided_by_the_deviation(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 2 + 7
    layer = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)](3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, 2.0, -3.0]))
        layer.bias.copy_(torch.tensor([0.0, 1.0, 2.0]))
    channels = x.transpose(0, 1).flatten(1)
    deviation = range_deviation(channels)
    expected = (channels - channels.mean(1, keepdim=True)) / (deviation.square() + layer.eps).sqrt()[:, None]
    expected = expected * layer.weight[:, None] + layer.bias[:, None]
    torch.testing.assert_close(normalized(layer, x).transpose(0, 1).flatten(1), expected)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_follow_those_of_the_batches_and_an_evaluation_uses_them(momentum: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    layer = nn.BatchNorm1d(2, momentum=momentum)
    mean, variance = torch.zeros(2), torch.ones(2)
    for step in (1, 2, 3):
        x = torch.randn(64, 2, generator=generator) + 3
        weight = 1 / step if momentum is None else momentum
        mean = (1 - weight) * mean + weight * x.mean(0)
        variance = (1 - weight) * variance + weight * range_deviation(x.T).square()
        normalized(layer, x)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    torch.testing.assert_close(layer.running_mean, mean)
    torch.testing.assert_close(layer.running_var, variance)
    assert layer.num_batches_tracked == torch.tensor(3)
    layer.eval()
    one = torch.tensor([[3.0, 4.0]])
    assert torch.equal(normalized(layer, one), layer(one)), "a single sample, as any layer evaluates it"
    torch.testing.assert_close(layer(one).detach(), (one - mean) / (variance + layer.eps).sqrt())


def test_a_layer_without_running_statistics_uses_the_batch_in_an_evaluation() -> None:
    layer = nn.BatchNorm1d(2, track_running_stats=False, affine=False).eval()
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        normalized(layer, x), (x - x.mean(0)) / (range_deviation(x.T).square() + layer.eps).sqrt()
    )


def test_a_frozen_layer_keeps_its_statistics() -> None:
    """One in evaluation mode, while the model trains."""
    layer = nn.BatchNorm1d(2).eval()
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    x = torch.randn(64, 2)
    assert torch.equal(normalized(layer, x), layer(x))
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())


def test_equal_values_become_the_offset_and_their_gradients_are_numbers() -> None:
    layer, x = nn.BatchNorm1d(1), torch.full((8, 1), 2.0, requires_grad=True)
    outputs = normalized(layer, x)
    outputs.sum().backward()  # type: ignore[no-untyped-call]
    assert outputs.tolist() == [[0.0]] * 8
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_a_channel_of_one_value_is_refused() -> None:
    layer = nn.BatchNorm1d(3)
    with pytest.raises(ValueError, match=r"a channel of \(1, 3\) has 1 values; .* 2 or more"):
        normalized(layer, torch.zeros(1, 3))
    assert layer.num_batches_tracked == torch.tensor(0)


def test_contexts_within_each_other_leave_an_ordinary_layer() -> None:
    layer, x = nn.BatchNorm1d(2, track_running_stats=False), torch.randn(32, 2)
    with normalized_by_ranges([layer]):
        outer = layer(x)
        with normalized_by_ranges([layer]):
            assert torch.equal(layer(x), outer)
    assert not torch.equal(layer(x), outer)
    assert "forward" not in vars(layer)


def test_a_forward_of_the_layers_own_comes_back() -> None:
    layer = nn.BatchNorm1d(2)
    plain = layer.forward

    def doubled(x: Tensor) -> Tensor:
        return 2 * plain(x)

    vars(layer)["forward"] = doubled
    with normalized_by_ranges([layer]):
        assert vars(layer)["forward"] is not doubled
    assert vars(layer)["forward"] is doubled
