"""Windows of text by hand, and the sonnets."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedcomp.data import DataError, load, partition_train, read_card
from fedcomp.data.card import CardText
from fedcomp.data.windows import windows
from tests.data.tiny import make_card

CARDS = Path(__file__).parents[2] / "datasets"


SHA256 = "4ac1220ac89679b910f375f3953fbd5c281c4f0adb4b887731328afa78e48954"


def sonnets() -> list[str]:
    text = read_card("sonnets", CARDS).text
    assert text is not None
    return [*text.train.strip().split("\n\n"), *text.test.strip().split("\n\n")]


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


def test_a_card_has_its_texts_and_counts_them_from_1() -> None:
    settings = {"shape": (1, 1, 2), "classes": ("a", "b", "c"), "train": (), "test": (), "groups": ("verse",)}
    card = make_card(**settings, format="text", text=CardText("abca\n\ncbab\n", "\nbca"))
    dataset = load(card)
    assert dataset.train.x.tolist() == [[[[0, 1]]], [[[1, 2]]], [[[2, 1]]], [[[1, 0]]]]
    assert dataset.train.groups["verse"].tolist() == [1, 1, 2, 2]
    assert (dataset.test.x.tolist(), dataset.test.groups["verse"].tolist()) == ([[[[1, 2]]]], [3])


@pytest.mark.parametrize("lacking", [{"text": None}, {"groups": ()}])
def test_a_card_of_text_needs_texts_and_a_column(lacking: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\[text\]"):
        make_card(
            **{"train": (), "test": (), "format": "text", "text": CardText("a", "b"), "groups": ("verse",)} | lacking
        )


def test_the_text_is_90_sonnets_of_14_lines() -> None:
    assert len(sonnets()) == 90
    assert all(len(sonnet.split("\n")) == 14 for sonnet in sonnets())
    assert sonnets()[17].startswith("Shall I compare thee to a summer's day?\n")
    assert hashlib.sha256("\n\n".join(sonnets()).encode()).hexdigest() == SHA256


def test_the_sonnets_need_no_folder_and_their_windows_continue_the_text() -> None:
    card = read_card("sonnets", CARDS)
    assert card.embedded
    assert list(card.classes) == sorted(set("\n".join(sonnets()))), "a class for each character, and no other"
    dataset = load(card)
    assert (len(dataset.train), len(dataset.test)) == (46_188, 5_790)
    for split, numbers in ((dataset.train, range(1, 81)), (dataset.test, range(81, 91))):
        assert np.unique(split.groups["sonnet"]).tolist() == list(numbers)
        for number in (numbers[0], numbers[-1]):
            rows = split.groups["sonnet"] == number
            first = "".join(card.classes[code] for code in split.x[rows][0, 0, 0])
            following = "".join(card.classes[label] for label in split.y[rows])
            assert first + following == sonnets()[number - 1]


def test_a_node_can_have_whole_sonnets() -> None:
    dataset = load(read_card("sonnets", CARDS))
    parts = [
        set(dataset.train.groups["sonnet"][rows].tolist())
        for rows in partition_train(dataset, 'natural("sonnet")', 8, 0)
    ]
    assert [len(part) for part in parts] == [10] * 8
    assert set.union(*parts) == set(range(1, 81))
