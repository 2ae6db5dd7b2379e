"""Recurrent layers step by step: those of torch to rounding, and quantized hidden states."""

from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from fedcomp.tasks import build_model
from fedcomp.training import parse
from fedcomp.training.hidden_states import changed_states, recurrent
from fedcomp.training.quantized import quantize_activation

LAYERS: dict[str, Callable[..., nn.RNNBase]] = {
    "lstm": lambda **settings: nn.LSTM(5, 6, **settings),
    "gru": lambda **settings: nn.GRU(5, 6, **settings),
    "tanh": lambda **settings: nn.RNN(5, 6, **settings),
    "relu": lambda **settings: nn.RNN(5, 6, nonlinearity="relu", **settings),
}
SETTINGS: tuple[dict[str, object], ...] = (
    {},
    {"num_layers": 2, "batch_first": True},
    {"num_layers": 2, "bidirectional": True, "bias": False},
)


def same(x: Tensor) -> Tensor:
    return x


def flat(result: object) -> list[Tensor]:
    """Return the tensors of what a layer returns."""
    if isinstance(result, PackedSequence):
        return [result.data]
    return (
        [result]
        if isinstance(result, Tensor)
        else [each for part in cast("tuple[object, ...]", result) for each in flat(part)]
    )


@pytest.mark.parametrize("settings", SETTINGS, ids=["plain", "two layers", "both directions"])
@pytest.mark.parametrize("kind", list(LAYERS))
@pytest.mark.parametrize("given", ["batch", "sample", "packed"])
@pytest.mark.parametrize("started", [False, True], ids=["from zero", "from states"])
def test_it_is_torchs_layer(kind: str, settings: dict[str, object], given: str, started: bool) -> None:
    """Outputs, last states and gradients."""
    torch.manual_seed(0)
    layer = LAYERS[kind](**settings)
    padded = torch.randn(4, 4, 5) if given != "sample" else torch.randn(4, 5)
    x: Tensor | PackedSequence = padded
    if given == "packed":
        lengths = torch.tensor([2, 4, 1, 3])
        x = pack_padded_sequence(padded, lengths, layer.batch_first, enforce_sorted=False)
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    shape = (count, 6) if given == "sample" else (count, 4, 6)
    first = (torch.randn(shape), torch.randn(shape)) if kind == "lstm" else torch.randn(shape)
    found: list[list[Tensor]] = []
    for call in (layer, lambda *inputs: recurrent(layer, same, *inputs)):
        results = flat(call(x, first) if started else call(x))
        layer.zero_grad()
        torch.stack([each.square().sum() for each in results]).sum().backward()  # type: ignore[no-untyped-call]
        found.append([*results, *(cast("Tensor", weight.grad).clone() for weight in layer.parameters())])
    for mine, right in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-5, atol=1e-5)


def test_dropout_between_layers_is_that_of_training_alone() -> None:
    torch.manual_seed(0)
    layer, x = nn.LSTM(5, 6, num_layers=2, dropout=0.5), torch.randn(4, 3, 5)
    first, second = (recurrent(layer, same, x)[0] for _ in range(2))
    assert not torch.equal(cast("Tensor", first), cast("Tensor", second))
    layer.eval()
    torch.testing.assert_close(recurrent(layer, same, x)[0], layer(x)[0])


def test_the_state_of_a_step_is_the_rounded_one_of_the_last_by_hand() -> None:
    """A layer with weights of 1: tanh(0.3) = 0.29 becomes 1/4 in 3 bits, then tanh(0.3 + 1/4) = 0.5005 becomes 1/2."""
    layer = nn.RNN(1, 1, bias=False)
    for weight in layer.parameters():
        nn.init.ones_(weight)
    with changed_states([layer], lambda x: quantize_activation(x, 3, signed=True)):
        output, last = layer(torch.full((2, 1, 1), 0.3))
    assert output.flatten().tolist() == [0.25, 0.5]
    assert last.item() == 0.5
    assert layer(torch.full((2, 1, 1), 0.3))[0][0].item() == pytest.approx(0.2913, abs=1e-4), (
        "afterwards it is as it was"
    )


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("name", ["lstm", "char_lstm"])
def test_a_model_has_states_of_few_values_in_training_and_inference(name: str, bits: int) -> None:
    shape = (1, 1, 12) if name == "char_lstm" else (1, 8, 8)
    model = build_model(name, shape, 10, 0)
    layer = next(each for each in model.modules() if isinstance(each, nn.LSTM))
    with torch.no_grad():
        for weight in layer.parameters():
            weight.mul_(4)  # for states that are not all near 0
    seen: list[Tensor] = []
    layer.register_forward_hook(lambda _layer, _inputs, outputs: seen.append(outputs[0].detach()))
    x = torch.rand(6, *shape, generator=torch.Generator().manual_seed(0)) * 9
    y = torch.zeros(6, dtype=torch.int64)
    plan = parse(f"quantized(4, hidden={bits})")
    training = plan.begin(model)
    training.step(torch.optim.SGD(model.parameters(), lr=0.0), x, y, functional.cross_entropy)
    used = plan.inference(model).eval()
    used(x)
    model(x)
    for states in seen[:2]:
        places = states * 2 ** (bits - 1)
        torch.testing.assert_close(places, places.round())
        assert 2 <= len(set(places.flatten().tolist())) <= 2**bits
    assert torch.equal(seen[0], seen[1])
    assert len(set(seen[2].flatten().tolist())) > 100
    assert all(float(cast("Tensor", weight.grad).norm()) > 0 for weight in layer.parameters())


class Projected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(5, 6, proj_size=3)


@pytest.mark.parametrize(
    ("model", "found"), [(Projected(), "layer has projections"), (nn.Linear(3, 3), "the model has none")]
)
def test_states_that_it_cannot_see_are_refused(model: nn.Module, found: str) -> None:
    with pytest.raises(ValueError, match=f"^hidden [^\n]*{found}[^\n]*$"):
        parse("quantized(hidden=4)").begin(model)
