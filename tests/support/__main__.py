"""Prints the page of what works together, after it has run each pair: python -m tests.support > docs/support.md."""

import logging
import sys
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

PAGE = Path(__file__).parents[2] / "docs" / "support.md"
WORKS, NO = "works", "refused"
HEAD = """# What works together

Each pair of features below has a test. Either it **works**: a federation of four nodes, whose target is known, learns it, the
trait holds at the end, and no message is refused. Or it is **refused** in one sentence, before a node has trained. There is no
third case. `python -m tests.support` runs each pair and prints this page; `tests/support/` has the federations.
"""
REPLY = """The update counts as in plain Flower, or it is refused in a sentence with these words. Tests:
`tests/flower/test_reply_table.py`."""
COMPRESSORS = """In gossip (`choco`, `deep_squeeze`) and in split learning (`change`, `direct`). Tests:
`tests/gossip/test_contraction.py`, `tests/split/test_contraction.py`."""
PLUG_INS = """Each plug-in of `fedcomp.training` on models of each kind: it has its effect, or `begin` refuses it. Tests:
`tests/training/test_traits.py`."""
RUNS = """Runs of fedcomp's own app on the digits: the loss falls, or the run is refused before anything starts. Tests:
`tests/support/test_support.py`."""


def table(found: Sequence[Pair]) -> Iterator[str]:
    """Yield the lines of a table of these pairs, and behind it the sentences of those that are refused, and the notes."""
    rows, columns = (list(dict.fromkeys(names)) for names in ([p.row for p in found], [p.column for p in found]))
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
        cells[place] = f"{NO} ({sentences.index(sentence) + 1})" if sentence else WORKS
        if place in NOTES:
            notes.append(f"* {pair.row}, {pair.column}: {NOTES[place]}.")
    yield "| | " + " | ".join(columns) + " |"
    yield "| --- |" + " --- |" * len(columns)
    for row in rows:
        yield f"| {row} | " + " | ".join(cells.get((row, column), "") for column in columns) + " |"
    yield ""
    yield from (f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1))
    yield from (["", *notes] if notes else [])


def replies() -> Iterator[str]:
    """Yield the table of what a ClientApp may reply."""
    yield from ("| the reply to a training message | |", "| --- | --- |")
    for case in REPLIES:
        yield f"| {case.title} | " + (WORKS if case.counts else f"{NO}: `{case.says}`") + " |"


def compressors() -> Iterator[str]:
    """Yield the table of what compressors may be used for where there is no server, or a part of the model."""
    yield from ("| | " + " | ".join(f"`{use}`" for use in USES) + " |", "| --- |" + " --- |" * len(USES))
    for text in dict.fromkeys(text for text, _ in OUTCOMES):
        found = (OUTCOMES[text, use] for use in USES)
        yield f"| `{text}` | " + " | ".join(mark if mark == WORKS else f"{NO}: {mark}" for mark in found) + " |"


def plug_ins() -> Iterator[str]:
    """Yield the table of training plug-ins and models."""
    texts = list(dict.fromkeys(text for text, _ in EXPECTED))
    yield from ("| | " + " | ".join(f"`{text}`" for text in texts) + " |", "| --- |" + " --- |" * len(texts))
    for trait in TRAITS:
        yield f"| {trait} | " + " | ".join(EXPECTED[text, trait] for text in texts) + " |"


def runs() -> Iterator[str]:
    """Yield the table of training plug-ins and features of a run."""
    yield from ("| | " + " | ".join(FEATURES) + " |", "| --- |" + " --- |" * len(FEATURES))
    for text in RUN_PLUG_INS:
        cells = (NO if (text, feature) in REFUSED_RUNS else WORKS for feature in FEATURES)
        yield f"| {f'`{text}`' if text else 'none'} | " + " | ".join(cells) + " |"


def marks(rows: Sequence[Sequence[str]], found: Sequence[Pair]) -> Iterator[tuple[str, str, bool]]:
    """Yield (row, column, whether it works) of the rows of such a table, each split at its bars."""
    columns = list(dict.fromkeys(pair.column for pair in found))
    for first, *cells in rows:
        for column, cell in zip(columns, cells, strict=True):
            if mark := cell.strip(" |"):
                yield first.strip("| "), column, mark == WORKS


def main() -> None:
    """Print the page."""
    logging.disable(logging.CRITICAL)
    lines = [HEAD, "| the uplink remembers | here as |", "| --- | --- |"]
    lines += [f"| {name} | `{text}` |" for name, text in UPLINKS.items()]
    for title, found in pairs().items():
        lines += ["", f"## {title}", "", *table(found)]
    lines += ["", "## What an app may reply", "", REPLY, "", *replies()]
    lines += ["", "## Compressors without a server", "", COMPRESSORS, "", *compressors()]
    lines += ["", "## Training plug-ins", "", PLUG_INS, "", *plug_ins()]
    lines += ["", "## Training plug-ins in a run", "", RUNS, "", *runs()]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
