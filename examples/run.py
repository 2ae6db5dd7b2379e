"""Run an example in this process, plain and then compressed, without Ray and without a SuperLink.

    python examples/run.py examples/pytorch [num-server-rounds=3 ...]

It reads what `flwr run` reads, the example's `pyproject.toml`, and runs five nodes on fedcomp's `LocalGrid`.
"""

import logging
import random
import sys
import tomllib
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict

from fedcomp.flower import LocalGrid, Speeds

NODES, SEED = 5, 1


def run(folder: Path, *settings: str) -> None:
    """Run the ServerApp and the ClientApp of the example in `folder`; each of `settings` replaces one of its run config."""
    tool = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    app, speeds = tool["flwr"]["app"], tool.get("local-grid", {}).get("speeds")
    config = app["config"] | tomllib.loads("\n".join(settings))
    if unknown := set(config) - set(app["config"]):
        raise ValueError(f"{folder.name} has no setting {', '.join(sorted(unknown))}; it has {', '.join(app['config'])}")
    sys.path.insert(0, str(folder))
    server, client = (_loaded(app["components"][name]) for name in ("serverapp", "clientapp"))
    random.seed(SEED)
    np.random.seed(SEED)
    with suppress(ImportError):
        torch = import_module("torch")
        torch.manual_seed(SEED)
        torch.set_num_threads(1)  # with more, small models take longer, and their sums differ by machine
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


def main(folder: str, *settings: str) -> None:
    """Run the example both ways, and print what came out."""
    logger = logging.getLogger("flwr")
    logger.addFilter(_prints)
    try:
        for compress in ("false", "true"):
            print(f"compress={compress}")
            run(Path(folder).resolve(), *settings, f"compress={compress}")
    finally:
        logger.removeFilter(_prints)


if __name__ == "__main__":
    main(*sys.argv[1:])
