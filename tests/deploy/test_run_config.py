"""The copy of the app that Flower bundles, and the settings of command lines, runs and nodes."""

from pathlib import Path

import pytest
import tomli_w
from flwr.common.config import parse_config_args

from deploy.federation import Federation
from deploy.flower_programs import SuperNode
from deploy.run_config import (
    ROOT,
    Config,
    LaunchError,
    app_of,
    copy_app,
    parse_config,
    run_config,
    to_arguments,
)


def test_the_copy_of_this_app_has_only_the_bundled_files(tmp_path: Path) -> None:
    copy_app(tmp_path / "app")
    names = {"pyproject.toml", "fedcomp", "server", "clients", "datasets", "LICENSE"}
    assert {path.name for path in (tmp_path / "app").iterdir()} == names
    assert not list((tmp_path / "app").rglob("__pycache__"))
    assert app_of(tmp_path / "app") == app_of(ROOT)


def test_an_app_without_a_list_is_copied_without_environments_and_outputs(tmp_path: Path) -> None:
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
    with pytest.raises(LaunchError, match=r"pyproject\.toml .*tool\.flwr\.app\]"):
        copy_app(tmp_path / "app", tmp_path)
    assert not (tmp_path / "app").exists()


@pytest.mark.parametrize("name", ["plain", "two words", "it's", 'a "quoted" = one', "back\\slash", "é", "x.toml"])
def test_a_node_config_survives_any_name_of_its_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    node = SuperNode.make(1, 3, folder, "mark/node-1/")
    node.config["rate"] = 0.5
    settings = tmp_path / "node.toml"
    settings.write_text(tomli_w.dumps(node.config))
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


def test_keys_that_a_killed_start_left_half_made_are_finished(tmp_path: Path) -> None:
    (tmp_path / "node-0" / "key").mkdir(mode=0o700, parents=True)
    Federation(tmp_path, 1)
    made = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "keys" / "server.pem").unlink()
    (tmp_path / "node-0" / "key" / "node.pub").unlink()
    Federation(tmp_path, 1)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == made
    assert {"server.pem", "node.pub", "node.key"} <= made


def test_settings_are_toml_values_or_bare_texts() -> None:
    assert parse_config(["a=1 b=0.5 c=true d='x y' e=stc(density=0.02)", 'f="g=h"']) == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": "x y",
        "e": "stc(density=0.02)",
        "f": "g=h",
    }


def test_a_text_that_is_no_setting_is_refused() -> None:
    with pytest.raises(LaunchError, match="'rounds'"):
        parse_config(["a=1 rounds"])


def test_paths_become_absolute_and_all_nodes_are_waited_for(config: Config) -> None:
    changed = run_config(["data-dir=some/where"], config, 7)
    assert changed["data-dir"] == str(Path.cwd() / "some/where")
    assert changed["runs-dir"] == str(Path.cwd() / "runs")
    assert changed["min-nodes"] == 7
    assert run_config(["min-nodes=3"], config, 7)["min-nodes"] == 3


def test_whole_numbers_are_texts_where_texts_are_needed(config: Config) -> None:
    changed = run_config(["run-name=7 split-layer=2 runs-dir=5 seed=3"], config, 7)
    assert (changed["run-name"], changed["split-layer"], changed["seed"]) == ("7", "2", 3)
    assert changed["runs-dir"] == str(Path.cwd() / "5")


def test_a_wrong_setting_is_refused_before_anything_starts(config: Config) -> None:
    with pytest.raises(LaunchError, match="num-rounds is 0; .*1"):
        run_config(["num-rounds=0"], config, 7)


def test_simulation_settings_come_through_flowers_command_line() -> None:
    config: Config = {"num-supernodes": 5, "client-resources-num-gpus": 0.5, "name": "two words"}
    assert parse_config_args([to_arguments(config)]) == config
