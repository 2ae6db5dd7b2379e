"""Test accuracy against bytes, as a picture."""

import io
from collections.abc import Sequence
from itertools import accumulate

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from server.progress import format_bytes
from server.run_records import RoundRecord
from server.settings import Settings


def draw(settings: Settings, records: Sequence[RoundRecord]) -> bytes:
    """Return a PNG: test accuracy over the bytes sent so far, and over those of the same rounds with plain Flower."""
    traffic = [record.traffic for record in records]
    sent = list(accumulate(each.uplink_bytes + each.downlink_bytes for each in traffic))
    dense = list(accumulate(each.dense_bytes for each in traffic))
    points = [
        (record.accuracy * 100, of_sent / 1e6, of_dense / 1e6)
        for record, of_sent, of_dense in zip(records, sent, dense, strict=True)
        if record.accuracy is not None and of_sent > 0
    ]

    figure = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for column, color, style, name in (
        (1, "#0b6e99", "-", "fedcomp, measured"),
        (2, "#b0413e", "--", "these rounds, sent dense"),
    ):
        megabytes = [point[column] for point in points]
        label = f"{name}: {format_bytes(megabytes[-1] * 1e6)}" if points else name
        accuracy = [point[0] for point in points]
        axes.plot(megabytes, accuracy, style, color=color, linewidth=1.8, label=label, marker="o", markersize=2.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("sent, up and down, all nodes together (MB, logarithmic)")
    axes.set_ylabel("test accuracy (%)")
    axes.set_title(f"{settings.dataset}, {settings.model}: up {settings.uplink}, down {settings.downlink}", fontsize=10)
    axes.grid(visible=True, which="major", alpha=0.35)
    axes.legend(loc="lower right", frameon=True)
    axes.spines[["top", "right"]].set_visible(False)
    png = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(png, format="png")
    return png.getvalue()
