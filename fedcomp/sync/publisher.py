"""The log of versions: what the server published, and how each node reaches it.

The server publishes once a version, in `publish`, and nowhere else; whoever asks gets the same bytes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.compressor import Compressor
from fedcomp.errors import CorruptError, DivergedError, NonFiniteError
from fedcomp.memory import State
from fedcomp.sync.history import History, Route
from fedcomp.sync.node_registry import NodeRecord
from fedcomp.sync.replica import Replica
from fedcomp.wire import codec_id


@dataclass(slots=True)
class Publisher:
    """The published model, the server's memory and the last frames."""

    published: Replica
    memory: State
    history: History
    _key: tuple[int, bytes] | None = None

    @classmethod
    def begin(cls, replica: Replica) -> "Publisher":
        """Return the log that begins with `replica`."""
        return cls(replica, {}, History(replica.key_frame().size))

    def publish(self, target: dict[str, NDArray[Any]], compressor: Compressor, seed: int) -> None:
        """Go one version on, towards `target`: what compression keeps back stays in the memory for later versions.

        The compressor may be another one each time; what another memory holds is left for when it is asked for again.
        """
        layout = self.published.layout
        vector, exact = layout.flatten(target)
        np.subtract(vector, self.published.vector, out=vector)
        try:
            body, memory = compressor.encode(
                vector,
                compressor.select(self.memory, layout.n),
                seed,
                server_round=self.published.version,
                shapes=layout.shapes,
                model=self.published.vector,
            )
        except NonFiniteError as error:
            raise NonFiniteError(error.index, error.value, f" (in tensor {layout.name_at(error.index)!r})") from None
        self.memory |= memory
        try:
            frame = self.published.delta_frame(codec_id(compressor.entropy), body, exact)
        except CorruptError as error:
            raise DivergedError(f"version {self.published.version + 1} cannot be published: {error}") from error
        self.published = self.published.advance(frame)
        self.history.append(frame)

    def route(self, standing: NodeRecord) -> Route:
        """Return the cheapest exact way of a node to the published version; the key frame is made once a version."""
        here = self.published
        if (standing.version, standing.fingerprint) == (here.version, here.fingerprint):
            return Route((), 0)
        route = self.history.route(standing.version, standing.fingerprint)
        if route is not None:
            return route
        if self._key is None or self._key[0] != here.version:
            self._key = (here.version, here.key_frame().to_bytes())
        return Route((self._key[1],), len(self._key[1]), key=True)
