"""Feature skews on tensors."""

import hashlib

import numpy as np
import pytest
import torch

from fedcomp.tasks.feature_skew import gaussian, rotate, skew


@pytest.fixture
def images() -> torch.Tensor:
    """Twenty images of two channels, 6x6."""
    return torch.tensor(np.random.default_rng(4).standard_normal((20, 2, 6, 6), dtype=np.float32))


def test_quarter_rotations_are_counter_clockwise_as_those_of_torch(images: torch.Tensor) -> None:
    image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    assert torch.allclose(rotate(image, 90), torch.tensor([[[[2.0, 4.0], [1.0, 3.0]]]]), atol=1e-5)
    for quarters in (-1, 0, 1, 2):
        assert torch.allclose(rotate(images, 90 * quarters), torch.rot90(images, quarters, (2, 3)), atol=1e-5)


def test_a_half_rotation_turns_a_rectangular_image_upside_down() -> None:
    image = torch.arange(15.0).reshape(1, 1, 3, 5)
    assert torch.allclose(rotate(image, 180), image.flip(2, 3), atol=1e-4)


def test_a_rectangular_image_rotates_in_pixels_and_repeats_its_edge() -> None:
    image = torch.zeros(1, 1, 3, 5)
    image[0, 0, 1] = torch.tensor([9.0, 0, 7, 8, 9])  # the middle row; a quarter rotation makes it a column
    want = torch.tensor([[0.0, 0, 8, 0, 0], [0, 0, 7, 0, 0], [0, 0, 0, 0, 0]])
    assert torch.allclose(rotate(image, 90)[0, 0], want, atol=1e-5)


def test_a_rotation_and_its_inverse_restore_the_middle() -> None:
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, 33), torch.linspace(-1, 1, 33), indexing="ij")
    smooth = (rows + 2 * columns).reshape(1, 1, 33, 33)
    back = rotate(rotate(smooth, 30), -30)
    assert torch.allclose(back[..., 10:23, 10:23], smooth[..., 10:23, 10:23], atol=1e-4)


def test_noise_has_the_mean_deviation_and_quantiles_of_a_normal_distribution() -> None:
    noise = gaussian(torch.zeros(1000, 1, 10, 10), client=0, seed=0)
    assert abs(float(noise.mean())) < 0.02
    assert float(noise.std()) == pytest.approx(1, abs=0.01)
    assert float((noise.abs() < 1).float().mean()) == pytest.approx(0.6827, abs=0.005)


def test_noise_depends_on_the_seed_and_the_client_only() -> None:
    x = torch.zeros(3, 1, 3, 3)
    digest = hashlib.sha256(gaussian(x, 2, 7).numpy().astype("<f4").tobytes()).hexdigest()
    assert digest[:16] == "2411f1a935b15526"
    assert not torch.equal(gaussian(x, 2, 7), gaussian(x, 3, 7))
    assert not torch.equal(gaussian(x, 2, 7), gaussian(x, 2, 8))
    assert torch.equal(gaussian(x, 2, 7)[:1], gaussian(x[:1], 2, 7))


def test_the_noise_grows_with_the_client_up_to_sigma(images: torch.Tensor) -> None:
    many = images.repeat(100, 1, 1, 1)
    for client, level in ((0, 0.05), (4, 0.25), (9, 0.5)):
        added = skew(many, "iid() + noise(sigma=0.5)", client, 10, seed=0) - many
        assert float(added.std()) == pytest.approx(level, rel=0.02)


def test_angles_are_spread_evenly(images: torch.Tensor) -> None:
    for client, angle in ((0, -30.0), (1, -15.0), (2, 0.0), (3, 15.0), (4, 30.0)):
        assert torch.equal(skew(images, "iid + rotation(30)", client, 5, seed=0), rotate(images, angle))


def test_skews_apply_in_the_order_of_the_text_and_do_not_change_their_input(images: torch.Tensor) -> None:
    before = images.clone()
    turned_then_noisy = skew(images, "iid + rotation(90) + noise(0.1)", 1, 2, seed=3)
    assert torch.equal(turned_then_noisy, rotate(images, 90) + 0.1 * gaussian(images, 1, 3))
    noisy_then_turned = skew(images, "iid + noise(0.1) + rotation(90)", 1, 2, seed=3)
    assert torch.equal(noisy_then_turned, rotate(images + 0.1 * gaussian(images, 1, 3), 90))
    assert torch.equal(images, before)
    assert skew(images, "classes(2)", 3, 10, seed=0) is images
    assert skew(images[:0], "iid + rotation(90) + noise(0.1)", 1, 2, seed=3).shape == (0, 2, 6, 6)


def test_arguments_that_do_not_fit_are_refused(images: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="client 2 of 2"):
        skew(images, "iid", 2, 2, seed=0)
    with pytest.raises(ValueError, match="'blur'.*noise, rotation"):
        skew(images, "iid + blur(1)", 0, 2, seed=0)
    with pytest.raises(ValueError, match="1x9;.* 2x2"):
        skew(torch.zeros(3, 1, 1, 9), "iid + rotation(10)", 0, 2, seed=0)
