"""One direction of a link: bytes stand in line for the wire, and come out at the other end a while later.

A packet leaves when the wire has carried those before it and its own bytes, at `rate`, and arrives `delay_s` after that:
many packets are under way at once, so that the delay takes nothing from the rate.  Times are reckoned from when a packet
came, not from when this program got round to it: a busy machine makes a link no slower than it is.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

PACKET_S = 0.02
SMALLEST_PACKET, LARGEST_PACKET = 1500, 65_536
BUFFER = 256 * 1024
MOST_UNDER_WAY = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """What one direction carries: `rate` in bytes/s, `delay_s` one way.  By default no limit, and no delay."""

    rate: float = math.inf
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        """Raise `ValueError` for a wire that carries nothing, or delivers before it is given."""
        if not (self.rate > 0 and 0 <= self.delay_s < math.inf):
            raise ValueError(
                f"{self.rate} bytes/s after {self.delay_s} s; a rate above 0 and a delay of at least 0 are needed"
            )

    @property
    def packet(self) -> int:
        """How many bytes go in one piece: so few that connections take turns, so many that none is busy with pieces."""
        return int(min(max(self.rate * PACKET_S, SMALLEST_PACKET), LARGEST_PACKET))

    @property
    def window(self) -> int:
        """How many bytes of one connection may wait or be under way; beyond, nothing is read from its sender."""
        return BUFFER + (int(min(self.rate * self.delay_s, MOST_UNDER_WAY)) if self.delay_s else 0)


UNSHAPED = Shape()


class Wire:
    """One direction of a link, shared by its connections; `total` are the bytes that came."""

    def __init__(self, shape: Shape) -> None:
        """Begin idle and open."""
        self.shape = shape
        self.total = 0
        self._open = asyncio.Event()
        self._open.set()
        self._changed = asyncio.Event()
        self._first = asyncio.Lock()  # who holds it is the first in line
        self._free = 0.0  # when the last packet had left

    def change(self, shape: Shape) -> None:
        """Carry what has not left yet by `shape`; the packet on the wire starts anew."""
        self.shape = shape
        self._changed.set()

    def pause(self) -> None:
        """Hold every byte from now on; those under way too."""
        self._open.clear()

    def resume(self) -> None:
        """Go on with what was held."""
        self._free = max(self._free, _now())
        self._open.set()

    async def opened(self) -> None:
        """Return when the wire is not paused."""
        await self._open.wait()

    async def leave(self, came: float, size: int) -> float:
        """Return, once they have left, when `size` bytes that came at `came` arrive."""
        async with self._first:
            await self.opened()
            leaves = max(self._free, came) + size / self.shape.rate
            while not await self._unchanged_until(leaves):
                await self.opened()
                leaves = _now() + size / self.shape.rate
            self._free = max(self._free, leaves)
            return leaves + self.shape.delay_s

    async def _unchanged_until(self, moment: float) -> bool:
        """Return at that time with true, or with false as soon as the shape has changed."""
        self._changed.clear()
        if moment > _now():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(moment):
                    return not await self._changed.wait()
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()


async def until(moment: float) -> None:
    """Return at that time of the loop's clock."""
    left = moment - _now()
    if left > 0:
        await asyncio.sleep(left)


async def carry(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, wire: Wire, count: Callable[[int], None]
) -> None:
    """Carry all that `source` sends to `sink` over `wire`, in order, and then its end; tell `count` what came.

    Raises `OSError` where either end breaks.
    """
    in_line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    held = 0
    room = asyncio.Event()

    async def read() -> None:
        nonlocal held
        data = b"more"
        while data:
            data = await source.read(wire.shape.packet)
            wire.total += len(data)
            count(len(data))
            held += len(data)
            in_line.put_nowait((_now(), data))
            while held > wire.shape.window:
                room.clear()
                await room.wait()

    async def leave() -> None:
        data = b"more"
        while data:
            came, data = await in_line.get()
            under_way.put_nowait((await wire.leave(came, len(data)), data))

    async def arrive() -> None:
        nonlocal held
        while True:
            due, data = await under_way.get()
            await until(due)
            await wire.opened()
            if not data:
                sink.write_eof()
                return
            sink.write(data)
            await sink.drain()
            held -= len(data)
            room.set()

    async with asyncio.TaskGroup() as parts:
        for part in (read(), leave(), arrive()):
            parts.create_task(part)
