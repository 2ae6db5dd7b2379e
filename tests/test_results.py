"""The page of claims says what the pages say that it names."""

import re
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "docs" / "results"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (RESULTS / "claims.md").read_text(encoding="utf-8").splitlines()
    if line.startswith(("| **", "| STC"))
]


def test_every_claim_has_a_verdict() -> None:
    assert len(ROWS) > 25
    for claim, measured, verdict in ROWS:
        assert verdict.startswith(("holds", "in part", "does not")), claim
        assert "](" in measured, claim


@pytest.mark.parametrize("row", ROWS, ids=[re.sub(r"\W+", "-", row[0])[:40] for row in ROWS])
def test_the_numbers_of_a_claim_are_on_the_page_that_it_names(row: list[str]) -> None:
    sources = re.findall(r"\[[^\]]+\]\(([\w./-]+)[^)]*\)([^\[]*)", row[1])
    assert sources
    for page, text in sources:
        known = re.findall(r"\d+(?:\.\d+)?", (RESULTS / page).read_text(encoding="utf-8"))
        settings = r"density \d+\.\d+|gamma \d+\.\d+|skew \d+\.\d+"
        for number in re.findall(r"\d+\.\d+", re.sub(settings, "", text)):
            assert number in known, f"{number} is not on {page}"
