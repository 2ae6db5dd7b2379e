"""One direction of a link: packets queue for the wire, and arrive at the other end after a delay.

A packet leaves when the wire has carried those before it and its own bytes, at `rate`, and arrives `delay_s` later.
Many packets are in flight at once, so the delay does not reduce the rate.  Times count from the arrival of a packet at
the wire, not from when this program processes it: a busy machine does not slow the link further.
"""

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass

PACKET_S = 0.02
"""A packet occupies the wire for this long, within the limits below: connections take turns by packets."""
MIN_PACKET, MAX_PACKET = 1500, 65_536
BUFFER = 256 * 1024
MAX_IN_FLIGHT = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """The capacity of one direction: `rate` in bytes/s, and `delay_s` one way.  By default no limit, and no delay."""

    rate: float = math.inf
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        if not (self.rate > 0 and 0 <= self.delay_s < math.inf):
            raise ValueError(
                f"{self.rate} bytes/s after {self.delay_s} s; a rate above 0 and a delay of at least 0 are needed"
            )

    @property
    def packet(self) -> int:
        """The size of a packet, in bytes."""
        return int(min(max(self.rate * PACKET_S, MIN_PACKET), MAX_PACKET))

    @property
    def window(self) -> int:
        """The bytes of one connection that may wait or be in flight; beyond, nothing is read from its sender."""
        return BUFFER + (int(min(self.rate * self.delay_s, MAX_IN_FLIGHT)) if self.delay_s else 0)


UNSHAPED = Shape()


class Wire:
    """One direction of a link, shared by all of its connections; `total` counts the bytes that senders gave it."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.total = 0
        self.opened = asyncio.Event()
        self.opened.set()
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()
        self._free_at = 0.0

    def change(self, shape: Shape) -> None:
        """Carry by `shape` what has not left yet; the packet on the wire starts again."""
        self.shape = shape
        self._changed.set()

    def pause(self) -> None:
        """Hold every byte from now on, also those in flight."""
        self.opened.clear()

    def resume(self) -> None:
        """Carry what was held."""
        self._free_at = max(self._free_at, _now())
        self.opened.set()

    async def leave(self, came_at: float, size: int) -> float:
        """Wait until a packet of `size` bytes that came at `came_at` has left; return when it arrives."""
        async with self._turn:
            await self.opened.wait()
            leaves_at = max(self._free_at, came_at) + size / self.shape.rate
            while not await self._unchanged_until(leaves_at):
                await self.opened.wait()
                leaves_at = _now() + size / self.shape.rate
            self._free_at = max(self._free_at, leaves_at)
            return leaves_at + self.shape.delay_s

    async def _unchanged_until(self, moment: float) -> bool:
        """Return true at that time, or false as soon as the shape has changed."""
        self._changed.clear()
        if moment > _now():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(moment):
                    return not await self._changed.wait()
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()


async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, wire: Wire) -> None:
    """Carry everything from `source` to `sink` over `wire`, in order, and then the end of the stream.

    Raises `OSError` if either end breaks.
    """
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    in_flight: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    held = 0
    room = asyncio.Event()

    async def read() -> None:
        nonlocal held
        data = b"more"
        while data:
            data = await source.read(wire.shape.packet)
            wire.total += len(data)
            held += len(data)
            waiting.put_nowait((_now(), data))
            while held > wire.shape.window:
                room.clear()
                await room.wait()

    async def leave() -> None:
        data = b"more"
        while data:
            came_at, data = await waiting.get()
            in_flight.put_nowait((await wire.leave(came_at, len(data)), data))

    async def arrive() -> None:
        nonlocal held
        while True:
            arrives_at, data = await in_flight.get()
            await asyncio.sleep(max(0.0, arrives_at - _now()))
            await wire.opened.wait()
            if not data:
                sink.write_eof()
                return
            sink.write(data)
            await sink.drain()
            held -= len(data)
            room.set()

    async with asyncio.TaskGroup() as tasks:
        for task in (read(), leave(), arrive()):
            tasks.create_task(task)
