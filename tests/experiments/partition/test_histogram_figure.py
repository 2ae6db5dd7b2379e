"""The figure has a panel for each partition, whose cells and bars are the shares and sizes."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from experiments.partition.histogram_figure import draw
from fedcomp.data import Spread

SPREAD = Spread(np.array([[4, 0], [1, 7], [8, 8]]), np.array([20, 15]))


def test_a_panel_shows_shares_in_percent_below_sizes() -> None:
    figure = draw({"half": SPREAD}, ("cat", "dog"), "a title")
    below, above = figure.axes[:2]
    (image,) = below.images
    shares = image.get_array()
    assert shares is not None
    assert np.ma.getdata(shares).tolist() == [[100, 12.5, 50], [0, 87.5, 50]]
    assert [bar.get_height() for bar in above.patches if isinstance(bar, Rectangle)] == [4, 8, 16]
    assert [label.get_text() for label in below.get_yticklabels()] == ["cat", "dog"]
    assert above.get_title().startswith("half\nJensen-Shannon 0.")


@pytest.mark.parametrize("count", [1, 3, 4])
def test_a_row_has_at_most_three_panels(count: int) -> None:
    figure = draw({f"p{number}": SPREAD for number in range(count)}, ("cat", "dog"), "a title")
    assert len(figure.axes) == 2 * count + 1  # and the colour bar
    figure.canvas.draw()
    tops = {round(axes.get_position().y1, 2) for axes in figure.axes[1::2][:count]}
    assert len(tops) == -(-count // 3)
