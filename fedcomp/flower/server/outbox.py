"""The way out: a strategy's messages, with the frames that each node needs in place of the model."""

from dataclasses import dataclass

from flwr.app import Message

from fedcomp.flower import records
from fedcomp.flower.server.published_model import PublishedModel
from fedcomp.sync import Ledger


@dataclass(frozen=True, slots=True)
class Outbox:
    """Packs the messages of one round; the nodes answer with the compressor of the text `uplink`, seeded by `seed`."""

    model: PublishedModel
    ledger: Ledger
    uplink: str
    seed: int
    server_round: int

    def pack(self, message: Message, sender: str) -> Message:
        """Return `message` with frames in place of the published model, and add its size to the ledger.

        Raises `ValueError` if the message holds no record of the model; `sender` names the strategy in the error.
        """
        node, dense = message.metadata.dst_node_id, message.content
        key = self.model.key_in(dense, f"{sender}, to node {node},")
        request, route = self.model.publisher.message_to(node, self.uplink, self.seed)
        data = request.to_bytes()
        self.ledger.add(
            self.server_round,
            node,
            downlink_bytes=len(data) + records.size_beside(dense, key),
            catch_up_bytes=route.catch_up_bytes,
            dense_downlink_bytes=sum(records.dense_size(record) for record in records.array_records(dense).values()),
        )
        message.content = dense.copy()  # a strategy may give several messages one content
        message.content[key] = records.pack(data)
        return message
