"""The comparisons of all methods have each of them, and know the papers' formulas."""

import math
import sys
from pathlib import Path

import pytest

import fedcomp
from benchmarks import methods
from benchmarks.formulas import paper_bits
from experiments.plan import read_plan
from fedcomp.core import parse_call

STUDIES = Path(__file__).parents[2] / "experiments" / "studies"


def test_every_codec_has_a_text_that_can_be_read() -> None:
    assert {parse_call(text)[0] for text in methods.texts()} == set(fedcomp.METHODS) - set(methods.CHOICES)
    assert {*methods.VARIANTS, *methods.CHOICES} <= set(fedcomp.METHODS)
    for text in methods.texts():
        fedcomp.parse(text)


def test_the_study_of_the_methods_has_each_that_can_be_an_uplink() -> None:
    plan = read_plan(STUDIES / "methods.toml")
    uplinks = {parse_call(str(cell.settings["uplink"]))[0] for cell in plan.cells}
    assert uplinks == {name for name in fedcomp.METHODS if fedcomp.METHODS.about(name).uplink}
    assert {str(cell.settings["uplink"]) for cell in plan.cells} >= set(methods.texts())


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


def test_a_table_has_a_row_for_each_setting_of_a_method(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(methods, "resnet18", lambda: ((100, 10), (10,)))
    monkeypatch.setattr(sys, "argv", ["methods", "--methods", "terngrad", "--repeats", "1"])
    methods.main()
    title, _, head, *rows = capsys.readouterr().out.splitlines()
    assert "ResNet-18" in title
    assert head.split() == ["method", "encode", "x", "decode", "x", "bits/param", "paper"]
    assert [row.split()[0] for row in rows] == ["terngrad()", "terngrad(scaler='power')"]
    assert all(float(row.split()[-1]) == pytest.approx(math.log2(3) + 2 * 32 / 1010, abs=1e-4) for row in rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "gzip"], "gzip"),
        (["--methods", "auto"], "auto"),
        (["--repeats", "0"], "0 repeats"),
    ],
)
def test_an_unknown_method_is_refused(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["methods", *arguments])
    with pytest.raises(SystemExit) as stopped:
        methods.main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
