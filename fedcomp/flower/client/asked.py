"""What a message asks of a node."""

from dataclasses import dataclass

from fedcomp.wire import ServerMessage


@dataclass(frozen=True, slots=True)
class Asked:
    """A message that the node could follow.

    Attributes:
        request: Its header.
        key: The key of the model in it.
        uplinks: Key -> text of the compressor of each further record that is to be compressed.
        max_norm: The largest l2 norm of the update; None for no bound.
        identity: The number that seeds what the node draws: its partition, or its id.
        decode_seconds: The time that the frames took.
    """

    request: ServerMessage
    key: str
    uplinks: dict[str, str]
    max_norm: float | None
    identity: int
    decode_seconds: float
