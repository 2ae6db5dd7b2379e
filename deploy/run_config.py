"""The app to run: its folder, its defaults, and the settings that a command line changes."""

import math
import re
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import tomli_w

from fedcomp.core import parse_call
from fedcomp.data import read_card, split_partition
from fedcomp.flower._compat import parse_config_args
from server.fit import check_fit
from server.settings import Settings, SettingsError

ROOT = Path(__file__).resolve().parents[1]
PATHS = ("data-dir", "runs-dir")  # the run's processes have other working directories: these must be absolute
NEVER_COPIED = (".*", "__pycache__", "*.egg-info", "build", "dist", "runs")
GPU_OPTIONS = ("client-resources-num-gpus", "init-args-num-gpus")
SHARED_OPTIONS = ("client-resources-num-gpus",)
"""Options that may be fractions."""
FREE_OPTIONS = ("backend-name", "init-args-logging-level", "init-args-log-to-driver")
MAX_PROCESSORS = 1024
PAIR = re.compile(r"""([^\s=]+)=('[^']*'|"[^"]*"|\S+)""")

Config = dict[str, object]


class LaunchError(Exception):
    """A run or a federation cannot start, or has failed; the text is one sentence."""


def app_of(folder: Path) -> dict[str, Any]:
    """Return `[tool.flwr.app]` of the app in `folder`; raise `LaunchError` if there is none."""
    path = folder / "pyproject.toml"
    try:
        app: dict[str, Any] = tomllib.loads(path.read_text())["tool"]["flwr"]["app"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        raise LaunchError(f"{path} describes no app ({error!r}); [tool.flwr.app] is needed") from None
    return app


def copy_app(target: Path, source: Path = ROOT) -> None:
    """Copy the files that Flower bundles to the folder `target`: in `source`, Flower would walk all of `.venv`."""
    patterns = app_of(source).get("fab-include")
    tops = {pattern.split("/")[0] for pattern in patterns} if patterns else {"*"}
    names = {path.name for top in tops for path in source.glob(top)}
    ignore = shutil.ignore_patterns(*NEVER_COPIED)
    target.mkdir(parents=True)
    for name in {"pyproject.toml", *(names - ignore(str(source), sorted(names)))}:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, ignore=ignore)
        else:
            shutil.copy(source / name, target / name)


def parse_config(texts: list[str]) -> Config:
    """Return the settings in texts such as ``key=value key='text with spaces'``, as Flower parses them.

    Unlike Flower, take a value that is no TOML as a text, such as ``stc(density=0.01)``, and raise `LaunchError` for
    words that are no settings.
    """
    config: Config = {}
    for text in texts:
        if rest := PAIR.sub("", text).split():
            raise LaunchError(f"{rest[0]!r} is no setting; write settings as key=value, with spaces between them")
        for key, value in PAIR.findall(text):
            try:
                config |= parse_config_args([f"{key}={value}"])
            except (click.ClickException, ValueError):
                config[key] = value
    return config


def run_config(texts: list[str], defaults: Mapping[str, object], num_nodes: int) -> Config:
    """Return the settings that differ from the defaults, with absolute paths; raise `LaunchError` for a wrong one.

    Unless `min-nodes` is among them, the run waits for all `num_nodes` nodes.
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


def check_run(config: Mapping[str, object], num_nodes: int) -> None:
    """Raise `LaunchError` for a run config that does not fit `num_nodes` simulated nodes, its dataset, or this machine.

    `config` is what `run_config` returned.
    """
    # torch takes a while to import, and the other commands do not need it
    from clients.devices import pick_device
    from fedcomp.tasks import build_model, input_shape

    try:
        settings = Settings.from_config({**app_of(ROOT)["config"], **config})
        check_fit(settings, num_nodes)
        card = read_card(settings.dataset, ROOT / "datasets")
        scheme, positional, named = parse_call(split_partition(settings.partition)[0])
        count = next(iter([*positional, *named.values()]), 0)
        if scheme == "classes" and isinstance(count, int) and count > card.num_classes:
            raise SettingsError(f"partition is {settings.partition!r}; {card.name} has {card.num_classes} classes")
        pick_device(settings.device)
        build_model(settings.model, input_shape(card), card.num_classes, 0)
    except ValueError as error:
        raise LaunchError(str(error)) from None


def federation_config(texts: list[str], workers: int) -> Config:
    """Return the options of Flower's simulation in `texts`; raise `LaunchError` for one that is unknown or out of range.

    A node can have as many CPUs as Ray is told that there are: `workers`, unless `init-args-num-cpus` is among the options.
    """
    config = parse_config(texts)
    cpus = config.get("init-args-num-cpus", workers)
    most = {"init-args-num-cpus": MAX_PROCESSORS, "client-resources-num-cpus": cpus if isinstance(cpus, int) else 1}
    most |= dict.fromkeys(GPU_OPTIONS, MAX_PROCESSORS)
    for key, value in config.items():
        if key == "num-supernodes":
            raise LaunchError("num-supernodes is set by --nodes; leave it out of --federation")
        if key in FREE_OPTIONS:
            continue
        if key not in most:
            known = ", ".join(sorted({*most, *FREE_OPTIONS}))
            raise LaunchError(f"unknown option {key!r} of the simulation; there are: {known}")
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        least = 0 if key in GPU_OPTIONS else 1
        if not least <= number <= most[key] or (key not in SHARED_OPTIONS and number != int(number)):
            raise LaunchError(f"{key} is {value!r}; a number from {least} to {most[key]} is needed")
    return config


def to_toml(config: Mapping[str, object]) -> str:
    """Return `config` as TOML."""
    return tomli_w.dumps(config)


def to_arguments(config: Mapping[str, object]) -> str:
    """Return `config` as one command line argument of `flwr`: ``key=value key=value``."""
    return " ".join(line.replace(" = ", "=", 1) for line in to_toml(config).splitlines())
