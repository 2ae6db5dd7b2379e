"""The app that is run: its folder, its defaults, and the settings that a command line changes."""

import json
import re
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from server.settings import Settings, SettingsError

ROOT = Path(__file__).resolve().parents[1]
PATHS = ("data-dir", "runs-dir")  # the run's processes have other working directories: these must be absolute
NEVER = (".*", "__pycache__", "*.egg-info", "build", "dist", "runs")

Config = dict[str, object]


class LaunchError(Exception):
    """What was asked for cannot start or has failed; the text is one sentence."""


def app_of(folder: Path) -> dict[str, Any]:
    """Return `[tool.flwr.app]` of the app in `folder`; raise `LaunchError` if there is none."""
    path = folder / "pyproject.toml"
    try:
        app: dict[str, Any] = tomllib.loads(path.read_text())["tool"]["flwr"]["app"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise LaunchError(f"{path} does not say what the app is ({error!r}); [tool.flwr.app] is needed") from None
    return app


def copy_app(target: Path, source: Path = ROOT) -> None:
    """Copy what Flower bundles into a folder of its own: in the project's, Flower would walk all of `.venv` first."""
    patterns = app_of(source).get("fab-include")
    tops = {pattern.split("/")[0] for pattern in patterns} if patterns else {"*"}
    names = {path.name for top in tops for path in source.glob(top)}
    ignore = shutil.ignore_patterns(*NEVER)
    target.mkdir(parents=True)
    for name in {"pyproject.toml", *(names - ignore(str(source), sorted(names)))}:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, ignore=ignore)
        else:
            shutil.copy(source / name, target / name)


def parse_config(texts: list[str]) -> Config:
    """Return the settings in texts like ``key=value key='text with spaces'``; a value that is no TOML is a text."""
    config: Config = {}
    for text in texts:
        rest = re.sub(r"""([^\s=]+)=('[^']*'|"[^"]*"|\S+)""", lambda pair: _add(config, pair), text).split()
        if rest:
            raise LaunchError(f"{rest[0]!r} is no setting; write settings as key=value, with spaces between them")
    return config


def _add(config: Config, pair: re.Match[str]) -> str:
    key, value = pair.groups()
    try:
        config[key] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        config[key] = value
    return ""


def run_config(texts: list[str], defaults: Mapping[str, object], num_nodes: int) -> Config:
    """Return the settings that differ from the defaults, with absolute paths; raise `LaunchError` for a wrong one.

    All nodes are waited for unless `min-nodes` says otherwise: here they are known to come.
    """
    config = {"min-nodes": num_nodes} | parse_config(texts)
    for key in PATHS:
        path = config.get(key, defaults.get(key))
        if isinstance(path, str) and path:
            config[key] = str(Path(path).expanduser().absolute())
    try:
        Settings.from_config({**defaults, **config})
    except SettingsError as error:
        raise LaunchError(str(error)) from None
    return config


def to_toml(config: Mapping[str, object]) -> str:
    """Return `config` as TOML lines; JSON's texts, numbers and booleans are TOML's."""
    return "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in config.items())
