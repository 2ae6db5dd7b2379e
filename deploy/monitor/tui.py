"""A run on a terminal: its progress, the bytes that it sent, and the nodes that lost replies."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from deploy.monitor.snapshot import RunSnapshot
from fedcomp.core import format_bytes
from fedcomp.sync import Traffic
from server.progress import NUM_RECENT, format_seconds, seconds_left
from server.run_records import NodeStatus, RoundRecord
from server.run_status import FAILED, RUNNING, STOPPED

OTHER_LINES = 12
"""Lines of the screen that are neither a round nor a node."""
MAX_ROUNDS = 10
MAX_BARS = 40
BARS = "▁▂▃▄▅▆▇█"
LOST = "lost replies"


def _by_lost(row: NodeStatus) -> tuple[Any, ...]:
    return not row.absent, not _num_lost(row), row.partition is None, row.partition or 0, row.node


ORDERS: dict[str, Callable[[NodeStatus], Any]] = {
    LOST: _by_lost,
    "up": lambda row: -row.traffic.uplink_bytes,
    "down": lambda row: -row.traffic.downlink_bytes,
    "catch-up": lambda row: -row.traffic.catch_up_bytes,
    "version": lambda row: -1 if row.version is None else row.version,
    "node": lambda row: row.node,
}
"""The orders of the table of nodes: by replies that were lost, by most bytes, by the oldest version, by id."""
KEYS = {
    "\x1b[A": -1,
    "k": -1,
    "\x1b[B": 1,
    "j": 1,
    "\x1b[5~": -20,
    "b": -20,
    "\x1b[6~": 20,
    " ": 20,
    "g": -(10**9),
    "G": 10**9,
}
"""Keys that scroll, and by how many nodes: arrows, pages, and the first and the last node."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where the table of nodes is: its order, and how many nodes are above the screen."""

    order: str = LOST
    above: int = 0

    def after(self, key: str, most: int) -> "Position":
        """Return the position after `key`, with at most `most` nodes above; keys without a meaning change nothing."""
        if key == "s":
            orders = list(ORDERS)
            return Position(orders[(orders.index(self.order) + 1) % len(orders)])
        return replace(self, above=min(max(self.above + KEYS.get(key, 0), 0), most))


def render(view: RunSnapshot, height: int | None = None, position: Position = Position()) -> Group:
    """Return the view for a screen of `height` lines; without a height, show every node."""
    rounds, nodes = _rows(view, height)
    return Group(*_head(view), Text(), _rounds(view.rounds, rounds), Text(), *_nodes(view, nodes, position))


def most_above(view: RunSnapshot, height: int) -> int:
    """Return how many nodes are above a screen of `height` lines that shows the last one."""
    return max(len(view.nodes) - _rows(view, height)[1], 0)


