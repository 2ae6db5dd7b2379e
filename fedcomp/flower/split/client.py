"""The node's side of split learning in Flower: a handler of query messages."""

from collections.abc import Callable

from flwr.app import Context, Message, RecordDict
from torch import Tensor, nn

from fedcomp.errors import CorruptError
from fedcomp.flower import records
from fedcomp.flower.client.kept_state import kept_state
from fedcomp.flower.client.trained import identity_of
from fedcomp.flower.split.state import open_store
from fedcomp.split import SplitNode
from fedcomp.wire import parse_server_message

Start = Callable[[Context], tuple[nn.Module, Tensor, Tensor]]
"""Returns the lower part of the model, and the samples (N, ...) and labels, int64 (N,), of a node."""


class SplitClient:
    """Answers the messages of a `SplitTraining`: ``app.query("split")(SplitClient(start))``.

    A node's state is in ``Context.state``, or, with ``state-dir`` in the node's config, in that folder, where it outlives a
    restart.  The labels of the samples go to the server; the samples stay.

    Args:
        start: Returns the lower part, its first weights do not matter, and the node's samples and labels, in the same order
            each time.  It is called once for each node in a process.

    Examples:
        >>> import torch
        >>> from flwr.clientapp import ClientApp
        >>> from torch import nn
        >>> from fedcomp.flower.split import SplitClient
        >>> def start(context):
        ...     return nn.Linear(64, 32), torch.zeros(100, 64), torch.zeros(100, dtype=torch.int64)
        >>> app = ClientApp()
        >>> client = app.query("split")(SplitClient(start))

    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._nodes: dict[tuple[int, int], SplitNode] = {}

    def __call__(self, message: Message, context: Context) -> Message:
        """Return the answer to `message`.

        Raises `FedcompError` for a damaged or outdated message, and `ValueError` for samples that do not fit, and for
        activations that are not finite; the node's state is then as it was.
        """
        packed = records.packed(message.content) if message.has_content() else None
        if packed is None:
            raise CorruptError("a query without a fedcomp record; the server needs a SplitTraining")
        request, frames = parse_server_message(packed[1])
        node = self._node(context)
        with open_store(context) as store:
            state = store.load(request.training_id, node.row_size(request))
            data = node.answer(state, request, frames)
            if state.number == request.number:  # otherwise the node asks for its weights, and knows nothing new
                store.save(state)
        return Message(RecordDict({records.KEY: records.pack(data)}), reply_to=message)

    def _node(self, context: Context) -> SplitNode:
        key = context.run_id, context.node_id
        if key not in self._nodes:
            identity = identity_of(context)
            with kept_state(context):
                parts = self._start(context)
            self._nodes[key] = SplitNode(*parts, identity)
        return self._nodes[key]
