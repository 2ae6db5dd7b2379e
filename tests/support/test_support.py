"""Each pair of features learns its target, or is refused in one sentence before a node has trained: no third case."""

from pathlib import Path

import pytest

from tests.support.__main__ import FOLDER, marks
from tests.support.federation import outcome
from tests.support.runs import FEATURES, PLUG_INS
from tests.support.runs import REFUSED as REFUSED_RUNS
from tests.support.runs import outcome as run_outcome
from tests.support.table import REFUSED, Pair, pairs

ALL = {f"{title}: {pair.row} with {pair.column}": pair for title, found in pairs().items() for pair in found}


@pytest.mark.sample(59)
@pytest.mark.parametrize("pair", ALL.values(), ids=ALL)
def test_a_pair_works_or_is_refused_in_a_sentence(pair: Pair, tmp_path: Path) -> None:
    sentence = outcome(pair.federation, tmp_path)
    assert bool(sentence) == ((pair.row, pair.column) in REFUSED), sentence
    assert "\n" not in sentence


@pytest.mark.sample(29)
@pytest.mark.system
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("plug_in", PLUG_INS)
def test_a_run_with_a_plug_in_learns_or_is_refused_in_a_sentence(
    plug_in: str, feature: str, config: dict[str, object], tmp_path: Path
) -> None:
    sentence = run_outcome(plug_in, feature, config, tmp_path)
    assert bool(sentence) == ((plug_in, feature) in REFUSED_RUNS), sentence
    assert "\n" not in sentence


def test_the_pages_say_of_each_pair_what_its_test_says() -> None:
    text = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in ("index.md", "models.md"))
    for title, found in pairs().items():
        section = text.split(f"## {title}\n")[1].split("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("|")][2:]
        shown = {(row, column): mark for row, column, mark in marks([line.split(" | ") for line in rows], found)}
        assert shown == {(pair.row, pair.column): (pair.row, pair.column) not in REFUSED for pair in found}
