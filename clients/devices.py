"""The device that a node trains on."""

import re
from functools import cache

import torch

NAMES = r"auto|cpu|mps|cuda(:(0|[1-9][0-9]{0,8}))?"
"""What `pick_device` takes."""


def available() -> list[str]:
    """Return the kinds of device that this node has, the fastest first."""
    kinds = [("cuda", torch.cuda.is_available()), ("mps", torch.backends.mps.is_available()), ("cpu", True)]
    return [kind for kind, works in kinds if works]


@cache
def pick_device(name: str) -> torch.device:
    """Return the device with that name: auto (the fastest one), cpu, cuda, cuda:<number> or mps.

    Raises `ValueError` for a device that this node does not have.
    """
    kinds = available()
    if not re.fullmatch(NAMES, name):
        raise ValueError(f"device is {name!r}; auto, cpu, cuda, cuda:<number> or mps is needed")
    kind, _, number = name.partition(":")
    if name == "auto":
        return torch.device(kinds[0])
    if kind not in kinds:
        raise ValueError(f"device is {name!r}; this node has: {', '.join(kinds)}")
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise ValueError(f"device is {name!r}; this node's GPUs are numbered 0 to {torch.cuda.device_count() - 1}")
    return torch.device(name)


def seed_torch(seed: int, device: torch.device) -> None:
    """Seed torch on the CPU and on `device`; ``torch.manual_seed`` costs more than a small training step."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
