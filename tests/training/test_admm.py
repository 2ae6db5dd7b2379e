"""ADMM: projections and updates by hand, laws of the projection, and what a round keeps and a trained model weighs."""

import re
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.tasks import build_model
from fedcomp.training import Inference, Plan, State, admm, pack, parse, unpack
from fedcomp.training.admm import TABLES, project


def linear(*rows: list[float]) -> nn.Linear:
    """Return a layer without biases with these weights."""
    model = nn.Linear(len(rows[0]), len(rows), bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(rows))
    return model


def train(plan: Plan, model: nn.Module, x: Tensor, state: State, *, steps: int, rate: float) -> State:
    """Train the first output to be the first input of the samples `x` (N, inputs); return the state."""
    training = plan.begin(model, state)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        training.step(optimizer, x, x[:, :1], lambda output, y: functional.mse_loss(output[:, :1], y))
    return training.end()


def rounded(model: nn.Module, table: str, *, rows: bool = False) -> dict[str, Tensor]:
    """Return the tensors that the model is used with."""
    used = parse(f"admm({table!r}, rows={rows})").inference(model)
    assert isinstance(used, Inference)
    return used.tensors()


@pytest.mark.parametrize(
    ("table", "vector", "alpha", "entries"),
    [
        # mean |v| = 2.5: signs alone
        ("binary", [4.0, -1.0, 2.0, -3.0], 2.5, [1, -1, 1, -1]),
        ("binary", [0.0, -1.0, 2.0], 1.0, [1, -1, 1]),
        # alpha 1.25: all of |v| > 0.625 is kept, alpha = 2.5; > 1.25 is, alpha = (4 + 2 + 3) / 3 = 3; > 1.5 is, the same
        ("ternary", [4.0, -1.0, 2.0, -3.0], 3.0, [1, 0, 1, -1]),
        # alpha 1.5: |v| > 0.75, alpha = 3; > 1.5, alpha = (10 + 2) / 2 = 6; > 3, alpha = 10; > 5, the same
        ("ternary", [10.0, -1.0, 1.0, 2.0, 1.0], 10.0, [1, 0, 0, 0, 0]),
        # alpha 1.875: v / alpha = 4.27, -2.13, 0.53, -1.07: Q = 4, -2, 1, -1, alpha = (32 + 8 + 1 + 2) / 22; the same
        ("shift", [8.0, -4.0, 1.0, -2.0], 43 / 22, [4, -2, 1, -1]),
        # alpha 1.5: Q = 4, -1, 1, 1, alpha = 60 / 19; v / alpha = 4.43, -0.32, 0.32, 0.63: Q = 4, 0, 0, 1, alpha = 58 / 17
        ("shift", [14.0, -1.0, 1.0, 2.0, 0.0, 0.0], 58 / 17, [4, 0, 0, 1, 0, 0]),
        ("ternary", [0.0, 0.0], 0.0, [0, 0]),
        ("binary", [0.0, 0.0], 0.0, [1, 1]),
    ],
)
def test_a_projection_is_the_one_computed_by_hand(
    table: str, vector: list[float], alpha: float, entries: list[float]
) -> None:
    found = project(torch.tensor([vector]), TABLES[table])
    assert found[0].tolist() == [[pytest.approx(alpha)]]
    assert found[1].tolist() == [entries]


def test_a_tie_takes_the_smaller_magnitude() -> None:
    """Alpha is 1, then 2: 1 is halfway, and becomes 0; of 3, 1, 2, 2 then alpha is 7/3."""
    alpha, entries = project(torch.tensor([[3.0, 1.0, -2.0, 2.0], [-3.0, -1.0, 2.0, 2.0]]), TABLES["ternary"])
    assert entries.tolist() == [[1, 0, -1, 1], [-1, 0, 1, 1]]
    assert alpha.flatten().tolist() == pytest.approx([7 / 3, 7 / 3])


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("seed", range(5))
def test_no_alternation_increases_the_distance(table: str, seed: int) -> None:
    vectors = torch.randn(4, 300, generator=torch.Generator().manual_seed(seed)) ** 3
    distances = []
    for alternations in (*range(1, 20), 100):
        alpha, entries = project(vectors, TABLES[table], alternations)
        distances.append((vectors - alpha * entries).double().norm(dim=1))
    for earlier, later in pairwise(distances):
        assert (later <= earlier * (1 + 1e-6)).all()
    assert table == "binary" or (distances[-1] < 0.999 * distances[0]).all()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("seed", range(5))
