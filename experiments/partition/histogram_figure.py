"""Partitions side by side: classes by client as heat maps, with the clients' sizes as bars above."""

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from fedcomp.data import Spread

MAX_COLUMNS = 3
"""The most partitions in one row of the figure."""


def draw(spreads: dict[str, Spread], names: tuple[str, ...], title: str) -> Figure:
    """Return a figure with a panel for each partition; `names` are those of the classes."""
    down = -(-len(spreads) // MAX_COLUMNS)
    across = -(-len(spreads) // down)
    height = 2.2 + 0.22 * len(names)
    figure = Figure(figsize=(1.6 + 4.6 * across, 0.6 + height * down), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=11)
    grid = figure.add_gridspec(2 * down, across, height_ratios=[1, 0.16 * len(names) + 0.8] * down)
    maps: list[Axes] = []
    image: AxesImage | None = None
    for at, (text, spread) in enumerate(spreads.items()):
        row, column = divmod(at, across)
        below = figure.add_subplot(grid[2 * row + 1, column])
        above = figure.add_subplot(grid[2 * row, column], sharex=below)
        _bars(above, spread, text, labelled=column == 0)
        image = _map(below, spread, names, labelled=column == 0)
        maps.append(below)
    if image is not None:
        bar = figure.colorbar(image, ax=maps, label="% of the client's samples\n(white: none)", pad=0.01)
        bar.set_ticks([1, 10, 25, 50, 75, 100])
    return figure


def _bars(axes: Axes, spread: Spread, text: str, *, labelled: bool) -> None:
    sizes = spread.sizes
    axes.bar(np.arange(len(sizes)), sizes, width=1.0, color="#0072b2", linewidth=0)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.tick_params(labelbottom=False)
    distance = f"Jensen-Shannon {spread.jensen_shannon.mean():.2f}, Gini {spread.gini:.2f}"
    axes.set_title(f"{text}\n{distance}", fontsize=9)
    if labelled:
        axes.set_ylabel("samples")


def _map(axes: Axes, spread: Spread, names: tuple[str, ...], *, labelled: bool) -> AxesImage:
    shares = np.ma.masked_equal(100 * spread.shares.T, 0)
    colors = ListedColormap(colormaps["YlGnBu"](np.linspace(0.12, 1, 256))).with_extremes(bad="white")
    # On a root scale a share of 10 %, as in ten even classes, still differs from one of 1 %.
    norm = PowerNorm(0.5, vmin=0, vmax=100)
    image = axes.imshow(shares, cmap=colors, norm=norm, aspect="auto", interpolation="nearest")
    axes.set_xlabel("client")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_yticks(range(len(names)), names if labelled else [""] * len(names), fontsize=8)
    if labelled:
        axes.set_ylabel("class")
    return image
