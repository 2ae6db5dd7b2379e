"""The copy of an app that Flower bundles, and the node config that a SuperNode reads."""

from pathlib import Path

import pytest
from flwr.common.config import parse_config_args

from deploy.run_config import ROOT, LaunchError, app_of, copy_app, to_toml
from deploy.supernode import SuperNode


def test_the_copy_of_this_app_holds_what_is_bundled_and_nothing_else(tmp_path: Path) -> None:
    copy_app(tmp_path / "app")
    names = {"pyproject.toml", "fedcomp", "server", "clients", "datasets", "LICENSE"}
    assert {path.name for path in (tmp_path / "app").iterdir()} == names
    assert not list((tmp_path / "app").rglob("__pycache__"))
    assert app_of(tmp_path / "app") == app_of(ROOT)


def test_the_copy_of_an_app_that_lists_nothing_is_all_of_it_but_environments_and_outputs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("pkg/app.py", "pkg/__pycache__/app.pyc", ".venv/lib.py", "runs/1/log", "notes.txt"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()
    (source / "pyproject.toml").write_text("[tool.flwr.app]\npublisher = 'x'\n")
    copy_app(tmp_path / "app", source)
    copied = {path.relative_to(tmp_path / "app").as_posix() for path in (tmp_path / "app").rglob("*") if path.is_file()}
    assert copied == {"pyproject.toml", "pkg/app.py", "notes.txt"}


@pytest.mark.parametrize("text", [None, "", "[tool.flwr]", "[["])
def test_a_folder_without_an_app_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(
        LaunchError, match=r"pyproject\.toml does not say what the app is .*tool\.flwr\.app\] is needed"
    ):
        copy_app(tmp_path / "app", tmp_path)
    assert not (tmp_path / "app").exists()


@pytest.mark.parametrize("name", ["plain", "two words", "it's", 'a "quoted" = one', "back\\slash", "é", "x.toml"])
def test_a_nodes_config_comes_through_whatever_its_folder_is_called(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    node = SuperNode.make(1, 3, folder, "mark/node-1/")
    node.config["rate"] = 0.5
    settings = tmp_path / "node.toml"
    settings.write_text(to_toml(node.config))
    assert parse_config_args([str(settings)]) == {
        "partition-id": 1,
        "num-partitions": 3,
        "data-dir": str(folder / "data"),
        "state-dir": str(folder / "state"),
        "rate": 0.5,
    }


def test_a_node_keeps_its_key(tmp_path: Path) -> None:
    first = SuperNode.make(0, 2, tmp_path / "node", "a/").public_key.read_bytes()
    assert SuperNode.make(0, 5, tmp_path / "node", "b/").public_key.read_bytes() == first
