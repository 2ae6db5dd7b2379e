"""Run an example in this process, plain and then compressed, without Ray and without a SuperLink.

    python examples/run.py examples/pytorch [num-server-rounds=3 ...] [--seed 2]

It reads what `flwr run` reads, the example's `pyproject.toml`, and runs five nodes on fedcomp's `LocalGrid`.
"""

import argparse
import json
import logging
import random
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import Context, RecordDict

from fedcomp.flower import LocalGrid, Speeds

NODES, SEED = 5, 1
MAX_SEED = 2**32 - 1
NEEDED = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
"""The type of a setting's default -> what is needed."""


def read(folder: Path, *settings: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the table `tool` of the example in `folder`, and its run config with `settings`, such as "batch-size=20".

    Raises `ValueError` if there is no Flower app, for a setting that it does not have, for a value that it cannot have, and for
    one that is given twice.
    """
    path = folder / "pyproject.toml"
    tool: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["tool"] if path.is_file() else {}
    if (folder / "simulate.py").is_file():
        raise ValueError(f"{folder.name} is no Flower app; python {folder / 'simulate.py'} runs it")
    if "flwr" not in tool:
        raise ValueError(f"there is no Flower app in {folder}; name a folder such as examples/pytorch")
    config = _flat(tool["flwr"]["app"]["config"])
    changed = _flat(tomllib.loads("\n".join(settings)))
    if unknown := set(changed) - set(config):
        raise ValueError(f"{folder.name} has no setting {', '.join(sorted(unknown))}; it has {', '.join(config)}")
    for name, value in changed.items():
        default = config[name]
        if type(value) is not type(default) and (type(value), type(default)) != (int, float):
            raise ValueError(f"{name} is {json.dumps(value)}; {NEEDED[type(default)]} is needed")
        if name in ("num-server-rounds", "num-versions") and value < 1:
            raise ValueError(f"{name} is {value}; at least 1 is needed")
    return tool, config | changed


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings of a table and those within it, as in "model.name", the way Flower hands them to an app."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= (
            _flat(cast(dict[str, Any], value), f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        )
    return flat


def run(folder: Path, *settings: str, seed: int = SEED) -> None:
    """Run the ServerApp and the ClientApp of the example in `folder`, under a fixed seed."""
    tool, config = read(folder, *settings)
    sys.path.insert(0, str(folder))
    server, client = (_loaded(tool["flwr"]["app"]["components"][name]) for name in ("serverapp", "clientapp"))
    random.seed(seed)
    np.random.seed(seed)
    with suppress(ImportError):
        torch = import_module("torch")
        torch.manual_seed(seed)
        torch.set_num_threads(1)  # with more, small models take longer, and their sums differ by machine
    speeds = tool.get("local-grid", {}).get("speeds")
    grid = LocalGrid(client, NODES, config, speeds=Speeds(**speeds) if speeds else None)
    server(grid, Context(0, 0, {}, RecordDict(), config))
    if speeds:
        print(f"after {grid.now():.0f} s of virtual time")


def _loaded(reference: str) -> Any:
    module, name = reference.split(":")
    return getattr(import_module(module), name)


def _prints(record: logging.LogRecord) -> bool:
    """Print errors, fedcomp's warnings and its last line about traffic; return False: the log shows nothing itself."""
    message = record.getMessage()
    warns = message.startswith("fedcomp") and record.levelno == logging.WARNING
    if warns or record.levelno >= logging.ERROR or message.startswith("fedcomp: the whole run"):
        print(message)
    return False


def main(folder: str, *settings: str, seed: int = SEED) -> None:
    """Run the example both ways, or as the setting `compress` says, and print what came out."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addFilter(_prints)
    try:
        chosen = [setting for setting in settings if setting.partition("=")[0].strip() == "compress"]
        others = [setting for setting in settings if setting not in chosen]
        for compress in chosen or ("compress=false", "compress=true"):
            print(compress)
            run(Path(folder).resolve(), *others, compress, seed=seed)
    finally:
        logger.removeFilter(_prints)
        logger.setLevel(level)


if __name__ == "__main__":
    here = Path(__file__).resolve().parent  # where the folder `jax` looks like the library, if that is not installed
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != here]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="the folder of an example, such as examples/pytorch")
    parser.add_argument("settings", nargs="*", help="of its pyproject.toml, such as num-server-rounds=3")
    parser.add_argument("--seed", type=int, default=SEED, help="of all random numbers: %(default)s unless given")
    options = parser.parse_intermixed_args()
    if options.folder is None:
        parser.error("name the folder of an example, such as examples/pytorch")
    try:
        if not 0 <= options.seed <= MAX_SEED:
            raise ValueError(f"--seed is {options.seed}; a whole number from 0 to {MAX_SEED} is needed")
        read(Path(options.folder).resolve(), *options.settings)
    except ValueError as error:
        sys.exit(f"error: {error}")
    main(options.folder, *options.settings, seed=options.seed)
