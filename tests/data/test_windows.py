"""Windows of text by hand, and the sonnets."""

from pathlib import Path

import numpy as np
import pytest

from fedcomp.data import DataError, load, partition_train, read_card
from fedcomp.data.windows import windows
from tests.data.tiny import make_card

CARDS = Path(__file__).parents[2] / "datasets"
SONNETS = read_card("sonnets", CARDS).text


def test_the_windows_of_two_texts_by_hand() -> None:
    card = make_card(shape=(1, 1, 2), classes=("a", "b", "c"))
    x, y, groups = windows(card, ["abcab", "cba"], "text", first=7)
    assert x.dtype == np.uint8
    assert x.tolist() == [[[[0, 1]]], [[[1, 2]]], [[[2, 0]]], [[[2, 1]]]], "ab, bc, ca; cb"
    assert y.tolist() == [2, 0, 1, 0]
    assert {name: column.tolist() for name, column in groups.items()} == {"text": [7, 7, 7, 8]}


@pytest.mark.parametrize(
    ("shape", "classes", "found"),
    [
        ((1, 1, 3), ("a", "b", "c"), "windows of 3 characters; at most 2"),
        ((1, 1, 2), ("a", "b"), "'c'"),
        ((1, 1, 2), tuple(map(chr, range(97, 97 + 257))), "257 classes; at most 256"),
    ],
)
def test_a_card_that_does_not_fit_its_text_is_refused(
    shape: tuple[int, ...], classes: tuple[str, ...], found: str
) -> None:
    with pytest.raises(DataError, match=f"^tiny: .*{found}"):
        windows(make_card(shape=shape, classes=classes), ["abcab", "cba"], "text", first=1)


def test_the_text_is_90_sonnets_of_14_lines() -> None:
    sonnets = SONNETS.split("\n\n")
    assert len(sonnets) == 90
    assert all(len(sonnet.strip().split("\n")) == 14 for sonnet in sonnets)
    assert sonnets[17].startswith("Shall I compare thee to a summer's day?\n")
    assert SONNETS.isascii()


def test_the_sonnets_need_no_folder_and_their_windows_continue_the_text() -> None:
    card = read_card("sonnets", CARDS)
    assert card.embedded
    assert list(card.classes) == sorted(set(SONNETS)), "a class for each character, and no other"
    dataset = load(card)
    assert (len(dataset.train), len(dataset.test)) == (46_188, 5_790)
    sonnets = card.texts
    for split, numbers in ((dataset.train, range(1, 81)), (dataset.test, range(81, 91))):
        assert np.unique(split.groups["sonnet"]).tolist() == list(numbers)
        for number in (numbers[0], numbers[-1]):
            rows = split.groups["sonnet"] == number
            first = "".join(card.classes[code] for code in split.x[rows][0, 0, 0])
            following = "".join(card.classes[label] for label in split.y[rows])
            assert first + following == sonnets[number - 1]


def test_a_node_can_have_whole_sonnets() -> None:
    dataset = load(read_card("sonnets", CARDS))
    parts = [
        set(dataset.train.groups["sonnet"][rows].tolist())
        for rows in partition_train(dataset, 'natural("sonnet")', 8, 0)
    ]
    assert [len(part) for part in parts] == [10] * 8
    assert set.union(*parts) == set(range(1, 81))
