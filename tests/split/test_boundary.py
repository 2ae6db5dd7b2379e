"""The cut in one process: gradients by hand, and training that equals that of the whole model if nothing is compressed."""

import copy

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

import fedcomp
from fedcomp.split import Boundary, SplitSettings, cut
from fedcomp.tasks import build_model
from tests.split.pair import Pair, model, samples

DENSE = SplitSettings(forward=fedcomp.dense(), backward=fedcomp.dense(), batch_size=8, steps=7)


def batch(epoch: int, step: int) -> NDArray[np.int64]:
    """Return the samples of a node's batch."""
    return np.random.default_rng([0, 0, epoch]).permutation(20)[8 * step : 8 * step + 8]


def test_one_step_by_hand() -> None:
    """a = w x = 2 (1, 2) arrives in full, and the gradient (0.5, 1) of 0.5 a_1 + a_2; so dL/dw = 0.5 * 1 + 1 * 2.

    At w = 3, a = (3, 6); of the change (1, 2) two levels from 1 to 2 leave all.
    """
    boundary = Boundary(SplitSettings(forward=fedcomp.cgx(bits=1), backward=fedcomp.dense()))
    w, x, upper = torch.tensor(2.0, requires_grad=True), torch.tensor([[1.0, 2.0]]), torch.tensor([0.5, 1.0])
    for value, gradient in ((2.0, 2.5), (3.0, 2.5)):
        w.data.fill_(value)
        w.grad = None
        received = boundary(w * x, ids=[4])
        torch.testing.assert_close(received, value * x)
        (received * upper).sum().backward()
        assert w.grad is not None
        assert w.grad.item() == pytest.approx(gradient)
    assert boundary.sender.rows([4]).tobytes() == boundary.receiver.rows([4]).tobytes()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_activations_and_gradients_keep_their_dtype(dtype: torch.dtype) -> None:
    lower, upper = nn.Linear(8, 4).to(dtype), nn.Linear(4, 2).to(dtype)
    x = torch.randn(3, 8, dtype=dtype, generator=torch.Generator().manual_seed(0))
    upper(Boundary(DENSE)(lower(x), ids=[0, 1, 2])).sum().backward()
    found = lower.weight.grad
    lower.zero_grad()
    upper(lower(x)).sum().backward()
    assert found is not None
    assert lower.weight.grad is not None
    torch.testing.assert_close(found, lower.weight.grad)


def test_activations_without_dimensions_cross() -> None:
    a = torch.tensor([2.0, 3.0], requires_grad=True)
    boundary = Boundary(DENSE)
    for _ in range(2):
        assert boundary(a, ids=[0, 1]).tolist() == [2.0, 3.0]


@pytest.mark.parametrize("ids", [[-1, 1, 2], [1, 2], [1, 1, 2], [], [0, 1, 2, 3]])
def test_ids_that_do_not_fit_are_refused_in_one_sentence(ids: list[int]) -> None:
    with pytest.raises(ValueError, match=r"ids \[.*\] of 3 samples; a different number from 0 for each is needed"):
        Boundary(DENSE)(torch.zeros(3, 4), ids=ids)


def test_no_samples_and_another_shape_are_refused() -> None:
    boundary = Boundary(DENSE)
    with pytest.raises(ValueError, match="of 0 samples"):
        boundary(torch.zeros(0, 4), ids=[])
    boundary(torch.zeros(3, 4), ids=[0, 1, 2])
    with pytest.raises(ValueError, match=r"shape \(2, 2\) after those of \(4,\)"):
        boundary(torch.zeros(3, 2, 2), ids=[0, 1, 2])
    assert boundary.sender.ids.tolist() == [0, 1, 2]


def test_the_gradient_is_the_one_that_the_lower_part_decodes() -> None:
    boundary = Boundary(SplitSettings(backward=fedcomp.cgx(bits=1)))
    activations = torch.zeros(1, 3, requires_grad=True)
    (boundary(activations, ids=[0]) * torch.tensor([0.0, 0.9, 0.2])).sum().backward()
    assert activations.grad is not None
    torch.testing.assert_close(activations.grad, torch.tensor([[0.0, 0.9, 0.0]]))


@pytest.mark.parametrize(
    ("name", "shape", "layer"), [("cnn", (1, 8, 8), "2"), ("cnn", (1, 8, 8), "6"), ("lstm", (1, 8, 8), "lstm")]
)
def test_without_compression_split_training_is_training(name: str, shape: tuple[int, int, int], layer: str) -> None:
    whole = build_model(name, shape, 10, seed=2)
    split = copy.deepcopy(whole)
    lower, upper = cut(split, layer)
    boundary = Boundary(DENSE)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((30, *shape), np.float32))
    y = torch.from_numpy(rng.integers(0, 10, 30))
    optimizers = [torch.optim.SGD(part.parameters(), 0.1, momentum=0.9) for part in (whole, split)]
    for _ in range(12):
        ids = torch.from_numpy(rng.choice(30, 8, replace=False))
        for optimizer, outputs in zip(optimizers, (whole(x[ids]), upper(boundary(lower(x[ids]), ids))), strict=True):
            optimizer.zero_grad()
            functional.cross_entropy(outputs, y[ids]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    for one, other in zip(whole.parameters(), split.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert not torch.equal(next(whole.parameters()), next(build_model(name, shape, 10, seed=2).parameters()))


def test_without_compression_a_node_and_a_server_train_as_one_model() -> None:
    pair, whole = Pair(DENSE), model()
    pair.run(rounds=3)
    x, y = samples()
    optimizer = torch.optim.SGD(whole.parameters(), 0.1)
    for visits in range(21):
        epoch, step = divmod(visits, 3)  # 20 samples in batches of 8
        ids = batch(epoch, step)
        optimizer.zero_grad()
        functional.cross_entropy(whole(x[ids]), y[ids]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    for one, other in zip(whole.parameters(), pair.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_the_process_and_the_network_train_alike_to_the_bit() -> None:
    settings = SplitSettings(forward=fedcomp.cgx(bits=2), backward=fedcomp.cgx(bits=4), batch_size=8, steps=9)
    pair, other = Pair(settings), model()
    pair.run()
    lower, upper = cut(other, "1")
    boundary, (x, y) = Boundary(settings), samples()
    optimizer = torch.optim.SGD(other.parameters(), 0.1)
    for visits in range(9):
        epoch, step = divmod(visits, 3)
        ids = batch(epoch, step)
        optimizer.zero_grad()
        functional.cross_entropy(upper(boundary(lower(x[ids]), ids)), y[ids]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert pair.bits() == b"".join(tensor.numpy().tobytes() for tensor in other.state_dict().values())
    known, _, held = pair.rows()
    assert boundary.receiver.rows(known).tobytes() == held


def test_an_evaluation_sends_nothing() -> None:
    boundary = Boundary(SplitSettings())
    x = torch.ones(2, 3)
    with torch.no_grad():
        assert boundary(x, ids=[0, 1]) is x
    assert (boundary.up_bytes, boundary.down_bytes) == (0, 0)


def test_a_boundary_is_a_module_of_a_model() -> None:
    model = nn.ModuleDict({"lower": nn.Linear(4, 3), "boundary": Boundary(SplitSettings()), "upper": nn.Linear(3, 2)})
    assert list(model.state_dict()) == ["lower.weight", "lower.bias", "upper.weight", "upper.bias"]
