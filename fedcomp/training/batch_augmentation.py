"""Batch augmentation: several random variants of each sample in the same step."""

from functools import partial

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from fedcomp.core import check_bool, check_int
from fedcomp.training.plan import Begin
from fedcomp.training.registry import register
from fedcomp.training.step import Step, Tensors

MAX_COPIES = 1024
MAX_PIXELS = 1 << 16


class BatchAugmentation(Step):
    """Trains on `copies` variants of each image, which are shifted, mirrored and partly covered at random."""

    def __init__(
        self,
        copies: int,
        shift: int,
        mirror: bool,
        cutout: int,
        _model: nn.Module,
        _kept: Tensors,
        generator: Generator,
    ) -> None:
        self._copies, self._shift, self._mirror, self._cutout = copies, shift, mirror, cutout
        self._generator = generator

    def samples(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return images (copies N, C, H, W) and their labels, the variants of an image next to each other."""
        for what, batch in (("samples", x), ("labels", y)):
            if not isinstance(batch, Tensor):
                raise ValueError(f"batch_augmentation() repeats tensors; the {what} are a {type(batch).__name__}")
        if x.dim() != 4:
            shape = tuple(x.shape[1:])
            raise ValueError(f"batch_augmentation() trains on images (C, H, W); the samples have the shape {shape}")
        if y.dim() > 2 and y.shape[-2:] == x.shape[-2:]:
            shape = tuple(y.shape[1:])
            raise ValueError(
                f"batch_augmentation() moves images, and not labels of their size; these have the shape {shape}"
            )
        if self._shift >= min(x.shape[2:]):
            raise ValueError(f"shift is {self._shift}; it is below the size of the images, {x.shape[2]} x {x.shape[3]}")
        x, y = x.repeat_interleave(self._copies, 0), y.repeat_interleave(self._copies, 0)
        if self._shift:
            x = self._shifted(x)
        if self._mirror:
            chosen = self._draw(2, len(x)).bool().to(x.device)
            x = torch.where(chosen[:, None, None, None], x.flip(-1), x)
        if self._cutout:
            x = x.masked_fill(self._squares(x), 0)
        return x, y

    def _shifted(self, x: Tensor) -> Tensor:
        """Return the images moved by up to `shift` pixels along each axis, with zeros at the new edges."""
        count, channels, height, width = x.shape
        padded = functional.pad(x, (self._shift,) * 4)
        top, left = (self._draw(2 * self._shift + 1, count) for _ in range(2))
        rows = (top[:, None] + torch.arange(height)).to(x.device)
        columns = (left[:, None] + torch.arange(width)).to(x.device)
        images, maps = torch.arange(count, device=x.device), torch.arange(channels, device=x.device)
        return padded[
            images[:, None, None, None], maps[None, :, None, None], rows[:, None, :, None], columns[:, None, None, :]
        ]

    def _squares(self, x: Tensor) -> Tensor:
        """Return a mask (N, 1, H, W) of one square in each image, at a random center, cut off at the edges."""
        inside: list[Tensor] = []
        for size in x.shape[2:]:
            first = self._draw(size, len(x)) - self._cutout // 2
            distance = torch.arange(size) - first[:, None]
            inside.append((distance >= 0) & (distance < self._cutout))
        rows, columns = inside
        return (rows[:, :, None] & columns[:, None, :])[:, None].to(x.device)

    def _draw(self, below: int, count: int) -> Tensor:
        """Return `count` random integers from 0 to `below` - 1, the same on every device."""
        return torch.randint(below, (count,), generator=self._generator)


@register(
    "Hoffer et al., CVPR 2020",
    "several random variants of each image in a step",
    measured="Fashion-MNIST, 60 images a client: 82.5 % with 4 variants, 85.5 % without",
)
def batch_augmentation(copies: int = 8, shift: int = 2, mirror: bool = False, cutout: int = 0) -> Begin:
    """Train on `copies` random variants of each image in a step: more computation, and the same bytes.

    Each variant is moved by up to `shift` pixels along each axis, mirrored left to right with probability 1/2 if `mirror`, and
    a square of `cutout` pixels at a random place becomes 0 (DeVries and Taylor, arXiv 1708.04552).  The loss is the mean over
    all variants.  With one copy this is ordinary augmentation.  Hoffer et al., CVPR 2020, section 3.
    """
    check_int("copies", copies, 1, MAX_COPIES)
    check_int("shift", shift, 0, MAX_PIXELS)
    check_bool("mirror", mirror)
    check_int("cutout", cutout, 0, MAX_PIXELS)
    return partial(BatchAugmentation, copies, shift, mirror, cutout)
