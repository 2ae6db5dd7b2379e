"""Plug-ins for the training on a node, around the user's own torch loop.

A plug-in changes one thing, such as the samples of a step, its precision or its loss.  `parse` makes a plan of plug-ins from a
text such as ``batch_augmentation(8) + mixed_precision()``; `+` joins plans.  `Plan` shows the loop.
"""

from fedcomp.core import required

with required("fedcomp.training", "client", "torch"):
    import torch as torch

from fedcomp.training.activation_compression import activation_compression
from fedcomp.training.admm import admm
from fedcomp.training.batch_augmentation import batch_augmentation
from fedcomp.training.fedprox import fedprox
from fedcomp.training.local_round import LocalRound, LossFunction
from fedcomp.training.low_precision import low_precision
from fedcomp.training.mixed_precision import mixed_precision
from fedcomp.training.packed import pack, unpack
from fedcomp.training.plan import Inference, Plan, PlugIn, Prepared, State
from fedcomp.training.quantized import quantized
from fedcomp.training.registry import PLUGINS, parse, register, text_lines
from fedcomp.training.rigl import rigl
from fedcomp.training.schedule import Schedule, parse_schedule
from fedcomp.training.step import Step
from fedcomp.training.zerofl import zerofl

__all__ = [
    "PLUGINS",
    "Inference",
    "LocalRound",
    "LossFunction",
    "Plan",
    "PlugIn",
    "Prepared",
    "Schedule",
    "State",
    "Step",
    "activation_compression",
    "admm",
    "batch_augmentation",
    "fedprox",
    "low_precision",
    "mixed_precision",
    "pack",
    "parse",
    "parse_schedule",
    "quantized",
    "register",
    "rigl",
    "text_lines",
    "unpack",
    "zerofl",
]