def test_in_the_end_each_entry_is_nearest_and_alpha_the_best(table: str, seed: int) -> None:
    vectors = torch.randn(6, 200, generator=torch.Generator().manual_seed(seed)).double()
    alpha, entries = project(vectors, TABLES[table])
    values = torch.tensor(sorted({sign * magnitude for magnitude in TABLES[table] for sign in (-1, 1)}))
    every = (vectors[..., None] - alpha[..., None] * values).abs()
    assert torch.allclose((vectors - alpha * entries).abs(), every.min(-1).values)
    for factor in (0.99, 1.01):
        other = (vectors - factor * alpha * entries).norm(dim=1)
        assert (other > (vectors - alpha * entries).norm(dim=1)).all()


@pytest.mark.parametrize("table", TABLES)
def test_a_projection_scales_with_its_vector_and_has_its_symmetry(table: str) -> None:
    vectors = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    alpha, entries = project(vectors, TABLES[table])
    for factor in (-1.0, 0.25, -8.0):
        scaled = project(factor * vectors, TABLES[table])
        assert torch.equal(scaled[0], abs(factor) * alpha)
        assert torch.equal(scaled[1], (1 if factor > 0 else -1) * entries)


def test_the_steps_and_updates_are_those_computed_by_hand() -> None:
    """W = (4, -1, 2, -3), loss = sum W, rate 1, rho 1/2, a binary table, and an update after each second step.

    The round begins with alpha Q = 2.5 (1, -1, 1, -1).
    Step 1 has the gradient 1 + (W - alpha Q) / 2 = (1.75, 1.75, 0.75, 0.75): W = (2.25, -2.75, 1.25, -3.75).
    Step 2: W - alpha Q = (-0.25, -0.25, -1.25, -1.25), gradient (0.875, 0.875, 0.375, 0.375):
    W = (1.375, -3.625, 0.875, -4.125).  Update: alpha = (1.375 + 3.625 + 0.875 + 4.125) / 4 = 2.5,
    lambda = W - alpha Q = (-1.125, -1.125, -1.625, -1.625).
    Step 3: W - alpha Q + lambda = 2 lambda, gradient 1 + lambda = (-0.125, -0.125, -0.625, -0.625):
    W = (1.5, -3.5, 1.5, -3.5).  At the end V = W + lambda = (0.375, -4.625, -0.125, -5.125): Q = (1, -1, -1, -1),
    alpha = 10.25 / 4 = 2.5625, lambda = V - alpha Q = (-2.1875, -2.0625, 2.4375, -2.5625).
    """
    model = linear([4.0, -1.0, 2.0, -3.0])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    training = admm("binary", rho=0.5, interval=2).begin(model)
    losses, weights = [], []
    for _ in range(3):
        x, y = torch.ones(1, 4), torch.zeros(1)
        losses.append(training.step(optimizer, x, y, lambda output, _: output.sum()).item())
        weights.append(model.weight.tolist()[0])
    assert losses == [2, -3, -5.5], "the loss that is reported is that of W, without the penalty"
    assert weights == [[2.25, -2.75, 1.25, -3.75], [1.375, -3.625, 0.875, -4.125], [1.5, -3.5, 1.5, -3.5]]
    state = training.end()
    assert {text: list(tensors) for text, tensors in state.items()} == {
        "admm(table='binary', rho=0.5, interval=2)": ["weight"]
    }
    [tensors] = state.values()
    assert tensors["weight"].tolist() == [[-2.1875, -2.0625, 2.4375, -2.5625]]


