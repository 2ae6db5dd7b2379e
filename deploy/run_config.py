"""The app to run: its folder, its defaults, and the settings that a command line changes."""

import re
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import tomli_w
from pydantic import Field

from fedcomp.core import parse_setting
from fedcomp.data import parse_partition
from fedcomp.flower.compat import parse_config_args
from server.fit import check_partition, check_strategy, load_dataset
from server.folder import check_folder
from server.settings import CheckedConfig, Settings, SettingsError

ROOT = Path(__file__).resolve().parents[1]
PATHS = ("data-dir", "runs-dir")  # the run's processes have other working directories: these must be absolute
NEVER_COPIED = (".*", "__pycache__", "*.egg-info", "build", "dist", "runs")
MOST = 1024
"""Processors of a simulation, and of one node."""
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
    config: Config = {"min-nodes": num_nodes} | parse_config(texts)
    try:
        checked = Settings.from_config({**defaults, **config}).to_config()
    except SettingsError as error:
        raise LaunchError(str(error)) from None
    config = {key: checked[key] for key in config}
    for key in PATHS:
        if path := str(checked[key]):
            try:
                config[key] = str(Path(path).expanduser().absolute())
            except RuntimeError as error:  # of a home that is not known
                raise LaunchError(f"{key} is {path!r}: {error}") from None
    return config


def check_run(config: Mapping[str, object], num_nodes: int) -> None:
    """Raise `LaunchError` for a run config that does not fit `num_nodes` simulated nodes, its dataset, or this machine.

    `config` is what `run_config` returned.
    """
    settings = Settings.from_config({**app_of(ROOT)["config"], **config})
    try:
        if parse_partition(settings.partition).own:
            raise SettingsError("partition is own(): simulated nodes have no data of their own; another one is needed")
        check_strategy(settings, num_nodes)
        check_folder(settings)
        # torch takes a while to import, and the other commands do not need it
        from clients.devices import pick_device
        from clients.plug_ins import check_plug_ins
        from fedcomp.tasks import build_model, input_shape
        from server.evaluate import check_training
        from server.split import check_split, parts_of

        check_split(settings)
        device = pick_device(settings.device)
        dataset = load_dataset(settings)
        shape = input_shape(dataset.card)
        model = build_model(settings.model, shape, dataset.card.num_classes, settings.seed).to(device)
        check_training(settings.training, settings.learning_rate_schedule, settings.strategy, settings.uplink)
        parse_setting("training", settings.training, lambda text: check_plug_ins(text, model, shape))
        check_partition(settings, dataset, num_nodes)
        if settings.split:
            parts_of(settings, model)
    except (OSError, ValueError) as error:
        raise LaunchError(str(error)) from None


class FederationOptions(CheckedConfig):
    """The options of Flower's simulation that a command line may give."""

    client_resources_num_cpus: Annotated[int, Field(ge=1, le=MOST, description=f"a whole number from 1 to {MOST}")] = 1
    client_resources_num_gpus: Annotated[
        float | None, Field(ge=0, le=MOST, description=f"a number from 0 to {MOST}")
    ] = None
    init_args_num_cpus: Annotated[int, Field(ge=1, le=MOST, description=f"a whole number from 1 to {MOST}")]
    init_args_num_gpus: Annotated[int | None, Field(ge=0, le=MOST, description=f"a whole number from 0 to {MOST}")] = (
        None
    )
    init_args_logging_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] | None,
        Field(description="DEBUG, INFO, WARNING, ERROR or CRITICAL"),
    ] = None
    init_args_log_to_driver: Annotated[bool | None, Field(description="true or false")] = None
    backend: Annotated[Literal["ray"] | None, Field(description="ray, the only backend,")] = None
    verbose: Annotated[bool | None, Field(description="true or false")] = None


def federation_config(texts: list[str], workers: int) -> Config:
    """Return the options of Flower's simulation, of which `texts` give some; raise `LaunchError` for a wrong one.

    Unless `init-args-num-cpus` is among them, `workers` nodes work at once.
    """
    try:
        options = FederationOptions.from_config({"init-args-num-cpus": workers} | parse_config(texts))
    except SettingsError as error:
        raise LaunchError(str(error)) from None
    if options.client_resources_num_cpus > options.init_args_num_cpus:
        raise LaunchError(
            f"client-resources-num-cpus is {options.client_resources_num_cpus}; "
            f"at most init-args-num-cpus, {options.init_args_num_cpus}, is needed: otherwise no node can work"
        )
    _check_gpus(options)
    return dict(options.to_config())


def _check_gpus(options: FederationOptions) -> None:
    """Raise `LaunchError` for more GPUs than this machine has, or than Ray is told that it has."""
    if not (options.client_resources_num_gpus or options.init_args_num_gpus):
        return
    from torch.cuda import device_count

    found = device_count()
    if (asked := options.init_args_num_gpus) is not None and asked > found:
        raise LaunchError(f"init-args-num-gpus is {asked}; this machine has {found}")
    if (needed := options.client_resources_num_gpus) is not None and needed > (
        known := found if asked is None else asked
    ):
        raise LaunchError(
            f"client-resources-num-gpus is {needed:g}; at most {known}, the GPUs of the simulation, is needed"
        )


def to_arguments(config: Mapping[str, object]) -> str:
    """Return `config` as one command line argument of `flwr`: ``key=value key=value``."""
    return " ".join(line.replace(" = ", "=", 1) for line in tomli_w.dumps(config).splitlines())
