"""A slow link on one machine: a TCP proxy on loopback that limits, delays and counts the traffic of a node.

    python -m benchmarks.netshape.link --to 127.0.0.1:9092 --profile lte

*Up* is the direction from the connecting node to the SuperLink.  Bytes are counted as their sender wrote them, with the
headers of HTTP and TLS, but without those of TCP and IP.  Opening a connection takes no time.
"""

import argparse
import asyncio
import math
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from benchmarks.netshape.profiles import BY_WORD, Profile
from benchmarks.netshape.shaper import UNSHAPED, Shape, Wire, carry
from deploy.program import signals_as_exits

T = TypeVar("T")
MBIT = 1e6 / 8


class ShapedLink:
    """A link from a loopback port to `target`; it works in a thread of its own, from `start` to `close`.

    All its connections share the two wires, like those of one device.  Every method may be called from any thread.
    """

    def __init__(self, target: tuple[str, int], up: Shape = UNSHAPED, down: Shape = UNSHAPED, port: int = 0) -> None:
        """Lead to `target`, a host and a port; listen on `port`, or on a free one."""
        self.port = port
        self._target = target
        self._up, self._down = Wire(up), Wire(down)
        self._connections: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """The host and port to connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    def up_bytes(self) -> int:
        """The bytes that nodes have sent."""
        return self._up.total

    @property
    def down_bytes(self) -> int:
        """The bytes that were sent to nodes."""
        return self._down.total

    def start(self) -> "ShapedLink":
        """Listen, and return the link itself; raise `OSError` if the port is taken."""
        if self._thread is not None:
            raise RuntimeError("the link was started before; make another one")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"link to {self._target}", daemon=True)
        self._thread.start()
        try:
            self._server = self._run(asyncio.start_server(self._connect, "127.0.0.1", self.port))
        except BaseException:
            self.close()
            raise
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def close(self) -> None:
        """Close all connections and stop listening; nothing happens if the link is closed."""
        if self._loop is not None and self._thread is not None and not self._loop.is_closed():
            self._run(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> "ShapedLink":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def change(self, up: Shape | None = None, down: Shape | None = None) -> None:
        """Shape differently what has not left yet, and what comes; `None` leaves a direction as it is."""
        for wire, shape in ((self._up, up), (self._down, down)):
            if shape is not None:
                self._do(wire.change, shape)

    def pause(self) -> None:
        """Let nothing through in either direction, as without a signal: connections stay open, bytes wait."""
        self._do(self._up.pause)
        self._do(self._down.pause)

    def resume(self) -> None:
        """Let through what waited, and everything that comes."""
        self._do(self._up.resume)
        self._do(self._down.resume)

    def cut(self) -> int:
        """Close every connection at both ends, and lose the bytes in flight; return the number of connections."""
        return self._do(lambda: sum([task.cancel() for task in self._connections]))

    def _do(self, action: Callable[..., T], *arguments: object) -> T:
        """Return what `action` returns in the thread of the link."""

        async def act() -> T:
            return action(*arguments)

        return self._run(act())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None or self._loop.is_closed():
            work.close()
            raise RuntimeError("the link is not at work; start() comes first")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry both ways until both ends have closed, one breaks, or the link is cut; then close both."""
        ends = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            ends.append(far_writer)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(carry(reader, far_writer, self._up))
                ways.create_task(carry(far_reader, writer, self._down))
            for end in ends:
                end.close()
                await end.wait_closed()  # once the last bytes are out
        except* OSError:  # nobody listens, or one end broke: the connection ends
            pass
        finally:
            for end in ends:
                end.transport.abort()

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


def shapes(profile: Profile) -> tuple[Shape, Shape]:
    """Return the shapes up and down of a profile, with half of its round trip in each direction."""
    delay_s = profile.round_trip_ms / 2e3
    return Shape(profile.up_mbit_s * MBIT, delay_s), Shape(profile.down_mbit_s * MBIT, delay_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 after an interrupt, or 1 after one sentence if the link could not start."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.netshape.link", description="A slow link on loopback, until Ctrl-C."
    )
    parser.add_argument("--to", required=True, type=_endpoint, metavar="HOST:PORT", help="where it leads")
    parser.add_argument("--port", type=_port, default=0, help="where it listens (default: a free port)")
    parser.add_argument("--profile", choices=BY_WORD, help="rates and delay of a known network")
    parser.add_argument("--up-mbit", type=float, help="Mbit/s from nodes (default: no limit)")
    parser.add_argument("--down-mbit", type=float, help="Mbit/s to nodes (default: no limit)")
    parser.add_argument("--delay-ms", type=float, help="ms, one way, in each direction (default: 0)")
    args = parser.parse_args(arguments)
    rates, delay_ms = (args.up_mbit, args.down_mbit), args.delay_ms
    if args.profile and (*rates, delay_ms) != (None, None, None):
        parser.error("--profile has its own rates and delay; give it alone, or the numbers without it")
    try:
        if args.profile:
            up, down = shapes(BY_WORD[args.profile])
        else:
            up, down = (Shape(math.inf if rate is None else rate * MBIT, (delay_ms or 0) / 1e3) for rate in rates)
        with ShapedLink(args.to, up, down, args.port) as link, signals_as_exits():
            print(f"{link.address} -> {args.to[0]}:{args.to[1]}; up {_words(up)}; down {_words(down)}", flush=True)
            with suppress(SystemExit):
                threading.Event().wait()
            print(f"up {link.up_bytes} bytes, down {link.down_bytes} bytes", flush=True)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _words(shape: Shape) -> str:
    rate = f"{shape.rate / MBIT:g} Mbit/s" if math.isfinite(shape.rate) else "no limit"
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
