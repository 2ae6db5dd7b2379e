"""A small share of `fuzz.py`, which runs a million mutants outside the test suite."""

import re

import numpy as np
import pytest

from fedcomp.quantized import Dense
from fedcomp.wire import Kind, codec_ids
from tests.wire import doors, specimens
from tests.wire.doors import BrokenLaw, pass_through
from tests.wire.fuzz import Row, main, work
from tests.wire.mutants import BODY, KINDS, SIZES, Mutant, mutant

SEED = 20
"""Another seed than that of the long runs."""
MODEL = 300_000
"""Entries of a model that is large compared to the fixed memory."""


@pytest.mark.parametrize("kinds", [("KEY",), ("JUMP", "REPLAY")])
def test_mutants_of_some_kinds_alone(kinds: tuple[str, ...]) -> None:
    assert {mutant(SEED, number, kinds).kind for number in range(60)} == set(kinds)


def test_a_mutant_is_the_same_on_every_run() -> None:
    assert [mutant(SEED, number) for number in range(60)] == [mutant(SEED, number) for number in range(60)]
    assert mutant(SEED, 3) != mutant(SEED + 1, 3)


@pytest.mark.sample(2)
@pytest.mark.parametrize("part", range(4))
def test_mutants_are_refused_or_lead_to_a_valid_result(part: int) -> None:
    tally, failures = work(SEED, range(part * 500, part * 500 + 500), KINDS)
    assert not failures, failures[0][1]
    every = Row()
    for row in tally.values():
        every.join(row)
    assert 250 < every.refused.total() < 475
    assert every.passed > 25
    assert {label.split()[0] for label, _ in tally} == set(KINDS)
    assert {n for _, n in tally} >= set(SIZES[:2])


@pytest.mark.sample(20)
@pytest.mark.parametrize("number", specimens.numbers(MODEL))
def test_undamaged_bodies_of_every_form_take_at_most_four_times_the_model(number: int) -> None:
    codec, body = specimens.body(MODEL, number)
    specimens.body.cache_clear()
    update = specimens.update(MODEL, codec, body)
    for kind, data in ((Kind.UPDATE.name, update), (Kind.DELTA.name, specimens.delta(MODEL, codec, body))):
        assert not pass_through(Mutant(kind, MODEL, codec, data)).refused


# ---- the law itself: a code that breaks it is found -------------------------------------------------------------------------


class Broken:
    """A code that breaks the law in the way that its body names."""

    def encode(self, value: Dense, /) -> bytes:
        return b""

    def decode(self, value: bytes, /, n: int | None = None) -> Dense:
        if value == b"another error":
            raise IndexError("list index out of range")
        if value == b"much memory":
            np.empty(2 << 30, np.uint8)
        while value == b"endless":
            pass
        return Dense(np.full(9 if value == b"short" else 10, np.nan if value == b"NaN" else 1, np.float32))


FAULTS = {
    "another error": (IndexError, "list index"),
    "much memory": (BrokenLaw, "2147\\d{6} bytes of memory; 2\\d{6} are allowed"),
    "endless": (BrokenLaw, "longer than 1 s"),
    "short": (BrokenLaw, r"a vector of float32 \(9,\)"),
    "NaN": (BrokenLaw, "a vector with NaN"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_law_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(codec_ids.CODECS, 200, Broken())
    monkeypatch.setattr(doors, "LIMIT_S", 1)
    error, text = FAULTS[fault]
    with pytest.raises(error, match=text):
        pass_through(Mutant(BODY, 10, 200, fault.encode()))
    assert not pass_through(Mutant(BODY, 10, 200, b"nothing wrong")).refused


@pytest.mark.nightly
def test_the_command_line_runs_a_share_and_sums_it_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--count", "300", "--seed", str(SEED), "--first", "5000"]) == 0
    output = capsys.readouterr().out
    assert "300 of 300 mutants" in output
    assert "continue with --first 5300" in output
    assert re.search(r"^300 mutants: \d+ refused \(.*CorruptError.*\), \d+ passed$", output, re.MULTILINE)


def test_a_run_of_no_mutants_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--count", "0"])
    assert "--count and --workers are at least 1" in capsys.readouterr().err