def _rows(view: RunSnapshot, height: int | None) -> tuple[int, int]:
    """Return how many rounds and how many nodes fit on a screen of `height` lines: without a height, all nodes."""
    if height is None:
        return min(MAX_ROUNDS, len(view.rounds)), len(view.nodes)
    rows = max(height - OTHER_LINES, 2)
    rounds = min(MAX_ROUNDS, len(view.rounds), max(rows // 2, 1))
    return rounds, max(rows - rounds, 1)


def _head(view: RunSnapshot) -> list[RenderableType]:
    settings = view.settings
    words = [str(settings.get(key, "-")) for key in ("dataset", "model", "strategy")]
    title = Text.assemble((view.name, "bold"), f"  {', '.join(words)}")
    links = Text(", ".join(_link(view, name) for name in ("up", "down")), style="dim")
    for line in (title, links):
        line.no_wrap, line.overflow = True, "ellipsis"
    up = sum(each.traffic.uplink_bytes for each in view.rounds)
    down = sum(each.traffic.downlink_bytes for each in view.rounds)
    first = sum(each.traffic.first_model_bytes for each in view.rounds)
    catch_up = sum(each.traffic.catch_up_bytes for each in view.rounds)
    dense = sum(each.traffic.dense_bytes for each in view.rounds)
    ratio = f"; dense {format_bytes(dense)}, ratio {dense / (up + down):.1f}" if up + down else ""
    extra = f"first models {format_bytes(first)}, catch-up {format_bytes(catch_up)}"
    sent = Text(f"sent: up {format_bytes(up)}, down {format_bytes(down)} ({extra}){ratio}")
    kinds = {
        name: format_bytes(sum(getattr(each.traffic, f"{kind}_bytes") for each in view.rounds))
        for name, kind in (("key frames", "key"), ("jumps", "jump"), ("single deltas", "delta"), ("replays", "replay"))
    }
    frames = Text(f"down in {', '.join(f'{name} {size}' for name, size in kinds.items())}", style="dim")
    return [title, links, _state(view), sent, frames, *_accuracy(view.rounds)]


def _link(view: RunSnapshot, name: str) -> str:
    """Return the setting of a link, and the compressor of the newest round if it was chosen."""
    setting = str(view.settings.get(f"{name}link", "-"))
    newest = str(getattr(view.rounds[-1], f"{name}link")) if view.rounds else ""
    return f"{name} {setting}" + (f": {newest}" if newest and newest.split("(")[0] != setting.split("(")[0] else "")


def _state(view: RunSnapshot) -> Text:
    done = view.rounds[-1].round if view.rounds else 0
    where = f"round {done} of {view.num_rounds}" + ("" if view.version is None else f", version {view.version}")
    if view.state == FAILED:
        return Text(f"failed after {where}: {view.reason or 'its log has the reason'}", style="bold red")
    if view.state == STOPPED and "neighbors" in view.settings:  # of a node without a server
        return Text(f"stopped after {where}; the same command continues it", style="yellow")
    if view.state == STOPPED:
        resumes = not view.settings.get("split") and (done == 0 or view.settings.get("checkpoint-every"))
        more = (
            f"; resume=true run-name={view.name} continues it"
            if resumes
            else "; it kept no checkpoint to continue from"
        )
        return Text(f"stopped after {where}{more}", style="yellow")
    if view.state != RUNNING:
        return Text(f"completed: {where}", style="green")
    line = Text(f"running: {where}")
    recent = [each.seconds for each in view.rounds[2:]][-NUM_RECENT:]  # the first ones also start the nodes
    if recent:
        line.append(f", {format_seconds(seconds_left(recent, max(view.num_rounds - done, 0)))} left")
    quiet = view.idle_s > 60 and (not recent or view.idle_s > 10 * max(recent))
    return line.append(f", last news {format_seconds(view.idle_s)} ago", style="yellow" if quiet else "")


def _accuracy(rounds: Sequence[RoundRecord]) -> list[Text]:
    """Return the accuracy so far as a row of bars, relative to the best one; nothing before it was measured."""
    values = [each.accuracy for each in rounds if each.accuracy is not None and math.isfinite(each.accuracy)]
    if not values:
        return []
    best, count = max(values), min(len(values), MAX_BARS)
    picked = [values[(bar + 1) * len(values) // count - 1] for bar in range(count)]  # the last value included
    heights = [max(int(value / best * len(BARS)), 0) if best > 0 else 0 for value in picked]
    bars = "".join(BARS[min(height, len(BARS) - 1)] for height in heights)
    return [Text(f"accuracy {bars} {values[-1]:.1%}, best {best:.1%}")]


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        text = name in ("node", LOST)  # these columns wrap on a narrow screen
        justify: JustifyMethod = "left" if text else "right"
        table.add_column(name, justify=justify, no_wrap=not text, overflow="ellipsis", min_width=8 if text else None)
    return table


def _rounds(rounds: Sequence[RoundRecord], shown: int) -> Table:
    table = _table("round", "accuracy", "loss", "up", "down", "catch-up", "ratio", "time", LOST)
    for each in rounds[len(rounds) - shown :]:
        ratio = each.traffic.ratio
        table.add_row(
            str(each.round),
            "-" if each.accuracy is None else f"{each.accuracy:.1%}",
            "-" if each.loss is None else f"{each.loss:.3f}",
            *_bytes(each.traffic),
            f"{ratio:.1f}" if math.isfinite(ratio) else "-",
            f"{each.seconds:.1f} s" if each.seconds < 59.5 else format_seconds(each.seconds),
            _lost(each.traffic),
        )
    return table


def _nodes(view: RunSnapshot, max_rows: int, position: Position) -> list[RenderableType]:
    """Return the table of nodes from `position` on, and a line that counts those not shown."""
    if not view.nodes:
        return [Text("nothing is known of the nodes yet", style="dim")]
    rows = sorted(view.nodes, key=ORDERS[position.order])
    above = min(position.above, max(len(rows) - max_rows, 0))
    kept = rows[above : above + max_rows]
    table = _table("node", "part", "up", "down", "catch-up", "version", "seen", LOST)
    for row in kept:
        table.add_row(
            str(row.node),
            "-" if row.partition is None else str(row.partition),
            *_bytes(row.traffic),
            _version(row, view.version),
            "-" if row.heard is None else f"round {row.heard}",
            _lost(row.traffic, absent=row.absent),
            style="red" if row.absent else "",
        )
    left = len(rows) - len(kept)
    lossy = sum(1 for row in (*rows[:above], *rows[above + len(kept) :]) if _num_lost(row))
    more = f"{left} more nodes, {f'{lossy} of them with' if lossy else 'none with'} lost replies"
    if above:
        more += f"; {above} of them above"
    if position.order != LOST:
        more += f"; sorted by {position.order}"
    return [table, *([Text(more, style="dim")] if left else [])]


def _bytes(traffic: Traffic) -> list[str]:
    return [format_bytes(size) for size in (traffic.uplink_bytes, traffic.downlink_bytes, traffic.catch_up_bytes)]


def _version(row: NodeStatus, newest: int | None) -> str:
    if row.version is None:
        return "none yet"
    return f"{row.version}" if newest is None or row.version >= newest else f"{row.version} ({row.version - newest})"


def _num_lost(row: NodeStatus) -> int:
    return row.traffic.refused + row.traffic.failed + row.traffic.missing


def _lost(traffic: Traffic, *, absent: bool = False) -> Text:
    """Return the numbers of replies that did not count, by reason; empty if all counted."""
    reasons = ((traffic.missing, "missing"), (traffic.failed, "failed"), (traffic.refused, "refused"))
    text = ", ".join(f"{count} {reason}" for count, reason in reasons if count)
    return Text(f"{text}; absent" if absent else text, style="red")
