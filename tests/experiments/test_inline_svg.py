"""A figure in a page takes the page's colours, and does not clash with the other figures of the page."""

import re

from matplotlib.figure import Figure

from experiments.inline_svg import inline_svg


def drawn() -> Figure:
    """Return a figure with black and coloured lines, markers with white edges, and text."""
    figure = Figure(figsize=(4, 3))
    axes = figure.add_subplot()
    axes.plot([1, 2, 3], [1, 4, 9], "o-", color="#000000", markeredgecolor="#ffffff")
    axes.plot([1, 2, 3], [3, 2, 1], color="#d55e00")
    axes.set_title("<b>")
    return figure


def test_black_and_white_become_the_colours_of_the_page_and_others_stay() -> None:
    svg = inline_svg(drawn(), "one")
    assert svg.startswith('<svg fill="currentColor" ')
    assert "stroke: currentColor" in svg
    assert "stroke: var(--page)" in svg
    assert "#d55e00" in svg
    assert not re.search("#000000|#ffffff", svg)
    assert "&lt;b&gt;</text>" in svg


def test_every_id_of_a_figure_is_referred_to_and_is_in_no_other_figure() -> None:
    one, two = inline_svg(drawn(), "one"), inline_svg(drawn(), "two")
    ids = re.findall(r' id="([^"]*)"', one)
    assert len(set(ids)) == len(ids) > 0
    assert set(ids) == set(re.findall(r'(?:url\(|href=")#([\w-]+)', one))
    assert not set(ids) & set(re.findall(r' id="([^"]*)"', two))
