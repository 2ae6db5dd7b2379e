"""The records that a run writes, and how they become JSON: a line per round, and a status per node."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from fedcomp.sync import SERVER_NODE, Ledger, Traffic

TEXTS = ("uplink", "downlink")
"""The fields of records that are no numbers."""
ON_NODES = ("eval_accuracy", "eval_loss")
"""The fields that a row lacks if no node evaluated."""
T = TypeVar("T", "RoundRecord", "NodeStatus")


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A line of ``rounds.jsonl``: the results, the traffic and the seconds of one round.

    `accuracy` is in [0, 1]; `None` if the model was not evaluated.  `slowest_uplink_bytes` and `slowest_downlink_bytes`
    belong to the node with the most of each, for which the others wait.  `server_seconds` were spent on compressing the
    new version.  `no_result` says that the round led to no new model, because the strategy failed or its model diverged.
    `uplink` and `downlink` are the compressors of the round, which `auto()` and `balanced()` choose; in round 0, which sends
    nothing, those of the settings.  `eval_accuracy` and `eval_loss` are means over the nodes that evaluated the same model on
    their own samples.
    """

    round: int
    accuracy: float | None
    loss: float | None
    traffic: Traffic = field(default_factory=Traffic)
    slowest_uplink_bytes: int = 0
    slowest_downlink_bytes: int = 0
    server_seconds: float = 0.0
    seconds: float = 0.0
    no_result: bool = False
    uplink: str = ""
    downlink: str = ""
    eval_accuracy: float | None = None
    eval_loss: float | None = None


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A row of ``nodes.json``: what the server knows of a node, and the node's traffic in the whole run.

    `version` is the last one that the node confirmed, and `heard` the last round in which it replied.
    """

    node: int
    partition: int | None = None
    version: int | None = None
    heard: int | None = None
    absent: bool = False
    traffic: Traffic = field(default_factory=Traffic)


def round_record(
    server_round: int,
    loss: float | None,
    accuracy: float | None,
    ledger: Ledger,
    seconds: float,
    *,
    no_result: bool = False,
    compressors: tuple[str, str] = ("", ""),
) -> RoundRecord:
    """Return the record of a round that took `seconds`, with its traffic in `ledger`; `compressors` are those up and down."""
    nodes = ledger.nodes_of_round(server_round)
    server = nodes.pop(SERVER_NODE, Traffic())
    uplink = max((node.uplink_bytes for node in nodes.values()), default=0)
    downlink = max((node.downlink_bytes for node in nodes.values()), default=0)
    traffic = ledger.of_round(server_round)
    return RoundRecord(
        server_round, accuracy, loss, traffic, uplink, downlink, server.encode_seconds, seconds, no_result, *compressors
    )


def to_row(record: RoundRecord | NodeStatus) -> dict[str, Any]:
    """Return the record as a flat object, with the fields of its traffic among its own."""
    row: dict[str, Any] = {}
    for item in fields(record):
        value = getattr(record, item.name)
        if value is None and item.name in ON_NODES:
            continue
        row |= asdict(value) if isinstance(value, Traffic) else {item.name: value}
    return row


def from_row(kind: type[T], row: Mapping[str, Any]) -> T:
    """Return the record that `to_row` gave; unknown keys are ignored, and missing ones have their defaults.

    Raises `TypeError` for a value that is no number where one is needed, and for a missing key without a default.
    """
    known, traffic = ({item.name: row[item.name] for item in fields(of) if item.name in row} for of in (kind, Traffic))
    wrong = {
        name: value
        for name, value in (known | traffic).items()
        if not isinstance(value, str if name in TEXTS else int | float | None)
    }
    if wrong:
        raise TypeError(f"a record has {wrong}; numbers are needed, and texts for {' and '.join(TEXTS)}")
    return kind(**known, traffic=Traffic(**traffic))
