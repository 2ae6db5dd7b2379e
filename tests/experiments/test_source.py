"""Where something stands in a TOML file, whatever the lines around it look like."""

from pathlib import Path

import numpy as np
import pytest

from experiments.source import Place, Source, StudyError, Table, Where, read_table

FILE = '''# [run]
title = "[grid]"   # title = "another"
question = """
[run]
dataset = "not this one"
density = [1,
"""

[run] # model = "nor this"
"dataset" = "digits"
'batch-size' = 10

[grid]
density = [  # 0.3
    0.1, 0.2,
    # 0.3
    0.3,
    """
0.4""",
]
partition = [
    "iid()",
]

[[method]]
label = "one"

[[ method ]]
label = "two"
uplink = \'\'\'
[[method]]
label = "three"\'\'\'
'''


def line(text: str, *where: str | int) -> int | None:
    return Source(Path("study.toml"), text).line(where)


@pytest.mark.parametrize(
    ("where", "number"),
    [
        (("title",), 2),
        (("question",), 3),
        (("run",), 9),
        (("run", "dataset"), 10),
        (("run", "batch-size"), 11),
        (("grid", "density"), 14),
        (("grid", "density", 0), 15),
        (("grid", "density", 1), 15),
        (("grid", "density", 2), 17),
        (("grid", "density", 3), 18),
        (("grid", "partition", 0), 22),
        (("method", 0), 25),
        (("method", 0, "label"), 26),
        (("method", 1), 28),
        (("method", 1, "label"), 29),
        (("method", 1, "uplink"), 30),
    ],
)
def test_a_line_is_that_of_the_key_or_the_entry(where: Where, number: int) -> None:
    assert line(FILE, *where) == number


@pytest.mark.parametrize(
    "where", [("model",), ("run", "model"), ("run", "density"), ("method", 2), ("grid", "density", 4), ("title", 0)]
)
def test_what_only_looks_like_a_key_has_no_line(where: Where) -> None:
    assert line(FILE, *where) is None


@pytest.mark.parametrize(
    ("text", "where", "number"),
    [
        ('title = "a"\nrun.dataset = "digits"\nrun.model = "mlp"', ("run", "model"), 3),
        ('run = { dataset = "digits", "model" = "mlp" }', ("run", "model"), 1),
        ('method = [\n  { label = "one" },\n  { label = "two" },\n]', ("method", 1, "label"), 3),
        ("grid = { seed = [\n0,\n1], density = [0.1,\n0.2\n] }", ("grid", "density", 1), 4),
        ("a = [[1,\n2],\n[3,\n4]]", ("a", 1, 1), 4),
        ('title = "a"\r\n\r\n[run]\r\nseed = 1\r\n', ("run", "seed"), 4),
        ("a = '\u2028 \x85'\nb = 1", ("b",), 2),
        ('"a b".c = 1\n[x."y.z"]\nd = 2', ("x", "y.z", "d"), 3),
    ],
)
def test_every_way_to_write_a_key_is_found(text: str, where: Where, number: int) -> None:
    assert line(text, *where) == number


DECOYS = (
    "# {key} = 1",
    "x{n} = '{key} = 1 [{table}]'",
    'y{n} = """\n[{table}]\n{key} = 1\n"""',
    "z{n} = [\n  '{key} = 1',\n  '[{table}]',\n]",
    "",
)


@pytest.mark.parametrize("seed", range(5))
def test_keys_among_decoys_are_found_where_they_were_put(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines: list[str] = []
    there: dict[tuple[str, str], int] = {}
    for table in rng.permutation(["run", "grid", "a", "b"]).tolist():
        lines.append(f"[{table}]")
        for key in rng.permutation(["seed", "clients", "density"]).tolist():
            for number in range(int(rng.integers(3))):
                decoy = DECOYS[rng.integers(len(DECOYS))].replace("{n}", f"{number}-{key}")
                lines += decoy.replace("{key}", "clients").replace("{table}", "run").split("\n")
            there[table, key] = len(lines) + 1
            lines.append(f"{key} = 1")
    for where, number in there.items():
        assert line("\n".join(lines), *where) == number


def test_an_error_about_a_missing_key_points_at_its_table_and_without_one_at_no_line() -> None:
    place = Place(Source(Path("study.toml"), FILE))
    assert str(place.at("run", "model").error("model is missing")) == "study.toml, line 9: model is missing"
    assert str(place.at("notes").error("no notes")) == "study.toml: no notes"


def table(text: str, folder: Path) -> Table:
    path = folder / "study.toml"
    path.write_text(text)
    return read_table(path)


def test_values_of_the_kind_that_is_asked_for_are_returned(tmp_path: Path) -> None:
    top = table('title = "a"\nnotes = ["b", "c"]\ntargets = [1, 0.5]\n[run]\n[[method]]\n[[method]]\nx = 1', tmp_path)
    assert (top.text("title"), top.text("question", "")) == ("a", "")
    assert (top.texts("notes"), top.texts("include")) == (("b", "c"), ())
    assert (top.shares("targets"), top.shares("others")) == ((1.0, 0.5), ())
    assert (top.table("run").values, top.table("grid").values) == ({}, {})
    assert [method.values for method in top.tables("method")] == [{}, {"x": 1}]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("notes = 'a'", "line 1: notes is 'a'; a list of texts is needed"),
        ("notes = [\n'a',\n2]", "line 3: notes holds 2; a list of texts is needed"),
        ("title = 1", "line 1: title is 1; a text is needed"),
        ("title = ' '", "line 1: title is ' '; a text is needed"),
        ("", ": title is missing; a text is needed"),
        ("run = 1", r"line 1: run is 1; a table \[run\] is needed"),
        ("method = 1", r"line 1: method is 1; a list of tables \[\[method\]\] is needed"),
        ("[method]", r"line 1: method is {}; a list of tables \[\[method\]\] is needed"),
        ("targets = [\n0.5,\n0]", "line 3: targets holds 0; a list of numbers above 0 and at most 1 is needed"),
        ("targets = [1.5]", "line 1: targets holds 1.5; "),
        ("targets = [true]", "line 1: targets holds True; "),
        ("targets = [nan]", "line 1: targets holds nan; "),
        ("targets = ['0.5']", "line 1: targets holds '0.5'; "),
        ("targets = 0.5", "line 1: targets is 0.5; "),
    ],
)
def test_values_of_another_kind_are_refused_with_their_line(tmp_path: Path, text: str, says: str) -> None:
    top = table(text, tmp_path)
    with pytest.raises(StudyError, match=says):
        _ = (top.texts("notes"), top.table("run"), top.tables("method"), top.shares("targets"), top.text("title"))


def test_what_is_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"study.toml: .*\(at line 2, column 5\); a TOML file is needed"):
        table("a = 1\nb = = 2\n", tmp_path)
    (tmp_path / "study.toml").write_bytes(b"a = 1\n# \xe9t\xe9\n")
    with pytest.raises(StudyError, match=r"study.toml, line 2: byte 0xe9 is no UTF-8; TOML is"):
        read_table(tmp_path / "study.toml")
    with pytest.raises(StudyError, match="none.toml: No such file or directory; a study file is needed"):
        read_table(tmp_path / "none.toml")
    with pytest.raises(StudyError, match="Is a directory; a study file is needed"):
        read_table(tmp_path)
