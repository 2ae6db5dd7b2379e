"""The random numbers of torch in a part, such as those of dropout: they come from a seed, and others keep theirs."""

from collections.abc import Generator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, device: torch.device) -> Generator[None]:
    """Let the block draw the random numbers of `seed`, on the host and on `device`, and restore both generators afterwards."""
    seed %= 2**63
    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
        # torch.manual_seed takes longer than a small model, and seeds all devices.
        torch.default_generator.manual_seed(seed)
        if device.type != "cpu":
            state = torch.Generator(device).manual_seed(seed).get_state()
            torch.get_device_module(device).set_rng_state(state, device)
        yield
