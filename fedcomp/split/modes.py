"""The modes of the modules in a part: those that the user put into evaluation mode, such as frozen BatchNorm, stay there."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from torch import nn


def fixed_modules(part: nn.Module) -> list[nn.Module]:
    """Return the modules that stay in evaluation mode while `part` trains: they are in that mode, and `part` is not."""
    return [module for module in part.modules() if not module.training] if part.training else []


def set_training(part: nn.Module, fixed: Sequence[nn.Module]) -> None:
    """Put `part` into training mode, but the `fixed` modules into evaluation mode."""
    part.train()
    for module in fixed:
        module.training = False  # eval() would reach the modules in it, too


@contextmanager
def restored_modes(part: nn.Module) -> Generator[None]:
    """Let the block change the modes of the modules in `part`, and restore them afterwards."""
    modes, was_training = [(module, module.training) for module in part.modules()], part.training
    try:
        yield
    finally:
        part.train(was_training)  # a module may do more in it than set its mode
        for module, training in modes:
            module.training = training
