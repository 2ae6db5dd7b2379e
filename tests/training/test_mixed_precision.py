"""Mixed precision: float32 weights and gradients, 16-bit products, and steps that overflow."""

import contextlib
import sys
import threading
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.training import PLUGINS, Plan, Step, mixed_precision, parse
from fedcomp.training.mixed_precision import GROWTH_STEPS, MAX_SCALE, LossScale, MixedPrecision, log_emulation
from fedcomp.training.plan import PlugIn
from fedcomp.training.step import Tensors


def model_of(weight: float) -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return model


def test_products_have_sixteen_bits_and_weights_and_gradients_thirty_two() -> None:
    """1 + 2^-9 is 1 in bfloat16; the weight keeps it, and takes a step of 2^-9 that bfloat16 would lose."""
    model = model_of(1 + 2**-9)
    optimizer = torch.optim.SGD(model.parameters(), lr=2**-9)
    seen = []

    def loss_function(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(outputs)
        return (outputs * y).sum()

    training = mixed_precision().begin(model)
    loss = training.step(optimizer, torch.ones(1, 1), torch.ones(1, 1), loss_function)
    assert seen[0].dtype == torch.bfloat16
    assert loss == 1.0
    assert model.weight.dtype == torch.float32
    assert model.weight.item() == 1.0, "1 + 2^-9 - 2^-9"
    assert training.end() == {}


def test_the_gradient_is_near_that_of_float32() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 4))
    x, y = torch.randn(64, 20), torch.randint(4, (64,))
    functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
    exact = [cast("torch.Tensor", weight.grad).clone() for weight in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    mixed_precision().begin(model).step(optimizer, x, y, functional.cross_entropy)
    for weight, gradient in zip(model.parameters(), exact, strict=True):
        assert weight.grad is not None
        assert weight.grad.dtype == torch.float32
        error = float((weight.grad - gradient).norm() / gradient.norm())
        assert 0 < error < 0.05, "bfloat16 keeps eight bits"


def test_the_loss_scale_by_hand() -> None:
    scale = LossScale(8.0)
    gradient = torch.tensor([4.0, -2.0])
    assert scale.unscale([gradient])
    assert gradient.tolist() == [0.5, -0.25]
    for bad in (float("inf"), float("nan")):
        assert not scale.unscale([torch.ones(3), torch.tensor([1.0, bad])])
    assert (scale.scale, scale.good_steps) == (2.0, 0)
    for _ in range(3):
        scale.unscale([torch.tensor(float("inf"))])
    assert scale.scale == 1.0
    assert scale.unscale([torch.tensor(float("nan"))]), "this is the training's own"
    for _ in range(GROWTH_STEPS):
        assert scale.scale == 1.0
        scale.unscale([torch.ones(1)])
    assert (scale.scale, scale.good_steps) == (2.0, 0)
    top = LossScale(MAX_SCALE, GROWTH_STEPS - 1)
    top.unscale([])
    assert top.scale == MAX_SCALE


def test_a_step_that_overflows_changes_nothing_but_the_scale() -> None:
    """The gradient of the output is 16 times the scale, and float16 ends at 65,504: from 2^16 the scale falls to 2^11.

    torch's autocast computes in float16 on the CPU too, slowly.
    """
    model = model_of(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1 / 64, momentum=0.9)
    steps = MixedPrecision(torch.float16, model, {})
    plan = Plan((PlugIn("half", (), lambda model, kept, generator: steps),))
    training, weights, losses = plan.begin(model), [], []
    for _ in range(6):
        loss = training.step(optimizer, torch.ones(1, 1), torch.ones(1, 1), lambda out, y: 16 * (out.float() * y).sum())
        losses.append(float(loss))
        weights.append(model.weight.item())
    assert losses == [16.0] * 6
    assert weights == [1.0] * 5 + [0.75], "the first five steps overflow: 16 x 2^16 to 16 x 2^12"
    assert optimizer.state[model.weight]["momentum_buffer"].item() == 16.0, "nor do they reach the momentum"
    state = training.end()["half()"]
    assert (float(state["scale"]), int(state["good_steps"])) == (2.0**11, 1)
    again = MixedPrecision(torch.float16, model, state)
    assert float(again.loss(torch.tensor(1.0))) == 2.0**11, "the next round goes on with this scale"


def half(model: nn.Module, kept: Tensors, _generator: torch.Generator) -> Step:
    """Begin with float16, which torch's autocast computes on the CPU too, slowly."""
    return MixedPrecision(torch.float16, model, kept)


@pytest.mark.parametrize(
    "text",
    [
        "admm(interval=1)",
        "zerofl(upload='weights')",
        "quantized('binary', scale='none')",
        "low_precision()",
        "rigl(0.3)",
        "activation_compression(interval=1)",
    ],
)
def test_a_step_that_overflows_changes_nothing_of_other_plug_ins(text: str) -> None:
    """A round of nothing but such a step ends with the model and the state that it began with."""
    torch.manual_seed(0)
    plan = parse(text)
    model = plan.prepare(
        nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 3, bias=False)), seed=0
    )
    with torch.no_grad():
        model.get_parameter("3.weight").mul_(20)  # beyond 1, and as a lossy downlink leaves RigL's weights
    x, y = torch.randn(64, 64), torch.randint(3, (64,))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    kept = plan.begin(model).end()
    training = (plan + Plan((PlugIn("half", (), half, rank=1),))).begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.step(optimizer, x, y, lambda outputs, y: functional.cross_entropy(outputs.float(), y) * 1e6)
    assert all(tensor.count_nonzero() == 0 for tensor in training.report().values())
    state = dict(training.end())
    assert float(state.pop("half()")["scale"]) == 2.0**15, "the step has overflowed"
    assert {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])} == set()
    assert state.keys() == kept.keys()
    assert all(torch.equal(tensor, kept[key][name]) for key in state for name, tensor in state[key].items())


