"""Plans: their texts, their steps compared with an ordinary torch loop, and what they keep."""

import re
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, cast

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

import fedcomp.training
from fedcomp.tasks import build_model
from fedcomp.training import (
    PLUGINS,
    Inference,
    Plan,
    Step,
    batch_augmentation,
    fedprox,
    mixed_precision,
    parse,
)
from fedcomp.training.plan import PlugIn
from fedcomp.training.step import Tensors


def linear(*weights: list[float]) -> nn.Linear:
    model = nn.Linear(len(weights[0]), len(weights), bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(weights))
    return model


class Noted(Step):
    """Notes the order of its calls; leaves out each second step; counts its rounds."""

    def __init__(self, name: str, notes: list[str], kept: Mapping[str, Tensor]) -> None:
        self.name, self.notes = name, notes
        self.rounds = int(kept["rounds"]) + 1 if kept else 1
        self.steps = 0

    def samples(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        self.notes.append(f"{self.name} samples")
        return x, y

    def forward(self) -> nullcontext[None]:
        self.notes.append(f"{self.name} forward")
        return nullcontext()

    def loss(self, loss: Tensor) -> Tensor:
        self.notes.append(f"{self.name} loss")
        return loss

    def gradients(self) -> bool:
        self.notes.append(f"{self.name} gradients")
        self.steps += 1
        return self.steps % 2 == 1

    def stepped(self) -> None:
        self.notes.append(f"{self.name} stepped")

    def end(self) -> dict[str, Tensor]:
        return {"rounds": torch.tensor(self.rounds)}


def noted(name: str, notes: list[str], rank: int = 0) -> PlugIn:
    return PlugIn(name, (), lambda model, kept, generator: Noted(name, notes, kept), rank)


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("", Plan()),
        ("  ", Plan()),
        ("fedprox", fedprox()),
        ("fedprox(0.5)", fedprox(mu=0.5)),
        ("batch_augmentation(4) + fedprox(mu=0.1)", batch_augmentation(4) + fedprox(0.1)),
        ("fedprox(1)+mixed_precision()+batch_augmentation(2)", fedprox(1) + mixed_precision() + batch_augmentation(2)),
    ],
)
def test_a_text_names_a_plan_and_a_plan_its_text(text: str, plan: Plan) -> None:
    assert parse(text) == plan
    assert parse(str(plan)) == plan


def test_the_text_has_the_first_setting_and_those_that_are_not_the_default() -> None:
    assert (
        str(batch_augmentation(mirror=True) + fedprox())
        == "batch_augmentation(copies=8, mirror=True) + fedprox(mu=0.01)"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "dropout(0.5)",
            "unknown training plug-in 'dropout'; there are: activation_compression, admm, batch_augmentation",
        ),
        ("fedprox(mu=-1)", "mu is -1"),
        ("fedprox(rate=1)", "fedprox"),
        ("fedprox(1) - fedprox(2)", "is not of the form"),
        ("fedprox(1) +", "is not of the form"),
        ("fedprox(__import__('os').getpid())", "is not of the form"),
        ("fedprox(1) + fedprox(2)", "has fedprox 2 times"),
        ("mixed_precision('float8')", "dtype is 'float8'"),
        ("batch_augmentation(0)", "copies is 0"),
        ("batch_augmentation(2, shift=-1)", "shift is -1"),
        ("batch_augmentation(2, mirror=1)", "mirror is 1"),
        ("batch_augmentation(2, cutout=0.5)", "cutout is 0.5"),
        ("(" * 500, "is not of the form"),
        ("fedprox(" + "-" * 400 + "1)", "is not of the form"),
    ],
)
def test_a_wrong_text_is_refused_in_one_sentence(text: str, found: str) -> None:
    with pytest.raises(ValueError, match=rf"^[^\n]*{re.escape(found)}[^\n]*$"):
        parse(text)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_without_plug_ins_a_step_is_that_of_an_ordinary_loop(momentum: float) -> None:
    torch.manual_seed(1)
    x, y = torch.randn(12, 3), torch.randint(2, (12,))
    model, other = linear([0.1, 0.2, 0.3], [0.4, 0.5, -0.6]), linear([0.1, 0.2, 0.3], [0.4, 0.5, -0.6])
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.5, momentum=momentum) for each in (model, other)]
    training = Plan().begin(model)
    for rows in (slice(0, 4), slice(4, 8), slice(8, 12)):
        loss = training.step(optimizers[0], x[rows], y[rows], functional.cross_entropy)
        optimizers[1].zero_grad()
        expected = functional.cross_entropy(other(x[rows]), y[rows])
        expected.backward()  # type: ignore[no-untyped-call]
        optimizers[1].step()
        assert loss == expected
        assert not loss.requires_grad
    assert training.end() == {}
    assert torch.equal(model.weight, other.weight)


