"""The lines about traffic in the log of a run: its first round, a total every few rounds, and the whole run."""

from logging import INFO, WARNING

from fedcomp.compressor import Compressor
from fedcomp.core import format_bytes
from fedcomp.flower.compat import log
from fedcomp.sync import Ledger, Traffic

EVERY_ROUNDS = 10
MIN_USEFUL_RATIO = 1.5
"""The uplink ratio below which the log warns."""


def log_round(server_round: int, num_rounds: int, ledger: Ledger, uplink: Compressor) -> None:
    """Log the traffic of the first round that brought updates, and a total in every tenth round but the last.

    A warning says if the compressor `uplink` gains hardly anything.
    """
    traffic = ledger.of_round(server_round)
    if traffic.dense_uplink_bytes and traffic.dense_uplink_bytes == ledger.dense_uplink_bytes:
        _log_first(server_round, ledger, uplink)
    elif server_round % EVERY_ROUNDS == 0 and server_round != num_rounds and ledger.uplink_bytes:
        log(INFO, "fedcomp: %d rounds, compared with plain Flower: %s", server_round, _both_links(ledger.total()))


def log_totals(ledger: Ledger, uncompressed_bytes: int = 0) -> None:
    """Log the traffic of the whole run; `uncompressed_bytes` of it are those of records that travelled as they are."""
    beside = f"; {format_bytes(uncompressed_bytes)} of it are uncompressed records" if uncompressed_bytes else ""
    log(INFO, "fedcomp: the whole run, compared with plain Flower: %s%s", _both_links(ledger.total()), beside)


def _log_first(server_round: int, ledger: Ledger, uplink: Compressor) -> None:
    traffic = ledger.of_round(server_round)
    nodes = sum(1 for node in ledger.nodes_of_round(server_round).values() if node.first_model_bytes)
    up = _compared("up", traffic.uplink_bytes, traffic.dense_uplink_bytes)
    down = _compared("down", traffic.downlink_bytes, traffic.dense_downlink_bytes)
    if 2 * traffic.first_model_bytes > traffic.dense_downlink_bytes:  # else the nodes have made the model themselves
        models = "1 node its first model" if nodes == 1 else f"{nodes} nodes their first models"
        down = f"down {format_bytes(traffic.downlink_bytes)}, which brought {models}; from now on they get differences"
    log(INFO, "fedcomp: round %d, compared with plain Flower: %s; %s", server_round, up, down)
    ratio = traffic.dense_uplink_bytes / traffic.uplink_bytes
    if ratio < MIN_USEFUL_RATIO and uplink.name != "dense":
        log(WARNING, "fedcomp: uplink %s hardly compresses this model: ratio %.2f", uplink, ratio)


def _both_links(total: Traffic) -> str:
    links = (
        ("up", total.uplink_bytes, total.dense_uplink_bytes),
        ("down", total.downlink_bytes, total.dense_downlink_bytes),
        ("together", total.sent_bytes, total.dense_bytes),
    )
    return "; ".join(_compared(*link) for link in links)


def _compared(link: str, sent: int, dense: int) -> str:
    """Return the bytes of a link, and how they compare with those that plain Flower would have sent."""
    if not sent or not dense:
        return f"{link} {format_bytes(sent)}"
    ratio = dense / sent
    text = f"{ratio:.1f} times smaller" if ratio >= 1 else f"{1 / ratio:.1f} times larger"
    return f"{link} {format_bytes(sent)}, {'as much' if text.startswith('1.0 ') else text}"