def test_the_next_round_begins_with_the_weights_of_the_server_and_the_dual_of_the_node() -> None:
    """As above: the server's W = (1.5, -3.5, 1.5, -3.5), and lambda = (-2.1875, -2.0625, 2.4375, -2.5625).

    V = W + lambda = (-0.6875, -5.5625, 3.9375, -6.0625), alpha Q = 4.0625 (-1, -1, 1, -1), and
    W - alpha Q + lambda = (3.375, -1.5, -0.125, -2): the gradient is 1 + half of it, (2.6875, 0.25, 0.9375, 0).
    """
    plan = admm("binary", rho=0.5, interval=2)
    dual = torch.tensor([[-2.1875, -2.0625, 2.4375, -2.5625]])
    state = {str(plan): {"weight": dual.clone()}}
    model = linear([1.5, -3.5, 1.5, -3.5])
    training = plan.begin(model, state)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    training.step(optimizer, torch.ones(1, 4), torch.zeros(1), lambda output, _: output.sum())
    assert model.weight.tolist() == [[-1.1875, -3.75, 0.5625, -3.5]]
    assert not torch.equal(training.end()[str(plan)]["weight"], dual)
    assert torch.equal(state[str(plan)]["weight"], dual), "what the caller keeps does not change"


def test_an_end_right_after_an_update_makes_no_other() -> None:
    """Of fixed weights (1, 3): alpha 2, lambda = (-1, 1); a second update has V = (0, 4), and the same alpha: (-2, 2)."""
    plan = admm("binary", interval=2)
    for steps, dual in ((0, [[0.0, 0.0]]), (1, [[-1.0, 1.0]]), (2, [[-1.0, 1.0]]), (3, [[-2.0, 2.0]])):
        state = train(plan, linear([1.0, 3.0]), torch.ones(1, 2), {}, steps=steps, rate=0.0)
        assert state[str(plan)]["weight"].tolist() == dual


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("table", TABLES)
def test_two_rounds_of_one_node_have_the_dual_of_one_round_as_long(table: str, *, rows: bool) -> None:
    """Exactly where weights stay; where they move, the second round begins with an alpha and Q for the new lambda."""
    plan = parse(f"admm({table!r}, interval=3, rows={rows})")
    generator = torch.Generator().manual_seed(5)
    weights, x = torch.randn(4, 6, generator=generator), torch.randn(8, 6, generator=generator)
    one, two = linear(*weights.tolist()), linear(*weights.tolist())
    state: State = {}
    for _ in range(2):
        state = train(plan, two, x, state, steps=6, rate=0.0)
    [dual] = state[str(plan)].values()
    assert torch.equal(dual, train(plan, one, x, {}, steps=12, rate=0.0)[str(plan)]["weight"])
    assert not torch.equal(dual, train(plan, one, x, {}, steps=6, rate=0.0)[str(plan)]["weight"])


