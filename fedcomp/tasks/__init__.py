"""Training tasks, shared by server and clients: models, their inputs, and the metrics of an evaluation."""

from fedcomp.core import required

with required("fedcomp.tasks", "client", "torch"):
    import torch as torch

from fedcomp.tasks.feature_skew import skew
from fedcomp.tasks.inputs import input_shape, prepare
from fedcomp.tasks.metrics import evaluate
from fedcomp.tasks.models import MODELS, build_model

__all__ = ["MODELS", "build_model", "evaluate", "input_shape", "prepare", "skew"]
