"""The comparison at equal uplink bytes, on digits and few rounds."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import equal_bytes
from benchmarks.equal_bytes import ARMS, best_within, curve, draw, run


@pytest.fixture
def options(tmp_path: Path) -> argparse.Namespace:
    """Digits among four clients, half of them a round."""
    return argparse.Namespace(
        out=tmp_path,
        data_dir="",
        dataset="digits",
        partition="classes(2)",
        model="logistic",
        clients=10,
        fraction=0.5,
        batch_size=10,
        learning_rate=0.1,
        seed=0,
    )


def test_an_arm_is_run_once_and_its_curve_is_what_was_measured(options: argparse.Namespace) -> None:
    arm = replace(ARMS[3], rounds=4, evaluate_every=2)
    run(arm, options)
    (folder,) = options.out.iterdir()
    summary = folder / "summary.json"
    before = summary.stat().st_mtime_ns
    run(arm, options)
    assert summary.stat().st_mtime_ns == before
    megabytes, accuracy = curve(arm, options.out)
    assert len(megabytes) == len(accuracy) == 2
    assert megabytes[-1] == pytest.approx(json.loads(summary.read_text())["uplink_bytes"] / 1e6)
    assert draw({arm: (megabytes, accuracy)}, "a title").axes[0].get_xscale() == "log"


def test_the_best_within_a_budget_looks_no_further() -> None:
    assert best_within([1, 2, 3], [50, 80, 70], 2) == 80
    assert best_within([1, 2, 3], [50, 80, 90], 1.5) == 50
    assert best_within([1, 2], [50, 80], 0.5) is None


def test_every_arm_is_named_once_and_compresses_both_ways_alike() -> None:
    assert len({equal_bytes._slug(arm) for arm in ARMS}) == len(ARMS)
