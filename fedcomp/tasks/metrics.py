"""How good a model is on held-out samples."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def evaluate(model: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> tuple[float, float]:
    """Return the mean cross-entropy over all samples, and the share of them classified right, in [0, 1].

    `x` is what the model reads and `y` int64 (N,), on the model's device.  Every module keeps the mode, training or
    evaluation, that it had.  Raises `ValueError` for no samples, unequal lengths or a batch size below one.
    """
    if len(x) == 0 or len(x) != len(y) or batch_size < 1:
        raise ValueError(
            f"{len(x)} samples, {len(y)} labels, batch size {batch_size}; as many of both, and 1, are needed"
        )
    modes = [(module, module.training) for module in model.modules()]
    losses, hits = [], []
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
