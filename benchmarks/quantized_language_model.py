"""Perplexity and size of a character model with quantized weights: rounded after training, straight-through, and ADMM.

    python -m benchmarks.quantized_language_model [--steps 1500] [--seed 0] [--trainings "quantized(4)" ...]

Each training sees the same batches of the sonnets, from the same first weights, on one node and one core.  Adam's rate
falls from 0.003 to 0 by half a cosine.  The perplexity is exp(mean cross-entropy) of the next character in the test sonnets;
the bytes are those of the arrays of `fedcomp.training.pack`.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.measurement import print_table
from clients.samples import own_card
from fedcomp.commands import new_parser
from fedcomp.data import Dataset, load
from fedcomp.tasks import build_model, evaluate, input_shape, prepare
from fedcomp.training import Inference, pack, parse

RATE, BATCH_SIZE, TEST_BATCH_SIZE = 0.003, 64, 1000
TRAININGS = (
    "",
    "quantized('binary')",
    "quantized('ternary')",
    "admm('binary')",
    "admm('ternary')",
    "admm('shift')",
    "admm('ternary', rows=True)",
)
ROUNDINGS = (
    "admm('binary', rho=0)",
    "admm('ternary', rho=0)",
    "admm('shift', rho=0)",
    "admm('ternary', rho=0, rows=True)",
)
"""With rho 0 the plug-in only rounds: they share the training without plug-ins."""


def trained(dataset: Dataset, training: str, steps: int, seed: int) -> nn.Module:
    """Return a model after `steps` steps with the plug-ins of `training`."""
    card = dataset.card
    x, y = prepare(dataset.train.x, card, "cpu"), torch.tensor(dataset.train.y)
    model = build_model("char_lstm", input_shape(card), card.num_classes, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator = torch.Generator().manual_seed(seed)
    plan = parse(training).begin(model, seed=seed)
    for _ in range(steps):
        rows = torch.randint(len(y), (BATCH_SIZE,), generator=generator)
        plan.step(optimizer, x[rows], y[rows], functional.cross_entropy)
        schedule.step()
    plan.end()
    return model


def measured(dataset: Dataset, label: str, model: nn.Module, training: str) -> dict[str, object]:
    """Return a row of the table: the model as the plug-ins of `training` use it."""
    used = parse(training).inference(model)
    tensors: dict[str, Tensor] = used.tensors() if isinstance(used, Inference) else model.state_dict()
    x, y = prepare(dataset.test.x, dataset.card, "cpu"), torch.tensor(dataset.test.y)
    loss, _ = evaluate(used, x, y, TEST_BATCH_SIZE)
    packed = pack(tensors)
    dense = sum(tensor.nbytes for tensor in tensors.values())
    size = sum(array.nbytes for array in packed.values())
    return {
        "training": label,
        "perplexity": f"{math.exp(loss):.2f}",
        "bytes": f"{size:,}",
        "smaller": f"{dense / size:.1f}x",
    }


def rows(dataset: Dataset, trainings: Sequence[str], steps: int, seed: int) -> Iterator[dict[str, object]]:
    """Yield the rows of the table."""
    for training in trainings:
        model = trained(dataset, training, steps, seed)
        yield measured(dataset, training or "float32", model, training)
        for rounding in ROUNDINGS if not training else ():
            yield measured(dataset, f"float32, then {rounding}", model, rounding)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = new_parser("python -m benchmarks.quantized_language_model", __doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--trainings", nargs="+", default=TRAININGS, help="plug-ins, one row each (default: the whole table)"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    dataset = load(own_card("sonnets"))
    print_table("Characters of the test sonnets", list(rows(dataset, options.trainings, options.steps, options.seed)))


if __name__ == "__main__":
    main()
