"""Bytes of models whose weights have few bits: what `fedcomp.training.pack` stores of them, next to float32.

    python -m benchmarks.packed_models

The models have their first weights: training would not change the number of their values.  The plug-in chooses the weights;
biases stay float32.
"""

from collections.abc import Iterator

from torch import nn

from benchmarks.measurement import print_table
from fedcomp.tasks import build_model
from fedcomp.training import Inference, pack, parse

MODELS = (("cnn", (1, 28, 28), 10), ("vgg11s", (3, 32, 32), 10), ("char_lstm", (1, 1, 32), 59))
PLANS = ("quantized(8)", "quantized(4)", "quantized(2)", "quantized('ternary')", "quantized('binary')", "admm('shift')")


def packed_bytes(model: nn.Module, training: str) -> int:
    """Return the bytes of the arrays of the model as the plug-in of `training` uses it."""
    used = parse(training).inference(model)
    tensors = used.tensors() if isinstance(used, Inference) else model.state_dict()
    return sum(array.nbytes for array in pack(tensors).values())


def rows() -> Iterator[dict[str, object]]:
    """Yield a row for each plug-in: the bytes for each model, and how many times smaller than float32 they are."""
    models = {name: build_model(name, shape, num_classes, 0) for name, shape, num_classes in MODELS}
    dense = {name: packed_bytes(model, "") for name, model in models.items()}
    for training in ("", *PLANS):
        row: dict[str, object] = {"weights": training or "float32"}
        for name, model in models.items():
            size = packed_bytes(model, training)
            row |= {name: f"{size:,}", f"{name} smaller": f"{dense[name] / size:.1f}x"}
        yield row


if __name__ == "__main__":
    print_table("Bytes of the packed model", list(rows()))
