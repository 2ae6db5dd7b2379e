"""Everything that the server must not lose, in one file: numpy's own archive, no pickle, written whole or not at all."""

import json
import zipfile
import zlib
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedcomp.core import write_atomically
from fedcomp.errors import CorruptError, FedcompError
from fedcomp.flower import records
from fedcomp.flower._compat import log
from fedcomp.flower.lazy_array import to_record
from fedcomp.flower.strategies.state import StatefulStrategy
from fedcomp.memory import State
from fedcomp.sync import Ledger, NodeRegistry, Replica, from_key_frame
from fedcomp.wire import Frame, parse_frame, parse_frames

FORMAT = 1
ARCHIVE = (zipfile.BadZipFile, zlib.error)
Arrays = dict[str, NDArray[Any]]
Scalars = dict[str, bool | int | float | str]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A server between two rounds."""

    round: int
    replica: Replica
    memory: State
    history: tuple[Frame, ...]
    registry: NodeRegistry
    ledger: Ledger
    local: Arrays
    number: int
    epoch: int
    training_id: int
    random_state: Any

    def save(self, path: str | Path, inner: Strategy, settings: Scalars) -> None:
        """Write this and the state of `inner` to `path`: a temporary file, flushed to the disk, then renamed.

        `settings` are the plain values that `inner` was made with: only what has changed since is part of its state.
        """
        arrays: Arrays = {
            "replica": _octets(self.replica.key_frame().to_bytes()),
            "history": _octets(b"".join(frame.to_bytes() for frame in self.history)),
            "roster": self.registry.to_array(),
            "ledger": self.ledger.to_array(),
        }
        arrays |= {f"memory/{name}": np.asarray(array) for name, array in self.memory.items()}
        arrays |= {f"local/{name}": array for name, array in self.local.items()}
        plain: dict[str, Any] = {}
        _take_apart(inner, "inner", arrays, plain)
        plain |= {key: value for key, value in scalars(inner).items() if key not in settings or settings[key] != value}
        plain |= {
            "format": FORMAT,
            "round": self.round,
            "number": self.number,
            "epoch": self.epoch,
            "lineage": self.training_id,
            "random": self.random_state,
        }
        arrays["plain"] = _octets(json.dumps(plain).encode())
        write_atomically(Path(path), lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: str | Path, inner: Strategy) -> "Checkpoint":
        """Return what `save` wrote, and put its state back into `inner`."""
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            plain = json.loads(arrays["plain"].tobytes())
            if plain["format"] != FORMAT:
                raise CorruptError(f"checkpoint format {plain['format']}; this version reads format {FORMAT}")
            key, _ = parse_frame(arrays["replica"].tobytes())
            version, internal, gauss = plain["random"]
            saved = cls(
                round=plain["round"],
                replica=from_key_frame(key),
                memory=_under(arrays, "memory/"),
                history=parse_frames(arrays["history"].tobytes()),
                registry=NodeRegistry.from_array(arrays["roster"]),
                ledger=Ledger.from_array(arrays["ledger"]),
                local=_under(arrays, "local/"),
                number=plain["number"],
                epoch=plain["epoch"],
                training_id=plain.get("lineage", 0),
                random_state=(version, tuple(internal), gauss),
            )
        except (OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, *ARCHIVE, FedcompError) as error:
            raise CorruptError(f"{path} is not a whole checkpoint: {error}") from error
        _put_back(inner, "inner", arrays, plain)
        return saved


def _octets(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _under(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def scalars(strategy: Strategy, path: str = "inner") -> Scalars:
    """Return the plain values that a strategy and those it wraps hold now, by path: its settings, right after it was made."""
    found: Scalars = {}
    for name, value in vars(strategy).items():
        if isinstance(value, Strategy):
            found |= scalars(value, f"{path}/{name}")
        elif isinstance(value, bool | int | float | str) and not isinstance(strategy, StatefulStrategy):
            found[f"{path}/{name}"] = value
    return found


def _take_apart(strategy: Strategy, path: str, arrays: Arrays, plain: dict[str, Any]) -> None:
    """Collect the state of a strategy and of those it wraps: what it declares, or else all arrays among its attributes."""
    declared = strategy.state() if isinstance(strategy, StatefulStrategy) else None
    plain |= {f"{path}/{name}": value for name, value in (declared or {}).items() if not isinstance(value, dict)}
    for name, value in (_nested(strategy) | (declared if declared is not None else vars(strategy))).items():
        here = f"{path}/{name}"
        if isinstance(value, Strategy):
            _take_apart(value, here, arrays, plain)
        elif isinstance(value, np.ndarray):
            arrays[here] = value
        elif (parts := _parts(value)) is not None:
            plain[here] = {"group": _group(value), "keys": list(parts)}
            arrays |= {f"{here}/{key}": array for key, array in parts.items()}
        elif value and not callable(value) and not isinstance(value, bool | int | float | str):
            log(WARNING, "fedcomp: the checkpoint leaves out %s of %s", name, type(strategy).__name__)


def _put_back(strategy: Strategy, path: str, arrays: Arrays, plain: dict[str, Any]) -> None:
    """Undo `_take_apart`."""
    for name, value in _nested(strategy).items():
        _put_back(value, f"{path}/{name}", arrays, plain)
    saved: dict[str, Any] = {}
    for name in strategy.state() if isinstance(strategy, StatefulStrategy) else vars(strategy):
        here = f"{path}/{name}"
        if here in arrays:
            saved[name] = arrays[here]
        elif isinstance(plain.get(here), dict):
            parts = {key: arrays[f"{here}/{key}"] for key in plain[here]["keys"]}
            saved[name] = _regroup(plain[here]["group"], parts)
        elif here in plain:
            saved[name] = plain[here]
    if isinstance(strategy, StatefulStrategy):
        strategy.restore(saved)
    else:
        vars(strategy).update(saved)


def _nested(strategy: Strategy) -> dict[str, Strategy]:
    """Return the strategies that `strategy` wraps, by attribute."""
    return {name: value for name, value in vars(strategy).items() if isinstance(value, Strategy)}


def _parts(value: object) -> dict[Any, NDArray[Any]] | None:
    """Return the arrays of a record, a mapping or a list of arrays, by key; None for anything else."""
    if isinstance(value, ArrayRecord):
        return dict(records.to_arrays(value))
    parts = dict(enumerate(value)) if isinstance(value, list) else value
    if not isinstance(parts, dict) or not parts or not all(isinstance(key, str | int) for key in parts):
        return None
    # Arithmetic makes a numpy scalar of an array of shape ().
    if not all(isinstance(array, np.ndarray | np.generic) for array in parts.values()):
        return None
    return {key: np.asarray(array) for key, array in parts.items()}


def _group(value: object) -> str:
    return "record" if isinstance(value, ArrayRecord) else "list" if isinstance(value, list) else "dict"


def _regroup(group: str, parts: dict[Any, NDArray[Any]]) -> object:
    if group == "record":
        return to_record(parts)
    return list(parts.values()) if group == "list" else parts
