"""Next-character prediction: a sample is a window of a text, and its label is the character that follows."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedcomp.data.card import Card
from fedcomp.data.dataset import Arrays, DataError


def read_text(card: Card) -> tuple[Arrays, Arrays]:
    """Return train and test, the windows of the texts in a card of the format ``text``.

    The card's column has the number of each window's text, counted from 1.  Raises `DataError` as `windows` does.
    """
    texts, (column,) = card.texts, card.groups
    first_test = len(texts) - card.test_texts
    train, test = texts[:first_test], texts[first_test:]
    return windows(card, train, column, first=1), windows(card, test, column, first=first_test + 1)


def windows(card: Card, texts: Sequence[str], column: str, first: int) -> Arrays:
    """Return every window of each text, and the characters that follow.

    Samples are uint8 codes (N, *card.shape), labels codes (N,); `column` has the number of the text, counted from `first`.
    The code of a character is its index in the card's classes.  No window spans two texts.  Raises `DataError` for a character
    that is no class, for more than 256 classes, and for a text that is too short for a window and a label.
    """
    length, shortest = math.prod(card.shape), min(map(len, texts))
    if length >= shortest:
        raise DataError(f"{card.name}: windows of {length} characters; at most {shortest - 1} fit into each text")
    if card.num_classes > 256:
        raise DataError(f"{card.name}: {card.num_classes} classes; at most 256 characters have a code")
    codes: Mapping[str, int] = {character: code for code, character in enumerate(card.classes)}
    unknown = sorted(set("".join(texts)) - set(codes))
    if unknown:
        raise DataError(f"{card.name}: the text has the character {unknown[0]!r}; its classes have to name it")
    coded = [np.array([codes[character] for character in text], np.uint8) for text in texts]
    x = [np.lib.stride_tricks.sliding_window_view(text[:-1], length) for text in coded]
    numbers = np.repeat(np.arange(first, first + len(texts)), [len(rows) for rows in x])
    labels = np.concatenate([text[length:] for text in coded])
    return Arrays(np.concatenate(x).reshape(-1, *card.shape), labels, {column: numbers})
