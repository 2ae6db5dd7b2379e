"""The results of a run: ``summary.json`` for programs, a table and a figure for people."""

import io
import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from rich.console import Console
from rich.table import Table

from fedcomp import parse
from fedcomp.core import format_bytes
from fedcomp.sync import Traffic
from server.run_records import RoundRecord
from server.settings import Settings

BLUE, ORANGE, GREEN = "#0b6e99", "#c2571a", "#3a7d44"


def summarize(settings: Settings, records: Sequence[RoundRecord], totals: Traffic) -> dict[str, object]:
    """Return ``summary.json``: the last accuracy and loss, the bytes of the whole run, and the compression ratio.

    The last accuracy and loss on the nodes are there if nodes evaluated.
    """
    last = next((record for record in reversed(records) if record.accuracy is not None), None)
    on_nodes = next((record for record in reversed(records) if record.eval_accuracy is not None), None)
    return {
        "rounds": records[-1].round if records else 0,
        "accuracy": last.accuracy if last else None,
        "loss": last.loss if last else None,
        **({"eval_accuracy": on_nodes.eval_accuracy, "eval_loss": on_nodes.eval_loss} if on_nodes else {}),
        **{name: amount for name, amount in asdict(totals).items() if name.endswith("_bytes")},
        "ratio": finite(totals.ratio),
        "settings": settings.to_config(),
    }


def table(settings: Settings, records: Sequence[RoundRecord], totals: Traffic) -> str:
    """Return the table at the end of a run, as lines of at most 100 columns."""
    summary = summarize(settings, records, totals)
    grid = Table(title=f"{settings.dataset}, {settings.model}, {summary['rounds']} rounds", title_justify="left")
    for name in ("", "measured", "dense Flower", "ratio"):
        grid.add_column(name, justify="right" if name else "left")
    up, down = totals.uplink_bytes, totals.downlink_bytes
    for name, sent, dense in (
        ("up", up, totals.dense_uplink_bytes),
        ("down", down, totals.dense_downlink_bytes),
        ("  first models", totals.first_model_bytes, None),
        ("  catch-up", totals.catch_up_bytes, None),
        ("both", up + down, totals.dense_bytes),
    ):
        ratio = "" if dense is None else f"{dense / sent:.1f}x" if sent else "-"
        grid.add_row(name, format_bytes(sent), "" if dense is None else format_bytes(dense), ratio)
    accuracy, loss = summary["accuracy"], summary["loss"]
    result = f"accuracy {accuracy:.1%}" if isinstance(accuracy, float) else "accuracy -"
    result += f", loss {loss:.3f}" if isinstance(loss, float) else ""
    text = io.StringIO()
    console = Console(file=text, width=100, color_system=None, highlight=False)
    console.print(grid)
    console.print(f"{result}; CPU seconds: encode {totals.encode_seconds:.1f}, decode {totals.decode_seconds:.1f}")
    return text.getvalue()


def figure(settings: Settings, records: Sequence[RoundRecord]) -> bytes:
    """Return the drawing of a run as a PNG."""
    drawing, png = draw(settings, records), io.BytesIO()
    FigureCanvasAgg(drawing)
    drawing.savefig(png, format="png")
    return png.getvalue()


def draw(settings: Settings, records: Sequence[RoundRecord]) -> Figure:
    """Return a figure: accuracy over the bytes sent so far, and the bytes and the downlink's density of each round."""
    drawing = Figure(figsize=(7.2, 6.4), dpi=150, layout="constrained")
    upper, lower = drawing.subplots(2, height_ratios=(3, 2), gridspec_kw={"hspace": 0.12})
    links = f"up {settings.uplink}, down {settings.downlink}"
    drawing.suptitle(f"{settings.dataset}, {settings.model}: {links}", fontsize=10)
    _draw_accuracy(upper, records)
    _draw_rounds(lower, [record for record in records if record.round > 0])
    for axes in (upper, lower):
        axes.grid(visible=True, which="major", alpha=0.35)
        axes.spines[["top", "right"]].set_visible(False)
    return drawing


def _draw_accuracy(axes: Axes, records: Sequence[RoundRecord]) -> None:
    """Draw test accuracy over the bytes sent so far, and over those of the same messages sent dense.

    The second line is the same run with other bytes, not a run without compression, and its label says so.
    """
    traffic = [record.traffic for record in records]
    sent = list(accumulate(each.uplink_bytes + each.downlink_bytes for each in traffic))
    dense = list(accumulate(each.dense_bytes for each in traffic))
    points = [
        (record.accuracy * 100, of_sent / 1e6, of_dense / 1e6)
        for record, of_sent, of_dense in zip(records, sent, dense, strict=True)
        if record.accuracy is not None and of_sent > 0
    ]
    for column, color, style, name in (
        (1, BLUE, "-", "this run, measured"),
        (2, "#8a8a8a", ":", "this run, if its messages were dense"),
    ):
        megabytes = [point[column] for point in points]
        label = f"{name}: {format_bytes(megabytes[-1] * 1e6)}" if points else name
        accuracy = [point[0] for point in points]
        axes.plot(megabytes, accuracy, style, color=color, linewidth=1.8, label=label, marker="o", markersize=2.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("MB sent, up and down, all nodes together (logarithmic)")
    axes.set_ylabel("test accuracy (%)")
    _legend_above(axes, axes.get_lines())


def _draw_rounds(axes: Axes, records: Sequence[RoundRecord]) -> None:
    rounds = [record.round for record in records]
    for color, name in ((BLUE, "up"), (ORANGE, "down")):
        kilobytes = [getattr(record.traffic, f"{name}link_bytes") / 1e3 for record in records]
        axes.plot(rounds, kilobytes, color=color, linewidth=1.4, label=name)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")
    axes.set_ylabel("kB in a round")
    lines = list(axes.get_lines())
    densities = [(record.round, density) for record in records if (density := _density(record)) is not None]
    if densities:
        right = axes.twinx()
        lines += right.plot(*zip(*densities, strict=True), ":", color=GREEN, linewidth=1.6, label="density (right)")
        right.set_yscale("log")
        right.yaxis.set_major_formatter("{x:.3g}")
        right.yaxis.set_minor_formatter("{x:.3g}")
        values = [density for _, density in densities]
        if max(values) > 10 * min(values):  # else the labels of all minor ticks fit
            right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            right.yaxis.set_minor_formatter(NullFormatter())
        right.tick_params(which="minor", labelsize=7)
        right.set_ylabel("density of the downlink", color=GREEN)
        right.spines["top"].set_visible(False)
    _legend_above(axes, lines)


def _legend_above(axes: Axes, lines: Sequence[Line2D]) -> None:
    """Draw the legend of `lines` in a row above the axes, where it covers nothing."""
    axes.legend(
        handles=lines, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(lines), frameon=False, borderaxespad=0
    )


def _density(record: RoundRecord) -> float | None:
    """Return the density of the version that a round published, if there is one that its compressor names."""
    if record.no_result or not record.downlink:
        return None
    try:
        density = dict(parse(record.downlink).settings).get("density")
    except ValueError:  # of a plug-in that is not installed any more
        return None
    return density if isinstance(density, float) else None


def finite(value: float) -> float | None:
    """Return `value`, or `None` for NaN and infinity, which JSON cannot express."""
    return value if math.isfinite(value) else None
