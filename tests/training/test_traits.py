"""Every plug-in on models of every kind: it has its effect, or refuses the model in one sentence before the first step."""

from collections.abc import Callable, Mapping
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.training import PLUGINS, Inference, LocalRound, LossFunction, Plan, Step, parse
from fedcomp.training.admm import TABLES, project
from fedcomp.training.layer_inputs import matrix_layers
from fedcomp.training.mixed_precision import MixedPrecision
from fedcomp.training.plan import PlugIn
from fedcomp.training.quantized import quantize_weight
from fedcomp.training.saved_inputs import trained_layers
from fedcomp.training.step import Tensors
from fedcomp.wire import MASK
from tests.support.training_traits import COMPILED, EXPECTED, FLOAT16, GRAPHS, REFUSED, TRAITS, Case

RATE, STEPS = 0.05, 2


def half(model: nn.Module, kept: Tensors, _generator: torch.Generator) -> Step:
    """Begin with float16, which torch's autocast computes on the CPU too, slowly."""
    return MixedPrecision(torch.float16, model, kept)


def plan_of(text: str) -> Plan:
    return Plan((PlugIn("half", (), half, rank=1),)) if text == FLOAT16 else parse(text)


def train(plan: Plan, case: Case, loss: LossFunction = functional.cross_entropy, steps: int = STEPS) -> LocalRound:
    """Train the model in place, and return the round."""
    training = plan.begin(case.model, seed=3)
    optimizer = torch.optim.SGD([weight for weight in case.model.parameters() if weight.requires_grad], lr=RATE)
    x, y = case.batch()
    for _ in range(steps):
        for part in range(case.parts):
            training.step(
                optimizer,
                x[part :: case.parts],
                y[part :: case.parts],
                loss,
                share=1 / case.parts,
                last=part == case.parts - 1,
            )
    return training


