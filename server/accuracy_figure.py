"""Accuracy against bytes: what the whole matter is about, in one picture."""

import io
from collections.abc import Sequence
from itertools import accumulate

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from server.progress import format_bytes
from server.round_record import RoundRecord
from server.settings import Settings


def draw(settings: Settings, records: Sequence[RoundRecord]) -> bytes:
    """Return a PNG: test accuracy over all bytes so far, measured, and as many rounds of dense Flower beside it."""
    sent = list(accumulate(record.sent_bytes for record in records))
    dense = list(accumulate(record.dense_bytes for record in records))
    shown = [at for at, record in enumerate(records) if record.accuracy is not None and sent[at] > 0]
    accuracy = [100 * (records[at].accuracy or 0.0) for at in shown]

    figure = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for totals, color, style, name in (
        (sent, "#0b6e99", "-", "fedcomp, measured"),
        (dense, "#b0413e", "--", "these rounds, sent dense"),
    ):
        megabytes = [totals[at] / 1e6 for at in shown]
        label = f"{name}: {format_bytes(totals[shown[-1]])}" if shown else name
        axes.plot(megabytes, accuracy, style, color=color, linewidth=1.8, label=label, marker="o", markersize=2.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("sent, up and down, all nodes together (MB, logarithmic)")
    axes.set_ylabel("test accuracy (%)")
    axes.set_title(f"{settings.dataset}, {settings.model}: up {settings.uplink}, down {settings.downlink}", fontsize=10)
    axes.grid(visible=True, which="major", alpha=0.35)
    axes.legend(loc="lower right", frameon=True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    png = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(png, format="png")
    return png.getvalue()
