"""What a plug-in does in the steps of a round."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor

Tensors = Mapping[str, Tensor]


class Step:
    """What a plug-in does in the steps of one round; each of these does nothing.

    `LocalRound.step` calls them in this order: `started`, `samples`, `forward`, `weights`, `loss`, `gradients`, `stepped`.  A
    step on several batches calls those from `samples` to `loss` for each of them.
    """

    def started(self) -> None:
        """Note that a step of the optimizer begins."""

    def samples(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the samples and labels to train on in place of the batch `x`, `y`."""
        return x, y

    def forward(self) -> AbstractContextManager[object]:
        """Return the context in which model and loss function are called."""
        return nullcontext()

    def weights(self, weights: Tensors) -> Tensors:
        """Return the tensors to call the model with in place of its `weights` by name; gradients flow through them.

        The result has all names of `weights`, and may share tensors with it.
        """
        return weights

    def loss(self, loss: Tensor) -> Tensor:
        """Return the scalar to differentiate in place of `loss`."""
        return loss

    def gradients(self) -> bool:
        """Change the weights' gradients in place; return False to leave the optimizer's step out.

        After a plug-in that leaves the step out, those of lower rank are not called.
        """
        return True

    def stepped(self) -> None:
        """Change the weights after the optimizer's step; not called if it was left out."""

    def report(self) -> Tensors:
        """Return what the server wants to know of the round besides the weights, float32 and by name."""
        return {}

    def inference(self) -> "Step":
        """Return the step in whose `forward` and `weights` the trained model is called, for a plug-in with `inference`."""
        return self

    def end(self) -> Tensors:
        """Undo all changes to the model other than its weights; return the tensors to keep for the node's next round.

        It is called after an error too.  The dtypes are those of numpy.
        """
        return {}
