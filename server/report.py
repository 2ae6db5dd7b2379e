"""What a run has shown: the summary that programs read, and the table that people do."""

import io
import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from fedcomp.sync import Traffic
from server.progress import format_bytes
from server.round_record import RoundRecord
from server.settings import Settings


def summarize(settings: Settings, records: Sequence[RoundRecord], totals: Traffic) -> dict[str, object]:
    """Return ``summary.json``: the last accuracy and loss, the bytes of the whole run, and the compression ratio."""
    evaluated = [record for record in records if record.accuracy is not None]
    return {
        "rounds": records[-1].round if records else 0,
        "accuracy": evaluated[-1].accuracy if evaluated else None,
        "loss": evaluated[-1].loss if evaluated else None,
        "uplink_bytes": totals.uplink_bytes,
        "downlink_bytes": totals.downlink_bytes,
        "catch_up_bytes": totals.catch_up_bytes,
        "dense_uplink_bytes": totals.dense_uplink_bytes,
        "dense_downlink_bytes": totals.dense_downlink_bytes,
        "ratio": finite(totals.ratio),
        "settings": settings.to_config(),
    }


def table(settings: Settings, records: Sequence[RoundRecord], totals: Traffic) -> str:
    """Return the table at the end of a run, as lines of at most 100 columns."""
    summary = summarize(settings, records, totals)
    up, down = totals.uplink_bytes, totals.downlink_bytes
    dense_up, dense_down = totals.dense_uplink_bytes, totals.dense_downlink_bytes
    grid = Table(title=f"{settings.dataset}, {settings.model}, {summary['rounds']} rounds", title_justify="left")
    for name in ("", "measured", "dense Flower", "ratio"):
        grid.add_column(name, justify="left" if not name else "right")
    grid.add_row("up", format_bytes(up), format_bytes(dense_up), _ratio(dense_up, up))
    grid.add_row("down", format_bytes(down), format_bytes(dense_down), _ratio(dense_down, down))
    grid.add_row("  of it catch-up", format_bytes(totals.catch_up_bytes), "", "")
    grid.add_row(
        "both", format_bytes(up + down), format_bytes(dense_up + dense_down), _ratio(dense_up + dense_down, up + down)
    )
    accuracy, loss = summary["accuracy"], summary["loss"]
    last = f"accuracy {accuracy:.1%}" if isinstance(accuracy, float) else "accuracy -"
    if isinstance(loss, float):
        last += f", loss {loss:.3f}"
    text = io.StringIO()
    console = Console(file=text, width=100, color_system=None)
    console.print(grid)
    console.print(
        f"{last}; encode {totals.encode_seconds:.1f} s, decode {totals.decode_seconds:.1f} s", highlight=False
    )
    return text.getvalue()


def finite(value: float) -> float | None:
    """Return `value`, or `None` for NaN and infinity, which JSON has no word for."""
    return value if math.isfinite(value) else None


def _ratio(dense: int, sent: int) -> str:
    return f"{dense / sent:.1f}x" if sent else "-"
