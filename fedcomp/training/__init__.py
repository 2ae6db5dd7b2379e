"""Plug-ins for the training on a node, around the user's own torch loop.

A plug-in changes one thing: the samples of a step, its precision, its loss.  `parse` makes a plan of them from a text such as
``batch_augmentation(8) + mixed_precision()``; `+` joins plans.  `Plan` shows the loop.
"""

try:
    import torch as torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    text = "fedcomp.training needs torch, which is not installed; pip install 'fedcomp[client]' installs it"
    raise ModuleNotFoundError(text, name=error.name) from None

from fedcomp.training.batch_augmentation import batch_augmentation
from fedcomp.training.fedprox import fedprox
from fedcomp.training.mixed_precision import mixed_precision
from fedcomp.training.plan import LocalRound, LossFunction, Plan, PlugIn, State, Step
from fedcomp.training.registry import PLUGINS, parse, register
from fedcomp.training.schedule import Schedule, parse_schedule
from fedcomp.training.table import text_lines

__all__ = [
    "PLUGINS",
    "LocalRound",
    "LossFunction",
    "Plan",
    "PlugIn",
    "Schedule",
    "State",
    "Step",
    "batch_augmentation",
    "fedprox",
    "mixed_precision",
    "parse",
    "parse_schedule",
    "register",
    "text_lines",
]