def train_by_hand(case: Case, penalty: Callable[[Mapping[str, Tensor]], Tensor | float]) -> None:
    """Train the model in a plain loop, on whole batches."""
    weights = {name: weight for name, weight in case.model.named_parameters() if weight.requires_grad}
    optimizer = torch.optim.SGD(weights.values(), lr=RATE)
    x, y = case.batch()
    for _ in range(STEPS):
        optimizer.zero_grad()
        (functional.cross_entropy(case.model(x), y) + penalty(weights)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def matrices_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the trained matrices: of layers, not of normalization."""
    norms = {id(each) for module in model.modules() if isinstance(module, nn.LayerNorm) for each in module.parameters()}
    named = {name: each for name, each in model.named_parameters() if each.requires_grad and each.dim() > 1}
    return {name: each.detach().clone() for name, each in named.items() if id(each) not in norms}


def used_by(plan: Plan, model: nn.Module) -> dict[str, Tensor]:
    """Return the trained matrices with which the plan calls the model."""
    used = plan.inference(model)
    assert isinstance(used, Inference)
    return {name: used.tensors()[name] for name in matrices_of(model)}


def close(found: Mapping[str, Tensor], right: Mapping[str, Tensor], tolerance: float = 1e-5) -> bool:
    return all(torch.allclose(found[name], each, rtol=tolerance, atol=tolerance) for name, each in right.items())


def gradients_of(_training: LocalRound, model: nn.Module) -> dict[str, Tensor]:
    """Return the gradients of the last step of a round."""
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return {name: each.to_dense().clone() for name, each in found.items()}


def check_fedprox(make: Callable[[], Case]) -> None:
    found, right, other = make(), make(), make()
    start = weights_of(right.model)
    train(parse("fedprox(1.0)"), found)
    train_by_hand(right, lambda ws: torch.stack([(w - start[n]).square().sum() / 2 for n, w in ws.items()]).sum())
    train_by_hand(other, lambda _: 0.0)
    tolerance = 1e-2 if found.dtype == torch.bfloat16 else 1e-5
    assert close(weights_of(found.model), weights_of(right.model), tolerance)
    if found.dtype != torch.bfloat16:
        assert not close(weights_of(found.model), weights_of(other.model), 1e-7)


def check_batch_augmentation(make: Callable[[], Case]) -> None:
    case, seen = make(), list[int]()

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        seen.append(len(y))
        first, second = outputs.view(-1, 2, outputs.shape[1]).unbind(1)
        assert not torch.equal(first, second), "the variants of an image are not alike"
        assert torch.equal(y[::2], y[1::2])
        return functional.cross_entropy(outputs, y)

    train(parse("batch_augmentation(2)"), case, loss, steps=1)
    assert sum(seen) == 2 * len(case.batch()[1])


def check_activation_compression(make: Callable[[], Case]) -> None:
    """The gradients of all layers after the first have an error, of the size that it should have."""
    found, right = make(), make()
    exact = gradients_of(train(Plan(), right, steps=1), right.model)
    rough = gradients_of(train(parse("activation_compression(0.1)"), found, steps=1), found.model)
    _, *layers = trained_layers(found.model).values()
    named = {id(weight): name for name, weight in found.model.named_parameters()}
    for name in {named[id(layer.weight)] for layer in layers}:
        error = float((rough[name] - exact[name]).double().square().mean().sqrt() / exact[name].double().abs().mean())
        assert 0.002 < error < 0.4, name


def check_mixed_precision(text: str, make: Callable[[], Case]) -> None:
    case, right = make(), make()
    dtype = torch.float16 if text == FLOAT16 else torch.bfloat16

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        assert outputs.dtype == dtype
        return functional.cross_entropy(outputs, y)

    # The CPU's library for LSTMs has none in float16; torch has.
    with torch.backends.mkldnn.flags(enabled=dtype != torch.float16):
        found = gradients_of(train(plan_of(text), case, loss, steps=1), case.model)
    exact = gradients_of(train(Plan(), right, steps=1), right.model)
    for name in matrices_of(right.model):
        each = exact[name]
        assert found[name].dtype == torch.float32
        error = float((found[name] - each).norm() / each.norm())
        assert 0 < error < (0.06 if dtype == torch.float16 else 0.2), name


def check_admm(make: Callable[[], Case]) -> None:
    found, right, other = make(), make(), make()
    targets = {}
    for name, weight in matrices_of(right.model).items():
        alpha, entries = project(weight.reshape(1, -1), TABLES["ternary"])
        targets[name] = (alpha * entries).view_as(weight)
    plan = parse("admm(rho=1.0)")
    train(plan, found)
    train_by_hand(right, lambda ws: torch.stack([(ws[n] - t).square().sum() / 2 for n, t in targets.items()]).sum())
    train_by_hand(other, lambda _: 0.0)
    assert close(weights_of(found.model), weights_of(right.model))
    assert not close(weights_of(found.model), weights_of(other.model), 1e-3)
    assert all(len(set(each.flatten().tolist())) <= 3 for each in used_by(plan, found.model).values())


def check_quantized(text: str, make: Callable[[], Case]) -> None:
    """The first loss is that of the model with ternary weights, unless inputs or states are rounded too."""
    case, right, plan = make(), make(), parse(text)
    with torch.no_grad():
        for name in matrices_of(right.model):
            weight = right.model.get_parameter(name)
            weight.copy_(quantize_weight(weight, "ternary", scaled=True))
    used = used_by(plan, case.model)
    assert used
    assert all(torch.equal(each, right.model.get_parameter(name)) for name, each in used.items())
    inputs, states = layer_inputs(case), recurrent_states(case)
    x, y = case.batch()
    loss = plan.begin(case.model).step(torch.optim.SGD(case.model.parameters(), lr=0.0), x, y, functional.cross_entropy)
    others = float(functional.cross_entropy(right.model(x), y))
    if text == "quantized('ternary')":
        assert float(loss) == pytest.approx(others, rel=1e-5)
    else:
        assert float(loss) != pytest.approx(others, rel=1e-5)
    if "activations" in text:
        _, *later = inputs
        assert later
        assert all(len(set(each.flatten().tolist())) <= 4 for each in later)
    if "hidden" in text:
        assert states
        assert all(len(set(each.flatten().tolist())) <= 4 for each in states)


def layer_inputs(case: Case) -> list[Tensor]:
    """Return a list to which each call of a layer with a weight matrix adds its inputs, in the order of the calls."""
    seen: list[Tensor] = []

    def see(_layer: nn.Module, inputs: tuple[object, ...], _outputs: object) -> None:
        first = inputs[0]
        seen.append(first.detach() if isinstance(first, Tensor) else cast("Tensor", first[0]).detach())  # type: ignore[index]

    for layer in matrix_layers(case.model):
        layer.register_forward_hook(see)
    return seen


def recurrent_states(case: Case) -> list[Tensor]:
    seen: list[Tensor] = []

    def see(_layer: nn.Module, _inputs: object, outputs: tuple[Tensor, object]) -> None:
        seen.append(outputs[0].detach() if isinstance(outputs[0], Tensor) else cast("Tensor", outputs[0][0]).detach())

    for layer in case.model.modules():
        if isinstance(layer, nn.RNNBase):
            layer.register_forward_hook(see)
    return seen


def check_low_precision(make: Callable[[], Case]) -> None:
    """Weights and the vectors or samples that layers get have four values at most."""
    case, plan = make(), parse("low_precision(2)")
    used = used_by(plan, case.model)
    assert used
    assert all(len(set(each.flatten().tolist())) <= 4 for each in used.values())
    inputs = layer_inputs(case)
    train(plan, case, steps=1)
    assert len(inputs) >= 2
    for each in inputs:
        vectors = each.flatten(1) if each.dim() == 4 else each.flatten(0, -2)
        assert all(len(set(vector.tolist())) <= 4 for vector in vectors)


def check_zerofl(make: Callable[[], Case]) -> None:
    """Layers after the first have a fifth of their weights, and gradients of fewer inputs than with these weights alone."""
    case, dense, plan = make(), make(), parse("zerofl(0.8, upload='full')")
    used = used_by(plan, case.model)
    with torch.no_grad():
        for name, weight in used.items():
            dense.model.get_parameter(name).copy_(weight)
    first, *layers = trained_layers(case.model).values()
    named = {id(weight): name for name, weight in case.model.named_parameters()}
    sparse = {named[id(layer.weight)] for layer in layers if layer.weight is not first.weight}
    assert sparse
    found = gradients_of(train(plan, case, steps=1), case.model)
    exact = gradients_of(train(Plan(), dense, steps=1), dense.model)
    for name, weight in used.items():
        share = float((weight != 0).float().mean())
        assert share == pytest.approx(0.2, abs=0.01) if name in sparse else share > 0.9, name
        assert torch.allclose(found[name], exact[name], atol=1e-5) == (name not in sparse), name


def check_rigl(make: Callable[[], Case]) -> None:
    """A share of the weights is trained, the others are zero, and their gradients are reported."""
    case, plan = make(), parse("rigl(0.3)")
    plan.prepare(case.model, 0)
    before = weights_of(case.model)
    training = train(plan, case)
    masked = [name for name in before if name + MASK in dict(case.model.named_buffers())]
    assert masked
    matrices, report = matrices_of(case.model), training.report()
    total = sum(weight.numel() for weight in matrices.values())
    assert sum(int((weight != 0).sum()) for weight in matrices.values()) == pytest.approx(0.3 * total, rel=0.02)
    for name in masked:
        assert torch.equal(matrices[name] != 0, before[name] != 0), name
        assert not torch.equal(matrices[name], before[name]), name
        assert float(report[name].abs().max()) > 0, name
        assert not bool((report[name][before[name] != 0] != 0).any()), name
    assert all(torch.equal(each, matrices[name]) for name, each in used_by(plan, case.model).items())


def check_compiled(text: str, make: Callable[[], Case]) -> None:
    """The weights after some steps are those of the same model without torch.compile, and not those without the plug-in."""
    torch.compiler.reset()
    GRAPHS.clear()
    plan, case, other = plan_of(text), make(), make().eager
    assert case.eager is not None
    assert other is not None
    eager = Case(case.eager)
    for each in (case, eager):
        plan.prepare(each.model, 0)
        train(plan, each)
    assert GRAPHS, "the model is compiled in fact"
    train(Plan(), Case(other))
    found, right, plain = (list(weights_of(model).values()) for model in (case.model, eager.model, other))
    tolerance = 1e-5 if "precision" not in text else 2e-3
    assert all(torch.allclose(one, two, atol=tolerance) for one, two in zip(found, right, strict=True))
    assert not all(torch.equal(one, two) for one, two in zip(found, plain, strict=True))


def check(text: str, make: Callable[[], Case]) -> None:
    """Assert that the plug-in has its effect."""
    name = text.partition("(")[0]
    checks: dict[str, Callable[[Callable[[], Case]], None]] = {
        "fedprox": check_fedprox,
        "batch_augmentation": check_batch_augmentation,
        "activation_compression": check_activation_compression,
        "mixed_precision": lambda make: check_mixed_precision(text, make),
        "admm": check_admm,
        "quantized": lambda make: check_quantized(text, make),
        "low_precision": check_low_precision,
        "zerofl": check_zerofl,
        "rigl": check_rigl,
    }
    checks[name](make)


def begin(plan: Plan, case: Case) -> None:
    plan.begin(plan.prepare(case.model, 0)).end()


def marks_of(text: str, trait: str) -> list[pytest.MarkDecorator]:
    """Return a mark for pairs that take a minute of compiling together; the others have a compiled model too."""
    slow = "low_precision" in text or trait != "a compiled part"
    return [pytest.mark.system] if trait in COMPILED and EXPECTED[text, trait] == "works" and slow else []


@pytest.mark.sample(90)
@pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)  # of the compiler
@pytest.mark.parametrize(("text", "trait"), [pytest.param(*pair, marks=marks_of(*pair)) for pair in EXPECTED])
def test_a_plug_in_has_its_effect_or_refuses_the_model_in_one_sentence(text: str, trait: str) -> None:
    make = TRAITS[trait]
    if EXPECTED[text, trait] == "refused":
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            begin(plan_of(text), make())
    elif trait in COMPILED:
        check_compiled(text, make)
    else:
        check(text, make)


def test_the_table_has_every_plug_in() -> None:
    assert {text.partition("(")[0] for text in REFUSED} == set(PLUGINS)
