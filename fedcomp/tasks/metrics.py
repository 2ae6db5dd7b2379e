"""Loss and accuracy of a model on held-out samples."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcomp.core import check_int

MAX_BATCH_SIZE = 1_000_000_000


def evaluate(model: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> tuple[float, float]:
    """Return the mean cross-entropy over all samples, and the accuracy in [0, 1].

    `x` is the model's input and `y` int64 (N,), both on the model's device.  Every module keeps its mode, training or
    evaluation.  Raises `ValueError` for no samples, unequal lengths or a batch size below one.
    """
    if len(x) == 0 or len(x) != len(y):
        raise ValueError(f"{len(x)} samples and {len(y)} labels; equally many of both, at least 1, are needed")
    check_int("batch_size", batch_size, 1, MAX_BATCH_SIZE)
    modes = [(module, module.training) for module in model.modules()]
    losses: list[Tensor] = []
    hits: list[Tensor] = []
    try:
        model.eval()
        with torch.inference_mode():
            for inputs, targets in zip(torch.split(x, batch_size), torch.split(y, batch_size), strict=True):
                logits = model(inputs)
                losses.append(functional.cross_entropy(logits, targets, reduction="sum"))
                hits.append((logits.argmax(dim=1) == targets).sum())
            loss = torch.stack(losses).cpu().double().sum().item()  # one transfer; MPS has no float64
            right = int(torch.stack(hits).sum().item())
    finally:
        for module, training in modes:
            module.training = training
    return loss / len(x), right / len(x)
