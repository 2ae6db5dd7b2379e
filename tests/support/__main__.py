"""Writes the pages of what works together, docs/reference/support/, after it has run each pair: python -m tests.support."""

import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.contraction import OUTCOMES, USES
from tests.flower.replies import REPLIES
from tests.support.federation import outcome
from tests.support.runs import FEATURES
from tests.support.runs import PLUG_INS as RUN_PLUG_INS
from tests.support.runs import REFUSED as REFUSED_RUNS
from tests.support.table import NOTES, REFUSED, UPLINKS, Pair, pairs
from tests.support.training_traits import EXPECTED, TRAITS

FOLDER = Path(__file__).parents[2] / "docs" / "reference" / "support"
WORKS, NO, MARK = "works", "refused", "✓"
WIDE = """---
hide: [toc]
---

"""
"""Before the title of a page with wide tables: its contents do not take the room beside them."""
HEAD = """# What works together

Each pair of features has a test, and one of two outcomes:

* **✓**: it works. Four nodes learn a target that is known, the trait holds at the end, and no message is refused.
* **refused**: fedcomp refuses it in one sentence, before a node has trained.

There is no third outcome. More tables: [models and replies](models.md), [without a server](without-server.md),
[training plug-ins](training.md). `python -m tests.support` runs each pair and writes these pages.

The columns of the first table are what a sender remembers from one message to the next:
"""
REPLY = """The update counts as in plain Flower, or it is refused in a sentence with these words. Tests:
`tests/flower/test_reply_table.py`."""
COMPRESSORS = """In gossip (`choco`, `deep_squeeze`) and in split learning (`change`, `direct`). Tests:
`tests/gossip/test_contraction.py`, `tests/split/test_contraction.py`."""
PLUG_INS = """Each plug-in of `fedcomp.training` on models of each kind: it has its effect, or `begin` refuses it. Tests:
`tests/training/test_traits.py`."""
RUNS = """Runs of fedcomp's own app on the digits: the loss falls, or the run is refused before anything starts. Tests:
`tests/support/test_support.py`."""


def rows_and_columns(found: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Return the names of both sides of these pairs, each once."""
    return list(dict.fromkeys(pair.row for pair in found)), list(dict.fromkeys(pair.column for pair in found))


def is_turned(found: Sequence[Pair]) -> bool:
    """Return whether the page has the columns of these pairs as lines: a table is as narrow as it can be."""
    rows, columns = rows_and_columns(found)
    return len(columns) > len(rows)


def table(found: Sequence[Pair]) -> Iterator[str]:
    """Yield the lines of a table of these pairs, and behind it the sentences of those that are refused, and the notes."""
    rows, columns = rows_and_columns(found)
    cells, sentences, notes = dict[tuple[str, str], str](), list[str](), list[str]()
    for pair in found:
        with tempfile.TemporaryDirectory() as folder:
            sentence = outcome(pair.federation, Path(folder))
        place = (pair.row, pair.column)
        if bool(sentence) != (place in REFUSED):
            raise SystemExit(
                f"error: {place} {'is refused: ' + sentence if sentence else 'works'}; the table says otherwise"
            )
        if sentence and sentence not in sentences:
            sentences.append(sentence)
        cells[place] = f"{NO} ({sentences.index(sentence) + 1})" if sentence else MARK
        if place in NOTES:
            notes.append(f"* {pair.row}, {pair.column}: {NOTES[place]}.")
    turned = is_turned(found)
    firsts, heads = (columns, rows) if turned else (rows, columns)
    yield "| | " + " | ".join(heads) + " |"
    yield "| --- |" + " --- |" * len(heads)
    for first in firsts:
        places = [(head, first) if turned else (first, head) for head in heads]
        yield f"| {first} | " + " | ".join(cells.get(place, "") for place in places) + " |"
    yield ""
    yield from (f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1))
    yield from (["", *notes] if notes else [])


def replies() -> Iterator[str]:
    """Yield the table of what a ClientApp may reply."""
    yield from ("| the reply to a training message | |", "| --- | --- |")
    for case in REPLIES:
        yield f"| {case.title} | " + (MARK if case.counts else f"{NO}: `{case.says}`") + " |"


def compressors() -> Iterator[str]:
    """Yield the table of what compressors may be used for where there is no server, or a part of the model."""
    yield from ("| | " + " | ".join(f"`{use}`" for use in USES) + " |", "| --- |" + " --- |" * len(USES))
    for text in dict.fromkeys(text for text, _ in OUTCOMES):
        found = (OUTCOMES[text, use] for use in USES)
        yield f"| `{text}` | " + " | ".join(MARK if mark == WORKS else f"{NO}: {mark}" for mark in found) + " |"


def plug_ins() -> Iterator[str]:
    """Yield the table of training plug-ins and models."""
    texts = list(dict.fromkeys(text for text, _ in EXPECTED))
    yield from ("| | " + " | ".join(f"`{text}`" for text in texts) + " |", "| --- |" + " --- |" * len(texts))
    for trait in TRAITS:
        yield f"| {trait} | " + " | ".join(MARK if EXPECTED[text, trait] == WORKS else NO for text in texts) + " |"


def runs() -> Iterator[str]:
    """Yield the table of training plug-ins and features of a run."""
    heads = (f"`{text}`" if text else "none" for text in RUN_PLUG_INS)
    yield from ("| | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(RUN_PLUG_INS))
    for feature in FEATURES:
        cells = (NO if (text, feature) in REFUSED_RUNS else MARK for text in RUN_PLUG_INS)
        yield f"| {feature} | " + " | ".join(cells) + " |"


def marks(lines: Sequence[Sequence[str]], found: Sequence[Pair]) -> Iterator[tuple[str, str, bool]]:
    """Yield (row, column, whether it works) of the lines of such a table, each split at its bars."""
    turned, (rows, columns) = is_turned(found), rows_and_columns(found)
    for first, *cells in lines:
        for head, cell in zip(rows if turned else columns, cells, strict=True):
            if mark := cell.strip(" |"):
                row, column = (head, first.strip("| ")) if turned else (first.strip("| "), head)
                yield row, column, mark == MARK


def main() -> None:
    """Write the pages."""
    logging.disable(logging.CRITICAL)
    features, models, together = pairs().items()
    lines = [HEAD, "| the uplink remembers | for example |", "| --- | --- |"]
    lines += [f"| {name} | `{text}` |" for name, text in UPLINKS.items()]
    for title, found in (features, together):
        lines += ["", f"## {title}", "", *table(found)]
    pages = {"index.md": lines}
    title, found = models
    pages["models.md"] = ["# Models and replies", "", f"## {title}", "", *table(found)]
    pages["models.md"] += ["", "## What an app may reply", "", REPLY, "", *replies()]
    pages["without-server.md"] = ["# Compressors without a server", "", COMPRESSORS, "", *compressors()]
    pages["training.md"] = [
        "# Training plug-ins and what they work with",
        "",
        "## Models",
        "",
        PLUG_INS,
        "",
        *plug_ins(),
    ]
    pages["training.md"] += ["", "## Features of a run", "", RUNS, "", *runs()]
    for name, page in pages.items():
        (FOLDER / name).write_text(WIDE + "\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
