"""Everything that the server must not lose, in one archive: numpy's own format without pickle, written atomically."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fedcomp.core import Arrays, below, from_json, octets, read_archive, to_json, write_archive
from fedcomp.errors import CORRUPTION_ERRORS, CorruptError
from fedcomp.flower.server.model.strategy_state import Plain, restore, state_of
from fedcomp.sync import SAVED_PARTS, History, Ledger, NodeRegistry, Origin, Publisher, Replica, from_key_frame
from fedcomp.wire import parse_frames, parse_single_frame

FORMAT = 3
HEARD_ROW = np.dtype([("node", "<u8"), ("round", "<i8")])


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server between two rounds.

    `local` are the tensors that never travel; `random_state` is that of the module `random` for the strategy.  `heard` is the
    round in which each node last answered, `recorded` the size of the traffic file in bytes.
    `choice` is the state of the automatic choice of compressors, in plain values.
    """

    round: int
    publisher: Publisher
    ledger: Ledger
    local: Arrays
    random_state: Any
    heard: Mapping[int, int]
    recorded: int = 0
    choice: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def save(self, path: str | Path, inner: Strategy, settings: Plain) -> None:
        """Write this and the state of `inner` to `path`; `settings` are ``settings_of(inner)`` when it was new."""
        publisher = self.publisher
        arrays, plain = state_of(inner, settings)
        arrays |= {f"memory/{name}": np.asarray(array) for name, array in publisher.memory.items()}
        arrays |= {f"local/{name}": array for name, array in self.local.items()}
        arrays |= {
            "replica": octets(publisher.replica.key_frame().to_bytes()),
            "history": octets(b"".join(frame.to_bytes() for frame in publisher.history.frames())),
            "nodes": publisher.nodes.to_array(),
            "start": octets(publisher.start.to_bytes() if publisher.start else b""),
            "ledger": self.ledger.to_array(SAVED_PARTS),
            "ledger_nodes": self.ledger.nodes_to_array(),
            "heard": np.array(list(self.heard.items()), HEARD_ROW),
        }
        if (origin := publisher.replica.origin) is not None:
            arrays |= {"origin": octets(origin.base.key_frame().to_bytes()), "counts": origin.counts}
        plain |= {
            "format": FORMAT,
            "round": self.round,
            "recorded": self.recorded,
            "epoch": publisher.epoch,
            "training_id": publisher.training_id,
            "random": self.random_state,
            "choice": dict(self.choice),
        }
        write_archive(Path(path), arrays | {"plain": to_json(plain)})

    @classmethod
    def load(cls, path: str | Path, inner: Strategy) -> "ServerState":
        """Return what `save` wrote, and restore the state of `inner`.

        Raises `CorruptError` for a damaged file, and `OSError` for one that cannot be opened.
        """
        try:
            arrays = read_archive(Path(path))
            plain = from_json(arrays["plain"])
            if plain["format"] != FORMAT:
                raise CorruptError(f"checkpoint format {plain['format']}; this version reads format {FORMAT}")
            replica = from_key_frame(parse_single_frame(arrays["replica"].tobytes()))
            if "origin" in arrays:
                base = from_key_frame(parse_single_frame(arrays["origin"].tobytes()))
                replica = _from_origin(replica, base, arrays["counts"])
            publisher = Publisher(
                replica,
                History(replica.key_frame().size, parse_frames(arrays["history"].tobytes())),
                memory=below(arrays, "memory/"),
                nodes=NodeRegistry.from_array(arrays["nodes"]),
                epoch=plain["epoch"],
                training_id=plain["training_id"],
                start=parse_single_frame(start) if (start := arrays["start"].tobytes()) else None,
            )
            version, words, gauss = plain["random"]
            saved = cls(
                plain["round"],
                publisher,
                Ledger.from_array(arrays["ledger"], arrays["ledger_nodes"]),
                below(arrays, "local/"),
                (version, tuple(words), gauss),
                dict(arrays["heard"].tolist()),
                plain["recorded"],
                plain["choice"],
            )
        except CORRUPTION_ERRORS as error:
            raise CorruptError(f"{path} is not a valid checkpoint: {error}") from error
        restore(inner, arrays, plain)
        return saved


def _from_origin(replica: Replica, base: Replica, counts: NDArray[Any]) -> Replica:
    """Return `replica` with its steps counted from `base`; raise `CorruptError` if these lead to another vector."""
    fits = base.layout == replica.layout and counts.dtype == np.int32 and counts.shape == base.vector.shape
    if not fits or (origin := Origin(base, counts)).vector().tobytes() != replica.vector.tobytes():
        raise CorruptError("the origin and its steps do not lead to the published model")
    return replace(replica, origin=origin)
