"""Training tasks, shared by server and clients: models, their inputs, and the metrics of an evaluation."""

try:
    import torch as torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    text = "fedcomp.tasks needs torch, which is not installed; pip install 'fedcomp[client]' installs it"
    raise ModuleNotFoundError(text, name=error.name) from None

from fedcomp.tasks.feature_skew import skew
from fedcomp.tasks.inputs import input_shape, prepare
from fedcomp.tasks.metrics import evaluate
from fedcomp.tasks.models import MODELS, build_model

__all__ = ["MODELS", "build_model", "evaluate", "input_shape", "prepare", "skew"]
