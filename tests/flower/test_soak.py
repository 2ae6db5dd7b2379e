"""A small share of `soak.py`, which runs a hundred thousand rounds outside the test suite; and that it finds what is broken."""

import re
from collections import Counter

import pytest

from fedcomp.memory import Ef21, LinearFeedback
from tests.flower import soak

pytestmark = pytest.mark.one_flower

SEED = 20
"""Another seed than those of the long runs."""
KINDS = ("flower",)
"""Gossip and split learning have tests of their own."""


@pytest.mark.sample(1)
@pytest.mark.parametrize("first", [0, 100, 500, 200])
def test_no_faults_break_a_law(first: int) -> None:
    result = soak.soak(SEED, first, lambda result: result.rounds >= 100, KINDS)
    assert not result.broken, next(iter(result.broken.values()))
    assert len(result.faults) > 5
    assert len(result.seen) > 15


def test_a_trial_is_the_same_on_every_run() -> None:
    first, second = (soak.soak(SEED, 402, lambda result: result.trials == 1, KINDS) for _ in range(2))
    assert list(first.lines()) == list(second.lines())


def test_each_kind_has_its_share() -> None:
    drawn = Counter(soak.drawn_kind(SEED, number, tuple(soak.SHARES)) for number in range(1000))
    assert all(abs(drawn[kind] - 1000 * share) < 60 for kind, share in soak.SHARES.items())
    assert {soak.drawn_kind(SEED, number, ["split", "gossip"]) for number in range(50)} == {"split", "gossip"}


@pytest.mark.nightly
def test_the_command_line_prints_the_sums(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--rounds", "1", "--seed", str(SEED), "--first", "7", "--kinds", "flower"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^1 trials, \d+ rounds", printed)
    assert printed.endswith("0 broke a law\n")
    with pytest.raises(SystemExit):
        soak.main(["--rounds", "0"])


@pytest.mark.parametrize(("memory", "first"), [(LinearFeedback, 203), (Ef21, 402)])
def test_a_memory_that_takes_nothing_back_is_found(
    memory: type, first: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "rollback", lambda self, lost, state: state)
    result = soak.soak(SEED, first, lambda result: bool(result.broken) or result.trials == 60, KINDS)
    (number,) = result.broken
    assert "is off by" in result.broken[number]
    assert f"trial {number} of seed {SEED} broke a law" in capsys.readouterr().out
