"""A run as a person watches it: how far it is, what it costs each way, and which nodes give trouble."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from deploy.monitor.run_tail import NodeRow, RunSnapshot
from server.progress import RECENT, format_bytes, format_seconds, seconds_left
from server.round_record import RoundRecord
from server.run_status import FAILED, RUNNING

AROUND = 11
"""Lines of the screen that are neither a round nor a node."""
MOST_ROUNDS = 10
BAR_COLUMNS = 40
BARS = "▁▂▃▄▅▆▇█"
LOST = "lost replies"


def render(view: RunSnapshot, height: int | None = None) -> Group:
    """Return the view, for a screen of `height` lines; without one, with every node."""
    rows = None if height is None else max(height - AROUND, 2)
    shown = min(MOST_ROUNDS, len(view.rounds), MOST_ROUNDS if rows is None else max(rows // 2, 1))
    rest = None if rows is None else max(rows - shown, 1)
    return Group(*_head(view), Text(), _rounds(view.rounds, shown), Text(), *_nodes(view, rest))


def _head(view: RunSnapshot) -> list[RenderableType]:
    settings = view.settings
    words = [str(settings.get(key, "-")) for key in ("dataset", "model", "strategy")]
    first = Text.assemble((view.name, "bold"), f"  {', '.join(words)}")
    links = Text(f"up {settings.get('uplink', '-')}, down {settings.get('downlink', '-')}", style="dim")
    for line in (first, links):
        line.no_wrap, line.overflow = True, "ellipsis"
    up, down = (sum(getattr(one, name) for one in view.rounds) for name in ("uplink_bytes", "downlink_bytes"))
    catch_up = sum(one.catch_up_bytes for one in view.rounds)
    dense = sum(one.dense_bytes for one in view.rounds)
    ratio = f"; dense {format_bytes(dense)}, ratio {dense / (up + down):.1f}" if up + down else ""
    sent = Text(f"sent: up {format_bytes(up)}, down {format_bytes(down)} (catch-up {format_bytes(catch_up)}){ratio}")
    return [first, links, _state(view), sent, *_accuracy(view.rounds)]


def _state(view: RunSnapshot) -> Text:
    done = view.rounds[-1].round if view.rounds else 0
    where = f"round {done} of {view.num_rounds}" + ("" if view.version is None else f", version {view.version}")
    if view.state == FAILED:
        return Text(f"failed after {where}; its log says why", style="bold red")
    if view.state != RUNNING:
        return Text(f"completed: {where}", style="green")
    line = Text(f"running: {where}")
    recent = [one.seconds for one in view.rounds[2:]][-RECENT:]  # the first ones also start the nodes
    if recent:
        line.append(f", {format_seconds(seconds_left(recent, max(view.num_rounds - done, 0)))} left")
    quiet = view.idle_s > 60 and (not recent or view.idle_s > 10 * max(recent))
    return line.append(f", last news {format_seconds(view.idle_s)} ago", style="yellow" if quiet else "")


def _accuracy(rounds: Sequence[RoundRecord]) -> list[Text]:
    """Return the accuracy so far as a row of bars, the highest one the best; nothing before it was measured."""
    values = [one.accuracy for one in rounds if one.accuracy is not None]
    if not values:
        return []
    best, count = max(values), min(len(values), BAR_COLUMNS)
    picked = [values[(at + 1) * len(values) // count - 1] for at in range(count)]  # the last one is among them
    bars = "".join(BARS[min(int(value / best * len(BARS)), len(BARS) - 1)] if best else BARS[0] for value in picked)
    return [Text(f"accuracy {bars} {values[-1]:.1%}, best {best:.1%}")]


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        yields = name in ("node", LOST)  # where the screen is narrow
        table.add_column(
            name,
            justify="left" if yields else "right",
            no_wrap=not yields,
            overflow="ellipsis",
            min_width=8 if yields else None,
        )
    return table


def _rounds(rounds: Sequence[RoundRecord], shown: int) -> Table:
    table = _table("round", "accuracy", "loss", "up", "down", "catch-up", "ratio", "time", LOST)
    for one in rounds[len(rounds) - shown :]:
        table.add_row(
            str(one.round),
            "-" if one.accuracy is None else f"{one.accuracy:.1%}",
            "-" if one.loss is None else f"{one.loss:.3f}",
            format_bytes(one.uplink_bytes),
            format_bytes(one.downlink_bytes),
            format_bytes(one.catch_up_bytes),
            f"{one.dense_bytes / one.sent_bytes:.1f}" if one.sent_bytes else "-",
            f"{one.seconds:.1f} s" if one.seconds < 59.5 else format_seconds(one.seconds),
            _lost(one),
        )
    return table


def _nodes(view: RunSnapshot, most: int | None) -> list[RenderableType]:
    """Return the table of nodes, those that give trouble first, and a line for those that have no room."""
    if not view.nodes:
        return [Text("nothing is known of the nodes yet", style="dim")]
    last = 1 << 64
    rows = sorted(
        view.nodes,
        key=lambda row: (not row.absent, not _trouble(row), last if row.partition is None else row.partition, row.node),
    )
    kept = rows if most is None else rows[:most]
    table = _table("node", "part", "up", "down", "catch-up", "version", "seen", LOST)
    for row in kept:
        table.add_row(
            str(row.node),
            "-" if row.partition is None else str(row.partition),
            format_bytes(row.uplink_bytes),
            format_bytes(row.downlink_bytes),
            format_bytes(row.catch_up_bytes),
            _version(row, view.version),
            "-" if row.heard is None else f"round {row.heard}",
            _lost(row),
            style="red" if row.absent else "",
        )
    left = len(rows) - len(kept)
    troubled = sum(1 for row in rows[len(kept) :] if _trouble(row))
    more = f"{left} more nodes, {f'{troubled} of them with' if troubled else 'none with'} lost replies"
    return [table, *([Text(more, style="dim")] if left else [])]


def _version(row: NodeRow, newest: int | None) -> str:
    if row.version is None:
        return "none yet"
    return f"{row.version}" if newest is None or row.version >= newest else f"{row.version} ({row.version - newest})"


def _trouble(row: NodeRow) -> int:
    return row.refused + row.failed + row.missing


def _lost(row: NodeRow | RoundRecord) -> Text:
    """Return the replies that did not count, by reason; nothing where there are none."""
    reasons = ((row.missing, "missing"), (row.failed, "failed"), (row.refused, "refused"))
    text = ", ".join(f"{count} {reason}" for count, reason in reasons if count)
    if isinstance(row, NodeRow) and row.absent:
        text += "; absent"
    return Text(text, style="red")
