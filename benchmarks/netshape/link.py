"""A slow link on one machine: a TCP proxy on loopback that limits, delays and counts what a node sends and is sent.

    python -m benchmarks.netshape.link --to 127.0.0.1:9092 --profile lte

*Up* is from who connects, a node, to who is connected to, the SuperLink.  Bytes are counted as they come from their
sender: headers of HTTP and records of TLS in them, those of TCP and IP not.  A connection itself is made at once.
"""

import argparse
import asyncio
import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from benchmarks.netshape.profiles import BY_WORD, Profile
from benchmarks.netshape.shaper import UNSHAPED, Shape, Wire, carry
from deploy.signals import signals_as_exits

T = TypeVar("T")
RECENT = 1000
"""So many connections are remembered one by one; the total is of all."""


@dataclass(slots=True)
class Traffic:
    """Bytes of one connection, as they came from its two ends."""

    up_bytes: int = 0
    down_bytes: int = 0

    def add_up(self, size: int) -> None:
        """Count what the node has sent."""
        self.up_bytes += size

    def add_down(self, size: int) -> None:
        """Count what the node is sent."""
        self.down_bytes += size


class Link:
    """A link from a loopback port to `target`; it works, in a thread of its own, from `start` to `close`.

    All its connections share the two wires, as those of one device do.  Every method may be called from any thread.
    """

    def __init__(self, target: tuple[str, int], up: Shape = UNSHAPED, down: Shape = UNSHAPED, port: int = 0) -> None:
        """Lead to `target`, a host and a port; listen on `port`, or on a free one."""
        self._target = target
        self._wires = Wire(up), Wire(down)
        self._port = port
        self._live: set[asyncio.Task[None]] = set()
        self._recent: deque[Traffic] = deque(maxlen=RECENT)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    @property
    def port(self) -> int:
        """The loopback port that it listens on, once started."""
        return self._port

    @property
    def address(self) -> str:
        """The host and port to connect to, as one text."""
        return f"127.0.0.1:{self._port}"

    @property
    def up_bytes(self) -> int:
        """What nodes have sent, in all."""
        return self._wires[0].total

    @property
    def down_bytes(self) -> int:
        """What nodes were sent, in all."""
        return self._wires[1].total

    @property
    def connections(self) -> tuple[Traffic, ...]:
        """What each of the last connections has carried so far, the oldest first."""
        return tuple(map(replace, tuple(self._recent)))

    def start(self) -> "Link":
        """Listen, and return the link itself; raise `OSError` if the port is taken."""
        if self._thread is not None:
            raise RuntimeError("the link was started before; make another one")
        listening: Future[int] = Future()
        self._thread = threading.Thread(target=self._work, args=(listening,), name=f"link {self._target}", daemon=True)
        self._thread.start()
        self._port = listening.result()
        return self

    def close(self) -> None:
        """Close all connections and stop listening; return when that is done.  Again, it does nothing."""
        if self._loop is not None and self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()

    def __enter__(self) -> "Link":
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def change(self, up: Shape | None = None, down: Shape | None = None) -> None:
        """Shape what has not left yet, and what comes, otherwise; `None` leaves a direction as it is."""

        def do() -> None:
            for wire, shape in zip(self._wires, (up, down), strict=True):
                if shape is not None:
                    wire.change(shape)

        self._do(do)

    def pause(self) -> None:
        """Let nothing through in either direction, as where there is no signal: connections stay, bytes wait."""

        def do() -> None:
            for wire in self._wires:
                wire.pause()

        self._do(do)

    def resume(self) -> None:
        """Let through what waited, and all that comes."""

        def do() -> None:
            for wire in self._wires:
                wire.resume()

        self._do(do)

    def cut(self) -> int:
        """Close every connection at both ends, and lose what was under way; return how many there were."""
        return self._do(lambda: sum([task.cancel() for task in self._live]))

    def _do(self, action: Callable[[], T]) -> T:
        """Return what `action` returns in the link's own thread."""
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            raise RuntimeError("the link is not at work; start() comes first")

        async def act() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result()

    def _work(self, listening: "Future[int]") -> None:
        try:
            asyncio.run(self._serve(listening))
        except Exception as error:
            if listening.done():
                raise
            listening.set_exception(error)  # start() raises it

    async def _serve(self, listening: "Future[int]") -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        listening.set_result(server.sockets[0].getsockname()[1])
        await self._ended.wait()
        server.close()
        for task in self._live:
            task.cancel()
        await asyncio.gather(*self._live, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._join(reader, writer))
        self._live.add(task)
        task.add_done_callback(self._live.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry both ways until both ends have closed, one breaks, or the link is cut; then close both."""
        ends = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            ends.append(far_writer)
            traffic = Traffic()
            self._recent.append(traffic)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(carry(reader, far_writer, self._wires[0], traffic.add_up))
                ways.create_task(carry(far_reader, writer, self._wires[1], traffic.add_down))
            for end in ends:
                end.close()
                await end.wait_closed()  # once the last bytes are out
        except* OSError:  # nobody there, or one end broke: for the other one, that is the end too
            pass
        finally:
            for end in ends:
                end.transport.abort()


def shapes(profile: Profile) -> tuple[Shape, Shape]:
    """Return what a profile's link carries up and down, half of its round trip each way."""
    delay_s = profile.round_trip_ms / 2e3
    return Shape(profile.up_mbit_s * 1e6 / 8, delay_s), Shape(profile.down_mbit_s * 1e6 / 8, delay_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 once it was interrupted, 1 with one sentence if it could not start."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.netshape.link", description="A slow link on loopback, until Ctrl-C."
    )
    parser.add_argument("--to", required=True, type=_endpoint, metavar="HOST:PORT", help="where it leads")
    parser.add_argument("--port", type=_port, default=0, help="where it listens (default: a free port)")
    parser.add_argument("--profile", choices=BY_WORD, help="rates and delay of a known network")
    for name, text in (
        ("--up-mbit", "Mbit/s from nodes (default: no limit)"),
        ("--down-mbit", "Mbit/s to nodes (default: no limit)"),
        ("--delay-ms", "ms, one way, in each direction (default: 0)"),
    ):
        parser.add_argument(name, type=float, help=text)
    args = parser.parse_args(arguments)
    by_hand = (args.up_mbit, args.down_mbit, args.delay_ms)
    if args.profile and any(number is not None for number in by_hand):
        parser.error("--profile has its own rates and delay; give it alone, or the numbers without it")
    try:
        up, down = shapes(BY_WORD[args.profile]) if args.profile else _shapes_by_hand(*by_hand)
        with Link(args.to, up, down, args.port) as link, signals_as_exits():
            print(f"{link.address} -> {args.to[0]}:{args.to[1]}; up {_words(up)}; down {_words(down)}", flush=True)
            with suppress(SystemExit):
                threading.Event().wait()
            print(f"up {link.up_bytes} bytes, down {link.down_bytes} bytes", flush=True)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _shapes_by_hand(up_mbit: float | None, down_mbit: float | None, delay_ms: float | None) -> tuple[Shape, Shape]:
    up, down = (math.inf if rate is None else rate * 1e6 / 8 for rate in (up_mbit, down_mbit))
    return Shape(up, (delay_ms or 0) / 1e3), Shape(down, (delay_ms or 0) / 1e3)


def _words(shape: Shape) -> str:
    rate = f"{shape.rate * 8 / 1e6:g} Mbit/s" if math.isfinite(shape.rate) else "as fast as it goes"
    return f"{rate}, {shape.delay_s * 1e3:g} ms later"


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host:
        raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT")
    return host.strip("[]"), _port(port)


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is no port; a number from 0 to 65535 is needed")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
