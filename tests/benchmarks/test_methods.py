"""The comparison of all methods has an arm for each, prints one table, and knows the papers' formulas."""

import math
import sys
from pathlib import Path

import pytest

import fedcomp
from benchmarks import methods
from benchmarks.formulas import paper_bits
from server.strategies import parse_strategy


def test_every_method_has_an_arm_that_can_run() -> None:
    arms = list(methods.arms())
    assert {arm.name for arm in arms} == set(fedcomp.METHODS)
    assert set(methods.VARIANTS) <= set(fedcomp.METHODS)
    for arm in arms:
        fedcomp.parse(arm.uplink)
        fedcomp.parse(arm.downlink)
        parse_strategy(arm.strategy)


def test_the_shapes_are_those_of_resnet_18() -> None:
    shapes = methods.resnet18()
    assert len(shapes) == 62
    assert sum(map(math.prod, shapes)) == 11_173_962


def test_the_papers_formulas_by_hand() -> None:
    assert paper_bits(fedcomp.parse("randk(density=0.1)"), ((100, 10),)) == 3200
    assert paper_bits(fedcomp.parse("cgx(bits=4, bucket=1024)"), ((1024, 1024),)) == 1024 * 1024 * 4 + 64 * 1024
    assert paper_bits(fedcomp.parse("qsgd(levels=7, bucket=512)"), ((512,),)) == 4 * 512 + 32
    assert paper_bits(fedcomp.parse("powersgd(rank=2)"), ((64, 3, 3, 3), (64,))) == 32 * (2 * (64 + 27) + 64)
    assert paper_bits(fedcomp.parse("dgc(density=0.02)"), ((100, 100),)) == 200 * (32 + 16)  # 0.96 bits an entry
    assert paper_bits(fedcomp.parse("sparseloco(density=0.02)"), ((100, 100),)) == 200 * (12 + 2)  # 0.28 bits an entry
    assert paper_bits(fedcomp.parse("fastsgd()"), ((10,),)) is None


@pytest.mark.parametrize(
    ("text", "shape", "bits"),
    [
        ("cgx(bits=4)", (2000,), 32 * 2000),  # tensors of one dimension as they are
        ("terngrad()", (1000,), 1000 * math.log2(3) + 32),  # levels, a scale
        ("doublesqueeze(codec='topk', density=0.01)", (1000,), 10 * (6 + 1 / (1 - 0.99**64) + 32)),  # positions, values
    ],
)
def test_the_papers_bits_of_one_tensor_by_hand(text: str, shape: tuple[int, ...], bits: float) -> None:
    assert paper_bits(fedcomp.parse(text), (shape,)) == pytest.approx(bits)


def test_a_table_is_printed_and_a_finished_run_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(methods, "ROUNDS", 2)
    monkeypatch.setattr(methods, "NODES", 10)
    monkeypatch.setattr(
        sys, "argv", ["methods", "accuracy", "--methods", "efsign", "--seeds", "1", "--out", str(tmp_path)]
    )
    methods.main()
    first = capsys.readouterr()
    assert "efsign()" in first.out
    assert "efsign(), seed 0" in first.err
    methods.main()
    assert capsys.readouterr() == (first.out, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sizes"], "sizes"),
        (["--methods", "gzip"], "gzip"),
        (["--seeds", "0"], "0 seeds and 7 repeats"),
    ],
)
def test_an_unknown_part_or_method_is_refused(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["methods", *arguments])
    with pytest.raises(SystemExit) as stopped:
        methods.main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