def test_plug_ins_act_on_the_loss_in_the_order_of_their_ranks_and_on_gradients_in_reverse() -> None:
    notes: list[str] = []
    plan = Plan((noted("last", notes, rank=1), noted("first", notes), noted("second", notes)))
    model = linear([1.0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    plan.begin(model).step(optimizer, torch.ones(1, 1), torch.zeros(1, 1), functional.mse_loss)
    forth, back = ["first", "second", "last"], ["last", "second", "first"]
    calls = [("samples", forth), ("forward", forth), ("loss", forth), ("gradients", back), ("stepped", back)]
    assert notes == [f"{name} {call}" for call, names in calls for name in names]


def test_one_plug_in_can_leave_a_step_out() -> None:
    model = linear([1.0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    training = Plan((noted("each second", []),)).begin(model)
    seen = []
    for _ in range(4):
        training.step(optimizer, torch.ones(1, 1), torch.zeros(1, 1), functional.mse_loss)
        seen.append(model.weight.item())
    assert seen == [0.5, 0.5, 0.25, 0.25]


def test_after_a_plug_in_that_leaves_a_step_out_those_of_lower_rank_see_nothing_of_it() -> None:
    notes: list[str] = []
    model = linear([1.0])
    training = Plan((noted("lower", notes), noted("each second", [], rank=1))).begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    for _ in range(2):
        training.step(optimizer, torch.ones(1, 1), torch.zeros(1, 1), functional.mse_loss)
    assert (notes.count("lower loss"), notes.count("lower gradients"), notes.count("lower stepped")) == (2, 1, 1)


def test_an_optimizer_that_computes_the_loss_itself_is_refused() -> None:
    model = linear([1.0])
    batch = (torch.ones(1, 1), torch.zeros(1, 1), functional.mse_loss)
    for kind in (torch.optim.SGD, torch.optim.Adam):
        Plan().begin(model).step(kind(model.parameters(), lr=0.25), *batch)
    optimizer: Any = torch.optim.LBFGS(model.parameters())  # its type has another `step`
    with pytest.raises(ValueError, match="LBFGS computes the loss several times in a step; .* needs no closure"):
        Plan().begin(model).step(optimizer, *batch)


class Counting(Step):
    """Counts the calls of the model until it ends."""

    def __init__(self, model: nn.Module, calls: list[int]) -> None:
        self.hook = model.register_forward_hook(lambda module, inputs, output: calls.append(1))

    def end(self) -> dict[str, Tensor]:
        self.hook.remove()
        return {}


def test_an_error_leaves_no_change_of_a_plug_in_in_the_model() -> None:
    """Neither one in `check`, nor one of a plug-in that begins later: the next node trains the same module."""
    calls: list[int] = []
    counting = Plan((PlugIn("counting", (), lambda model, kept, generator: Counting(model, calls)),))
    model = linear([1.0])
    counting.begin(model)
    model(torch.ones(1, 1))
    assert calls == [1]
    model = linear([1.0])
    with pytest.raises(ValueError, match="trains on images"):
        (counting + batch_augmentation(2)).check(model, torch.ones(1, 1), torch.ones(1))
    counting.check(model, torch.ones(1, 1), torch.ones(1))
    model(torch.ones(1, 1))
    model = model.double()
    with pytest.raises(ValueError, match="float32 weights"):
        (counting + mixed_precision()).begin(model)
    model(torch.ones(1, 1).double())
    assert calls == [1]


def test_the_state_of_a_plug_in_comes_back_to_it_alone() -> None:
    model = linear([1.0])
    one, two = noted("one", []), noted("two", [])
    state = Plan((one, two)).begin(model).end()
    state = Plan((one,)).begin(model, state).end()
    assert {text: int(tensors["rounds"]) for text, tensors in state.items()} == {"one()": 2}
    state = Plan((one, two)).begin(model, state).end()
    assert {text: int(tensors["rounds"]) for text, tensors in state.items()} == {"one()": 3, "two()": 1}


def test_every_plug_in_has_a_text_a_paper_and_a_summary() -> None:
    assert {"admm", "batch_augmentation", "fedprox", "mixed_precision"} <= set(PLUGINS)
    for name, plug_in in PLUGINS.items():
        assert parse(name) == plug_in()
        assert PLUGINS.about(name).paper
        assert PLUGINS.about(name).summary
        assert getattr(fedcomp.training, name) is plug_in


def test_the_random_numbers_of_a_round_follow_from_its_seed() -> None:
    drawn: list[int] = []

    def begin(_model: nn.Module, _kept: Mapping[str, Tensor], generator: Generator) -> Step:
        drawn.append(int(torch.randint(1 << 30, (), generator=generator)))
        return Step()

    for seed in (1, 1, 2):
        Plan((PlugIn("draw", (), begin),)).begin(linear([1.0]), seed=seed)
    assert drawn[0] == drawn[1] != drawn[2]


class Doubled(Step):
    """Calls the model with twice its weights."""

    def weights(self, weights: Tensors) -> Tensors:
        return {name: 2 * weight for name, weight in weights.items()}


def doubled(*, inference: bool = True) -> Plan:
    return Plan((PlugIn("doubled", (), lambda model, kept, generator: Doubled(), inference=inference),))


def test_a_model_is_called_with_the_weights_of_a_plug_in_and_gets_their_gradient() -> None:
    """By hand: w = 3 is used as 6, x = 5, loss = output = 30; d loss / d w = 2 x = 10, so SGD of rate 0.1 gives 3 - 1."""
    model = linear([3.0])
    loss = (
        doubled()
        .begin(model)
        .step(
            torch.optim.SGD(model.parameters(), lr=0.1),
            torch.tensor([[5.0]]),
            torch.zeros(1),
            lambda output, _: output.sum(),
        )
    )
    assert (loss.item(), model.weight.item()) == (30, 2)


def test_inference_calls_the_model_as_training_does_and_sees_later_weights() -> None:
    model = linear([3.0])
    used = doubled().inference(model)
    assert used(torch.tensor([[5.0]])).item() == 30
    with torch.no_grad():
        model.weight.fill_(1)
    assert used(torch.tensor([[5.0]])).item() == 10
    assert isinstance(used, Inference)
    assert {name: tensor.item() for name, tensor in used.tensors().items()} == {"weight": 2}


def test_a_weight_of_two_names_is_used_under_both() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = self.second = nn.Linear(2, 2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.second(self.first(x))
            return outputs

    model = Tied()
    used = doubled().inference(model)
    assert isinstance(used, Inference)
    tensors = used.tensors()
    assert list(tensors) == ["first.weight", "second.weight"]
    assert all(torch.equal(tensor, 2 * model.first.weight) for tensor in tensors.values())
    x = torch.rand(3, 2)
    assert torch.equal(
        used(x), functional.linear(functional.linear(x, tensors["first.weight"]), tensors["second.weight"])
    )


@pytest.mark.parametrize("training", [True, False])
def test_inference_has_the_mode_of_the_model(training: bool) -> None:
    assert doubled().inference(linear([3.0]).train(training)).training is training


@pytest.mark.parametrize("plan", [Plan(), doubled(inference=False), parse("fedprox(0.1) + mixed_precision()")])
def test_a_plug_in_for_training_alone_leaves_inference_as_it_is(plan: Plan) -> None:
    model = linear([3.0])
    assert plan.inference(model) is model


@pytest.mark.parametrize("name", ["mlp", "cnn", "lora", "lstm", "char_lstm"])
def test_every_model_is_called_with_other_weights(name: str) -> None:
    """An LSTM keeps a list of its weights beside their names."""
    shape = (1, 1, 8) if name == "char_lstm" else (1, 8, 8)
    model, scaled = (build_model(name, shape, 10, 0) for _ in range(2))
    with torch.no_grad():
        for weight in scaled.parameters():
            weight.mul_(2)
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(doubled().inference(model)(x), scaled(x))
    assert not torch.equal(model(x), scaled(x))


@pytest.mark.parametrize("text", ["quantized('ternary')", "low_precision(2)", "admm('ternary')", "zerofl(0.8)"])
def test_a_model_in_use_stays_as_it_is_if_its_weights_are_frozen_later(text: str) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    used, x = parse(text).inference(model), torch.randn(5, 8)
    assert isinstance(used, Inference)
    outputs, tensors = used(x), {name: tensor.clone() for name, tensor in used.tensors().items()}
    model.requires_grad_(False)
    assert torch.equal(used(x), outputs)
    assert not torch.equal(used(x), model(x))
    assert all(torch.equal(used.tensors()[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("text", ["quantized('binary')", "quantized(2)", "admm('binary')", "low_precision(8)"])
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_the_row_of_padding_stays_zero(text: str, kind: Any) -> None:
    torch.manual_seed(0)
    embedding = kind(10, 6, padding_idx=3)
    model = nn.Sequential(embedding, nn.Linear(6, 2))
    weights = cast(Inference, parse(text).inference(model)).tensors()["0.weight"]
    assert not weights[3].any()
    assert weights[:3].any()
    assert not torch.equal(weights, embedding.weight)


def test_two_optimizers_take_turns_at_one_model() -> None:
    """As those of a generator and a discriminator, of which a step may give gradients to one alone."""

    class Turns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts, self.turn = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)]), 0

        def forward(self, x: Tensor) -> Tensor:
            return self.parts[self.turn](x)  # type: ignore[no-any-return]

    model = Turns()
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model.parts]
    training, x, y = Plan().begin(model), torch.randn(8, 4), torch.arange(8) % 2
    for number in range(6):
        model.turn = number % 2
        training.step(optimizers[model.turn], x, y, functional.cross_entropy)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 1.5])
def test_a_seed_that_torch_lacks_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed is {seed}; it is a whole number"):
        Plan().begin(nn.Linear(2, 2), seed=seed)
    Plan().begin(nn.Linear(2, 2), seed=2**64 - 1)
