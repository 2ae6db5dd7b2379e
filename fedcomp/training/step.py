"""The actions of a plug-in in the steps of a round."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

from torch import Tensor

Tensors = Mapping[str, Tensor]


class Step:
    """The actions of a plug-in in the steps of one round; by default, each method changes nothing.

    `LocalRound.step` calls the methods in this order: `started`, `samples`, `forward`, `weights`, `loss`, `gradients`,
    `stepped`.  A step on several batches calls the methods from `samples` to `loss` for each batch.
    """

    recomputable: ClassVar[bool] = True
    """Whether a module that is recomputed in the backward pass, as by gradient checkpointing, computes the same there.

    It does not with a plug-in whose `forward` changes what modules compute, nor with one that has `weights`.
    """

    def started(self) -> None:
        """Note that a step of the optimizer begins."""

    def samples(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the samples and labels to train on instead of the batch `x`, `y`."""
        return x, y

    def forward(self) -> AbstractContextManager[object]:
        """Return the context in which model and loss function are called."""
        return nullcontext()

    def weights(self, weights: Tensors) -> Tensors:
        """Return the tensors, by name, with which the model is called instead of its `weights`; gradients flow through them.

        The result has all names of `weights`, and may share tensors with it.
        """
        return weights

    def loss(self, loss: Tensor) -> Tensor:
        """Return the scalar to differentiate instead of `loss`."""
        return loss

    def gradients(self) -> bool:
        """Change the weights' gradients in place; return False to leave the optimizer's step out.

        If a plug-in leaves the step out, the plug-ins of lower rank are not called.
        """
        return True

    def stepped(self) -> None:
        """Change the weights after the optimizer's step; not called if the step was left out."""

    def report(self) -> Tensors:
        """Return the tensors that the server needs in addition to the weights, float32, by name."""
        return {}

    def inference(self) -> "Step":
        """Return the step in whose `forward` and `weights` the trained model is called, for a plug-in with `inference`."""
        return self

    def end(self) -> Tensors:
        """Undo all changes to the model other than its weights; return the tensors to keep for the node's next round.

        It is called after an error, too.  The dtypes must exist in numpy.
        """
        return {}
