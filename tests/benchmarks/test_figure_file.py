"""A figure is written in the format that its name asks for, and twice the same figure is twice the same bytes."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from benchmarks.figure_file import FORMATS, format_of, to_bytes, write


def drawn() -> Figure:
    """Return a small figure with a line, markers and text."""
    figure = Figure(figsize=(2, 1))
    figure.add_subplot().plot([1, 2, 3], [1, 4, 9], "o-", label="a line")
    figure.suptitle("a title & more")
    return figure


@pytest.mark.parametrize(("kind", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_suffix_of_the_name_decides_and_the_bytes_repeat(tmp_path: Path, kind: str, begins: bytes) -> None:
    path = tmp_path / "figures" / f"figure.{kind.upper()}"
    write(drawn(), path)
    assert path.read_bytes().startswith(begins)
    assert path.read_bytes() == to_bytes(drawn(), kind)


def test_an_svg_keeps_text_as_text_on_no_background() -> None:
    text = to_bytes(drawn(), "svg").decode()
    assert ">a title &amp; more</text>" in text
    assert "#ffffff" not in text


@pytest.mark.parametrize("name", ["figure.jpg", "figure", "png"])
def test_another_suffix_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=name) as error:
        write(drawn(), tmp_path / "new" / name)
    assert all(kind in str(error.value) for kind in FORMATS)
    assert not any(tmp_path.iterdir())
    with pytest.raises(ValueError, match=name):
        format_of(Path(name))
