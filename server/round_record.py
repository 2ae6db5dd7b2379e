"""What one round did, measured."""

from dataclasses import dataclass

from fedcomp.sync import SERVER_NODE, Ledger, Traffic


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A line of ``rounds.jsonl``: this round's own bytes and seconds; accuracy in [0, 1], `None` if not evaluated.

    The bytes are those of all nodes together; `slowest_uplink_bytes` and `slowest_downlink_bytes` those of the node that
    sent, and was sent, the most: the others wait for it.  `server_seconds` went into compressing the new version.
    """

    round: int
    accuracy: float | None
    loss: float | None
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    catch_up_bytes: int = 0
    dense_uplink_bytes: int = 0
    dense_downlink_bytes: int = 0
    refused: int = 0
    failed: int = 0
    missing: int = 0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0
    slowest_uplink_bytes: int = 0
    slowest_downlink_bytes: int = 0
    server_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def sent_bytes(self) -> int:
        """Up and down together."""
        return self.uplink_bytes + self.downlink_bytes

    @property
    def dense_bytes(self) -> int:
        """What plain Flower would have sent."""
        return self.dense_uplink_bytes + self.dense_downlink_bytes


def round_record(
    server_round: int, loss: float | None, accuracy: float | None, ledger: Ledger, seconds: float
) -> RoundRecord:
    """Return the record of a round that took `seconds`, with what `ledger` has of it."""
    totals = ledger.of_round(server_round)
    nodes = ledger.nodes_of_round(server_round)
    server = nodes.pop(SERVER_NODE, Traffic())
    return RoundRecord(
        round=server_round,
        accuracy=accuracy,
        loss=loss,
        uplink_bytes=totals.uplink_bytes,
        downlink_bytes=totals.downlink_bytes,
        catch_up_bytes=totals.catch_up_bytes,
        dense_uplink_bytes=totals.dense_uplink_bytes,
        dense_downlink_bytes=totals.dense_downlink_bytes,
        refused=totals.refused,
        failed=totals.failed,
        missing=totals.missing,
        encode_seconds=totals.encode_seconds,
        decode_seconds=totals.decode_seconds,
        slowest_uplink_bytes=max((node.uplink_bytes for node in nodes.values()), default=0),
        slowest_downlink_bytes=max((node.downlink_bytes for node in nodes.values()), default=0),
        server_seconds=server.encode_seconds,
        seconds=seconds,
    )