def test_small_gradients_survive_in_float16_because_the_loss_is_scaled() -> None:
    """2^-26 is below the smallest number of float16, 2^-24."""
    model = model_of(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    plan = Plan((PlugIn("half", (), half),))
    plan.begin(model).step(optimizer, torch.ones(1, 1), torch.ones(1, 1), lambda out, y: out.float().sum() * 2**-26)
    assert model.weight.grad is not None
    assert model.weight.grad.item() == 2**-26


def test_the_loss_comes_back_in_32_bits_and_is_scaled_there() -> None:
    """Of a loss function that computes in 16 bits, too."""
    model = model_of(1.0)
    training = mixed_precision().begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    loss = training.step(optimizer, torch.ones(1, 1), torch.ones(1, 1), lambda out, y: out.sum())
    assert loss.dtype == torch.float32
    step = MixedPrecision(torch.float16, model, {})
    assert float(step.loss(torch.tensor(2.0, dtype=torch.float16))) == 2.0**17, "beyond float16"


@pytest.mark.parametrize(("has", "lines"), [(True, 0), (False, 1)])
def test_a_processor_that_emulates_bfloat16_is_named_once(
    has: bool, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    capabilities = {"avx2": True, "amx_bf16": False, "avx512_bf16": has}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    log_emulation.cache_clear()
    for _ in range(2):
        mixed_precision().begin(model_of(1.0))
    log_emulation.cache_clear()
    assert ["this cpu has no instructions for bfloat16" in line for line in caplog.messages] == [True] * lines


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_onednn_is_left_out_for_the_forward_pass_alone_and_only_where_it_has_no_bfloat16(
    has_bfloat16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's LSTM on the CPU calls oneDNN, which ends with an error on processors for which it has no bfloat16."""
    module = sys.modules[MixedPrecision.__module__]  # the plug-in of the same name hides it
    monkeypatch.setattr(module, "_onednn_has_bfloat16", lambda: has_bfloat16)
    seen = list[bool]()

    class Model(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(bool(torch.backends.mkldnn.enabled))
            if len(seen) == 2:
                raise KeyError
            return super().forward(x)

    model = Model(3, 2)
    step = MixedPrecision(torch.bfloat16, model, {})
    for error in (contextlib.nullcontext(), pytest.raises(KeyError)):
        with error, step.forward():
            model(torch.ones(1, 3))
        assert torch.backends.mkldnn.enabled
    assert seen == [has_bfloat16] * 2


def test_onednn_returns_when_the_last_of_two_threads_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one enters before the first one leaves."""
    monkeypatch.setattr(sys.modules[MixedPrecision.__module__], "_onednn_has_bfloat16", lambda: False)
    first, second = (MixedPrecision(torch.bfloat16, nn.Linear(3, 2), {}) for _ in range(2))
    has_entered, may_leave = threading.Event(), threading.Event()

    def enter() -> None:
        with second.forward():
            has_entered.set()
            assert may_leave.wait(60)

    thread = threading.Thread(target=enter)
    with first.forward():
        thread.start()
        assert has_entered.wait(60)
    assert not torch.backends.mkldnn.enabled
    may_leave.set()
    thread.join()
    assert torch.backends.mkldnn.enabled


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mixed_precision\('float16'\) needs a GPU"):
        parse("mixed_precision('float16')").begin(model_of(1.0))
    with pytest.raises(ValueError, match="float32 weights; the model has torch.float64"):
        mixed_precision().begin(model_of(1.0).double())
    assert mixed_precision().begin(nn.Identity()).end() == {}


def test_of_all_plug_ins_it_sees_the_loss_last() -> None:
    ranks = {name: plug_in().plugins[0].rank for name, plug_in in PLUGINS.items()}
    assert all(ranks["mixed_precision"] > rank for name, rank in ranks.items() if name != "mixed_precision")


def test_an_unscaled_gradient_is_what_other_plug_ins_see() -> None:
    """FedProx adds its penalty before the scale, wherever it is named."""
    plain, mixed = model_of(2.0), model_of(2.0)
    for model, text in ((plain, "fedprox(0.5)"), (mixed, "mixed_precision() + fedprox(0.5)")):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
        training = parse(text).begin(model)
        for _ in range(2):
            training.step(optimizer, torch.ones(1, 1), torch.ones(1, 1), functional.mse_loss)
    assert mixed.weight.item() == plain.weight.item() == 1.5 - 0.25 * (1.0 - 0.25)


class Averaging(nn.Linear):
    """Puts another tensor in the place of its buffer in each call."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__(1, 1, bias=False)
        self.register_buffer("mean", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + x.mean().detach() * 1e5
        return super().forward(x)


def test_a_step_that_overflows_leaves_a_buffer_that_a_module_replaces() -> None:
    model = Averaging()
    plan = Plan((PlugIn("half", (), half),))
    training, optimizer = plan.begin(model), torch.optim.SGD(model.parameters(), lr=0.0)
    for _ in range(3):  # the scale is 2^16: the gradient overflows
        training.step(optimizer, torch.ones(1, 1), torch.ones(1, 1), lambda out, y: 16 * (out.float() * y).sum())
    assert model.mean.item() == 0
    assert dict(model.named_buffers())["mean"] is model.mean