def test_a_node_keeps_a_dual_for_each_weight_matrix() -> None:
    model = build_model("char_lstm", (1, 1, 8), 5, seed=0)
    plan = admm("binary", rho=0.1, interval=1)
    training = plan.begin(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    codes = torch.randint(5, (4, 1, 1, 8), generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        training.step(optimizer, codes.float(), codes[:, 0, 0, 0], functional.cross_entropy)
    [kept] = training.end().values()
    assert set(kept) == {"embedding.weight", "lstm.weight_ih_l0", "lstm.weight_hh_l0", "head.weight"}
    for name, dual in kept.items():
        assert dual.numpy().dtype == "float32"
        assert dual.shape == model.get_parameter(name).shape
        assert dual.abs().max() > 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("rho", [1, 4])
def test_trained_weights_are_worth_more_than_rounded_ones(rho: float) -> None:
    """Least squares with correlated inputs, where the nearest ternary weights are not the best ones."""
    losses = {0: 0.0, rho: 0.0}
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(400, 12, generator=generator) @ (torch.eye(12) + torch.randn(12, 12, generator=generator) / 2)
        y = x @ torch.randn(12, 1, generator=generator)
        for each in losses:
            plan, model = admm("ternary", rho=each, interval=5), linear([0.0] * 12)
            training = plan.begin(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
            for _ in range(400):
                training.step(optimizer, x, y, functional.mse_loss)
            losses[each] += functional.mse_loss(plan.inference(model)(x), y).item()
    assert losses[rho] < 0.8 * losses[0]


def test_without_a_penalty_training_is_ordinary_and_its_result_rounded() -> None:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(3))
    plain, other = linear([0.5, -2.0, 1.0, 0.1]), linear([0.5, -2.0, 1.0, 0.1])
    plan = admm("ternary", rho=0, interval=1)
    assert train(plan, plain, x, {}, steps=5, rate=0.1) == {}
    train(Plan(), other, x, {}, steps=5, rate=0.1)
    assert torch.equal(plain.weight, other.weight)
    alpha, entries = project(plain.weight.detach(), TABLES["ternary"])
    assert torch.equal(plan.inference(plain)(x), x @ (alpha * entries).T)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize(("table", "values", "bits"), [("binary", 2, 1), ("ternary", 3, 2), ("shift", 7, 3)])
def test_a_model_is_used_with_few_values_and_small(table: str, values: int, bits: int, *, rows: bool) -> None:
    model = build_model("char_lstm", (1, 1, 8), 59, seed=0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors = rounded(model, table, rows=rows)
    assert list(tensors) == list(before)
    counts = set()
    for name, tensor in tensors.items():
        if tensor.dim() == 1:
            assert torch.equal(tensor, before[name]), "biases stay"
            continue
        found = [len(set(row.flatten().tolist())) for row in (tensor if rows else [tensor])]
        assert max(found) <= values
        counts.add(max(found))
        assert not rows or len(set(tensor.flatten().tolist())) > values
    assert counts == {values}
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items()), "only the use differs"
    packed = pack(tensors)
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in unpack(packed).items())
    codes = sum(packed[f"{name}/codes"].nbytes for name, tensor in tensors.items() if tensor.dim() > 1)
    entries = sum(tensor.numel() for tensor in tensors.values() if tensor.dim() > 1)
    assert codes * 8 == entries * bits


def test_rows_have_an_alpha_each() -> None:
    """By hand: mean magnitudes 2 and 20, and 11 of both together."""
    model = linear([1.0, -3.0], [-10.0, 30.0])
    assert rounded(model, "binary")["weight"].tolist() == [[11, -11], [-11, 11]]
    assert rounded(model, "binary", rows=True)["weight"].tolist() == [[2, -2], [-20, 20]]


def test_training_calls_the_model_with_the_weights_themselves_and_frozen_ones_are_not_rounded() -> None:
    model = nn.Sequential(linear([1.0, 3.0], [2.0, 0.5]), linear([1.0, 3.0]))
    model[0].requires_grad_(requires_grad=False)
    plan, x = admm("binary"), torch.tensor([[1.0, 2.0]])
    assert plan.begin(model).outputs(x).item() == 7 + 3 * 3
    assert plan.inference(model)(x).item() == 2 * 7 + 2 * 3


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("admm('quaternary')", "table is 'quaternary'; it is one of 'binary', 'ternary', 'shift'"),
        ("admm(rho=-0.1)", "rho is -0.1;"),
        ("admm(rho=1e7)", "rho is 10000000.0;"),
        ("admm(interval=0)", "interval is 0;"),
        ("admm(interval=0.5)", "interval is 0.5;"),
        ("admm(rows=1)", "rows is 1;"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(text: str, found: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(found)}[^\n]*$"):
        parse(text)


def test_a_model_without_weight_matrices_or_with_others_than_float32_is_refused() -> None:
    for model, found in ((nn.LayerNorm(3), "two dimensions"), (linear([1.0]).double(), "float64")):
        for use in (admm().begin, admm().inference):
            with pytest.raises(ValueError, match=rf"^admm\(\) [^\n]*{found}[^\n]*$"):
                use(model)
