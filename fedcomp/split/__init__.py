"""Split learning: a node trains the lower layers of a model and the server the upper ones, and activations cross the network.

The first visit of a sample sends its activation.  Later visits send the compressed change against the activation that both
ends hold.
Wang et al., "Fine-tuning Language Models over Slow Networks using Activation Compression with Guarantees", NeurIPS 2022,
arXiv:2206.01299 (AC-SGD).
"""

from fedcomp.core import required

with required("fedcomp.split", "client", "torch"):
    import torch as torch

from fedcomp.split.activations import Activations, read_activations, write_activations
from fedcomp.split.boundary import Boundary
from fedcomp.split.bounds import RoundBounds, with_scaled_change
from fedcomp.split.cut import check_apart, cut
from fedcomp.split.gradients import read_gradient, write_gradient
from fedcomp.split.memory import RAM_BYTES, ActivationMemory
from fedcomp.split.modes import restored_modes
from fedcomp.split.node import SplitNode, SplitState, activation_shape
from fedcomp.split.server import MAX_SAMPLES, Loss, SplitServer, SplitTraffic
from fedcomp.split.settings import SplitSettings, parse_split
from fedcomp.split.weights import key_frame, layout_of_part, load_weights, mean_weights, weights_of

__all__ = [
    "MAX_SAMPLES",
    "RAM_BYTES",
    "ActivationMemory",
    "Activations",
    "Boundary",
    "Loss",
    "RoundBounds",
    "SplitNode",
    "SplitServer",
    "SplitSettings",
    "SplitState",
    "SplitTraffic",
    "activation_shape",
    "check_apart",
    "cut",
    "key_frame",
    "layout_of_part",
    "load_weights",
    "mean_weights",
    "parse_split",
    "read_activations",
    "read_gradient",
    "restored_modes",
    "weights_of",
    "with_scaled_change",
    "write_activations",
    "write_gradient",
]
