"""Batch augmentation: variants by hand, their laws over random images, and the gradient of their mean."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.training import batch_augmentation, parse
from fedcomp.training.batch_augmentation import BatchAugmentation


def variants(x: Tensor, copies: int, shift: int = 0, *, mirror: bool = False, cutout: int = 0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    step = BatchAugmentation(copies, shift, mirror, cutout, nn.Identity(), {}, generator)
    images, labels = step.samples(x, torch.arange(len(x)))
    assert labels.tolist() == [number for number in range(len(x)) for _ in range(copies)]
    return images


def images(count: int = 3, channels: int = 2, height: int = 5, width: int = 4) -> Tensor:
    return torch.rand(count, channels, height, width) + 1


def test_without_changes_the_variants_are_copies() -> None:
    x = images()
    assert torch.equal(variants(x, 4), x.repeat_interleave(4, 0))


def test_a_shift_moves_all_maps_of_an_image_together_and_zeros_come_in() -> None:
    """Each variant is one of the nine shifts by up to one pixel; of 500 variants, all nine occur."""
    x = images(1)
    possible = []
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            moved = torch.zeros_like(x)
            rows, columns = x.shape[2:]
            for row in range(rows):
                for column in range(columns):
                    if 0 <= row - down < rows and 0 <= column - right < columns:
                        moved[0, :, row, column] = x[0, :, row - down, column - right]
            possible.append(moved[0])
    counts = [0] * 9
    for variant in variants(x, 500, shift=1):
        (found,) = (number for number, each in enumerate(possible) if torch.equal(each, variant))
        counts[found] += 1
    assert min(counts) > 30


def test_a_mirrored_variant_is_the_image_from_right_to_left_and_about_half_are() -> None:
    x = images(1)
    mirrored = [torch.equal(variant, x[0].flip(-1)) for variant in variants(x, 400, mirror=True)]
    straight = [torch.equal(variant, x[0]) for variant in variants(x, 400, mirror=True)]
    assert [one != other for one, other in zip(mirrored, straight, strict=True)] == [True] * 400
    assert 150 < sum(mirrored) < 250


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_cutout_is_one_square_at_most_and_cut_off_at_the_edges(size: int) -> None:
    x = images(1)
    centers = set()
    for variant in variants(x, 300, cutout=size):
        covered = (variant == 0).all(0)
        assert torch.equal((variant == 0).any(0), covered), "in all maps alike"
        assert torch.equal(variant[:, ~covered], x[0][:, ~covered])
        rows, columns = covered.any(1).nonzero().flatten(), covered.any(0).nonzero().flatten()
        assert covered.sum() == len(rows) * len(columns), "it is a rectangle"
        assert 1 <= len(rows) <= size
        assert 1 <= len(columns) <= size
        centers.add((int(rows[0]), int(columns[0])))
    assert len(centers) > 10
    assert (variants(x, 300, cutout=size) == 0).flatten(1).sum(1).max() == 2 * size**2


def test_the_gradient_is_the_mean_over_all_variants() -> None:
    model, other = nn.Sequential(nn.Flatten(), nn.Linear(40, 2)), nn.Sequential(nn.Flatten(), nn.Linear(40, 2))
    other.load_state_dict(model.state_dict())
    x, y = images(6), torch.tensor([0, 1, 0, 1, 1, 0])
    one, two = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, other))
    plan = batch_augmentation(5, shift=1, mirror=True, cutout=2)
    loss = plan.begin(model, seed=3).step(one, x, y, functional.cross_entropy)
    generator = torch.Generator().manual_seed(3)
    all_x, all_y = BatchAugmentation(5, 1, True, 2, model, {}, generator).samples(x, y)
    assert all_x.shape == (30, 2, 5, 4)
    expected = torch.stack(
        [functional.cross_entropy(other(x[None]), y[None]) for x, y in zip(all_x, all_y, strict=True)]
    )
    expected.mean().backward()  # type: ignore[no-untyped-call]
    two.step()
    torch.testing.assert_close(loss, expected.mean().detach())
    torch.testing.assert_close(model.state_dict(), other.state_dict())


def test_the_seed_decides_the_variants() -> None:
    x = images()
    one, again, other = (variants(x, 4, 2, mirror=True, cutout=2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("shape", [(3, 64), (3,), (3, 8, 8)])
def test_samples_that_are_no_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"batch_augmentation\(\) trains on images"):
        variants(torch.zeros(shape), 2)


def test_samples_are_checked_before_the_first_step() -> None:
    plan, model, y = batch_augmentation(2, shift=3), nn.Identity(), torch.zeros(1)
    plan.check(model, torch.zeros(1, 1, 4, 4), y)
    with pytest.raises(ValueError, match="shift is 3; it is below the size of the images, 4 x 3"):
        plan.check(model, torch.zeros(1, 1, 4, 3), y)


def test_a_shift_out_of_the_image_is_refused() -> None:
    with pytest.raises(ValueError, match="shift is 4; it is below the size of the images, 5 x 4"):
        variants(images(), 2, shift=4)


@pytest.mark.parametrize("labels", [(4, 8, 8), (4, 1, 8, 8)])
def test_labels_of_the_size_of_the_images_are_refused(labels: tuple[int, ...]) -> None:
    """A mask or a target image would have to be moved along with its image."""
    training = parse("batch_augmentation(2, mirror=True)").begin(nn.Linear(1, 1))
    with pytest.raises(ValueError, match="moves images, and not labels of their size"):
        training.samples(torch.zeros(4, 1, 8, 8), torch.zeros(labels))
    training.samples(torch.zeros(4, 1, 8, 8), torch.zeros(4, 8))


@pytest.mark.parametrize(
    ("x", "y", "found"),
    [
        (images(), [0, 1, 2], "the labels are a list"),
        (images(), (torch.zeros(3), torch.zeros(3)), "the labels are a tuple"),
        ([images()], torch.zeros(3), "the samples are a list"),
    ],
)
def test_a_batch_that_is_no_tensor_is_refused(x: Any, y: Any, found: str) -> None:
    with pytest.raises(ValueError, match=rf"^batch_augmentation\(\) repeats tensors; {found}$"):
        batch_augmentation(2).begin(nn.Identity()).samples(x, y)
