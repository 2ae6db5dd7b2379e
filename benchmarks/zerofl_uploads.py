"""Bytes of ZeroFL's masked uploads: as fedcomp sends them, and in CSR as in the paper, next to the paper's savings.

    python -m benchmarks.zerofl_uploads --data-dir DIR

A node with a hundredth of Fashion-MNIST trains the CNN of 546,344 bytes for 30 steps.  fedcomp sends the change that the
plug-in leaves by ``topk(density=1.0, feedback=False)``.  CSR holds the weights or changes that go up, but for zeros: one matrix
for each weight, with 32-bit values and indices, and all biases as they are.  A saving is that over 32 bits for each weight; the
paper's is that of a ResNet-18.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn import functional

import fedcomp
from benchmarks.measurement import print_table
from clients.samples import own_card
from fedcomp.commands import new_parser
from fedcomp.data import Dataset, load, partition_train
from fedcomp.tasks import build_model, input_shape, prepare
from fedcomp.training import zerofl

CLIENTS, STEPS, BATCH, LEARNING_RATE = 100, 30, 20, 0.05
PAPER = {
    (0.9, 0.0): 4.3, (0.9, 0.1): 2.3, (0.9, 0.2): 1.6,
    (0.95, 0.0): 7.4, (0.95, 0.1): 3.0, (0.95, 0.2): 1.9,
}  # fmt: skip
"""Sparsity and mask ratio -> full over masked bytes, the same for all masks (Qiu et al., table 1)."""
UPLINK = fedcomp.topk(density=1.0, feedback=False)

Weights = dict[str, Tensor]


def trained(dataset: Dataset, sparsity: float, mask_ratio: float, upload: str) -> tuple[Weights, Weights]:
    """Return the weights before and after a round of a node."""
    card, chosen = dataset.card, partition_train(dataset, "iid()", CLIENTS, 0)[0]
    x, y = prepare(dataset.train.x[chosen], card, "cpu"), torch.tensor(dataset.train.y[chosen])
    model = build_model("cnn", input_shape(card), card.num_classes, 0)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    training = zerofl(sparsity, mask_ratio, upload).begin(model)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        rows = torch.randint(len(y), (BATCH,), generator=generator)
        training.step(optimizer, x[rows], y[rows], functional.cross_entropy)
    training.end()
    return before, {name: weight.detach() for name, weight in model.named_parameters()}


def csr_bytes(tensors: Weights) -> int:
    """Return the size in bytes: matrices as CSR arrays, other tensors as float32."""
    size = 0
    for tensor in tensors.values():
        if tensor.dim() > 1:
            matrix: Any = csr_matrix(tensor.flatten(1).numpy())  # scipy has no types
            size += matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
        else:
            size += tensor.nbytes
    return size


def rows(dataset: Dataset) -> Iterator[dict[str, object]]:
    """Yield a row for each sparsity, mask and mask ratio."""
    for upload in ("weights", "diff-on-weights", "weights-diff"):
        for (sparsity, mask_ratio), paper in PAPER.items():
            before, after = trained(dataset, sparsity, mask_ratio, upload)
            changes = {name: after[name] - before[name] for name in after}
            change = torch.cat([each.flatten() for each in changes.values()]).numpy()
            dense, frame = change.nbytes, len(UPLINK.encode(change, UPLINK.init(len(change)))[0])
            csr = csr_bytes(after if upload == "weights" else changes)
            yield {
                "sparsity": sparsity,
                "upload": upload,
                "mask_ratio": mask_ratio,
                "fedcomp": f"{frame:,}",
                "fedcomp smaller": f"{dense / frame:.1f}x",
                "CSR": f"{csr:,}",
                "CSR smaller": f"{dense / csr:.1f}x",
                "paper": f"{paper:.1f}x",
            }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = new_parser("python -m benchmarks.zerofl_uploads", __doc__)
    parser.add_argument(
        "--data-dir", help="the folder with Fashion-MNIST; without it, it comes from the Hugging Face hub"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    dataset = load(own_card("fashion-mnist"), options.data_dir)
    print_table("An update of a CNN for Fashion-MNIST", list(rows(dataset)))


if __name__ == "__main__":
    main()
