"""A slow link delivers every byte, in order and counted, and not before the wire allows."""

import math
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.netshape.link import ShapedLink, main, shapes
from benchmarks.netshape.profiles import BY_WORD, PROFILES, Profile
from benchmarks.netshape.shaper import BUFFER, Shape

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 60.0


class Far:
    """The far end of links: a listening socket that hands out what connects."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE_S)
        self.target: tuple[str, int] = self.listener.getsockname()
        self.sockets: list[socket.socket] = []

    def join(self, link: ShapedLink) -> tuple[socket.socket, socket.socket]:
        """Return both ends of a new connection over `link`, the near one first."""
        near = socket.create_connection(("127.0.0.1", link.port), timeout=PATIENCE_S)
        far, _ = self.listener.accept()
        far.settimeout(PATIENCE_S)
        self.sockets += near, far
        return near, far

    def close(self) -> None:
        for one in (*self.sockets, self.listener):
            one.close()


@pytest.fixture
def far() -> Iterator[Far]:
    end = Far()
    yield end
    end.close()


def receive(end: socket.socket, size: int) -> bytes:
    """Return `size` bytes, or what came before the end."""
    data = b""
    while len(data) < size and (more := end.recv(min(size - len(data), 1 << 16))):
        data += more
    return data


def send(end: socket.socket, data: bytes, rng: random.Random) -> threading.Thread:
    """Send `data` in random pieces and then the end, in a thread of its own."""
    pieces = []
    while data:
        size = rng.choice((1, 7, 1500, 40_000, 300_000))
        pieces.append(data[:size])
        data = data[size:]

    def work() -> None:
        for piece in pieces:
            end.sendall(piece)
        end.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def is_over(end: socket.socket) -> bool:
    """Whether the other side has closed or reset the connection."""
    try:
        return end.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    ("up", "down"),
    [
        (Shape(), Shape()),
        (Shape(4e6, 0.02), Shape(8e6, 0.01)),
        (Shape(math.inf, 0.05), Shape(3e6)),
    ],
)
def test_nothing_is_lost_or_reordered_and_the_count_is_exact(far: Far, up: Shape, down: Shape) -> None:
    rng = random.Random(5)
    with ShapedLink(far.target, up, down) as link:
        up_bytes = down_bytes = 0
        for _ in range(3):
            near, end = far.join(link)
            there, back = rng.randbytes(rng.randrange(300_000)), rng.randbytes(rng.randrange(900_000))
            threads = send(near, there, rng), send(end, back, rng)
            assert receive(near, 1 << 30) == back
            assert receive(end, 1 << 30) == there
            for thread in threads:
                thread.join()
            up_bytes, down_bytes = up_bytes + len(there), down_bytes + len(back)
            assert (link.up_bytes, link.down_bytes) == (up_bytes, down_bytes)


def test_bytes_arrive_after_their_time_on_the_wire_and_the_delay(far: Far) -> None:
    with ShapedLink(far.target, up=Shape(200e3, 0.1)) as link:
        near, end = far.join(link)
        begin = time.monotonic()
        near.sendall(bytes(100_000))
        assert len(receive(end, 100_000)) == 100_000
        assert time.monotonic() - begin >= 0.6  # 100 kB / 200 kB/s + 0.1 s


def test_all_connections_share_the_wire(far: Far) -> None:
    with ShapedLink(far.target, up=Shape(200e3)) as link:
        pairs = [far.join(link) for _ in range(4)]
        begin = time.monotonic()
        for near, _ in pairs:
            near.sendall(bytes(20_000))
        assert [len(receive(end, 20_000)) for _, end in pairs] == 4 * [20_000]
        assert time.monotonic() - begin >= 0.4


def test_the_two_directions_do_not_share_a_wire(far: Far) -> None:
    with ShapedLink(far.target, up=Shape(1.0), down=Shape()) as link:  # the way up is blocked for hours
        near, end = far.join(link)
        near.sendall(bytes(100_000))
        end.sendall(b"the way down is free")
        assert receive(near, 20) == b"the way down is free"


def test_a_pause_holds_all_bytes_and_loses_none(far: Far) -> None:
    rng = random.Random(2)
    with ShapedLink(far.target) as link:
        near, end = far.join(link)
        link.pause()
        data = rng.randbytes(2_000_000)
        thread = send(near, data, rng)
        while link.up_bytes == 0:
            time.sleep(0.01)
        end.settimeout(0.2)
        with pytest.raises(TimeoutError):
            end.recv(1)
        end.settimeout(PATIENCE_S)
        link.resume()
        assert receive(end, len(data)) == data
        thread.join()


def test_bytes_that_waited_through_a_pause_still_take_their_time_on_the_wire(far: Far) -> None:
    with ShapedLink(far.target, up=Shape(200e3)) as link:
        near, end = far.join(link)
        link.pause()
        near.sendall(bytes(80_000))
        while link.up_bytes < 80_000:
            time.sleep(0.01)
        time.sleep(0.3)
        begin = time.monotonic()
        link.resume()
        assert len(receive(end, 80_000)) == 80_000
        assert time.monotonic() - begin >= 0.35  # 80 kB / 200 kB/s, but for the packet that was on the wire


def test_at_most_a_window_of_undelivered_bytes_is_held(far: Far) -> None:
    shape = Shape(10e6, 0.05)
    with ShapedLink(far.target, up=shape) as link:
        near, _ = far.join(link)
        link.pause()
        near.settimeout(0.3)
        with pytest.raises(TimeoutError):
            near.sendall(bytes(64_000_000))
        assert shape.window == BUFFER + 500_000
        assert shape.window < link.up_bytes <= shape.window + shape.packet


def test_a_new_shape_applies_to_bytes_that_wait(far: Far) -> None:
    with ShapedLink(far.target, up=Shape(1500.0)) as link:
        near, end = far.join(link)
        near.sendall(bytes(300_000))  # minutes, at that rate
        assert receive(end, 1500) == bytes(1500)
        link.change(up=Shape(30e6))
        assert len(receive(end, 298_500)) == 298_500


def test_a_cut_closes_all_connections_at_both_ends_and_the_next_one_works(far: Far) -> None:
    with ShapedLink(far.target, up=Shape(10.0)) as link:
        pairs = [far.join(link) for _ in range(3)]
        pairs[0][0].sendall(bytes(10_000))  # some of it on its way
        assert link.cut() == 3
        assert all(is_over(end) for pair in pairs for end in pair)
        link.change(up=Shape())
        near, end = far.join(link)
        near.sendall(b"again")
        assert receive(end, 5) == b"again"


def test_if_one_end_breaks_the_other_is_closed(far: Far) -> None:
    with ShapedLink(far.target) as link:
        near, end = far.join(link)
        near.sendall(b"x")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closing resets
        end.close()
        assert is_over(near)


def test_a_missing_target_ends_the_connection_but_not_the_link(far: Far) -> None:
    target = far.target
    far.listener.close()
    with ShapedLink(target) as link:
        with socket.create_connection(("127.0.0.1", link.port), timeout=PATIENCE_S) as near:
            assert is_over(near)
        far.listener = socket.create_server(target)
        near, end = far.join(link)
        near.sendall(b"there now")
        assert receive(end, 9) == b"there now"
        assert (link.up_bytes, link.down_bytes) == (9, 0)


def test_closing_ends_all_connections_and_frees_the_port(far: Far) -> None:
    link = ShapedLink(far.target).start()
    near, end = far.join(link)
    link.close()
    link.close()
    assert is_over(near)
    assert is_over(end)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", link.port), timeout=PATIENCE_S)
    with pytest.raises(RuntimeError, match="start"):
        link.cut()


def test_a_taken_port_is_refused(far: Far) -> None:
    with pytest.raises(OSError, match="in use"):
        ShapedLink(far.target, port=far.target[1]).start()


@pytest.mark.parametrize(("rate", "delay"), [(0, 0), (-1, 0), (math.nan, 0), (1, -1), (1, math.inf), (1, math.nan)])
def test_an_impossible_shape_is_refused(rate: float, delay: float) -> None:
    with pytest.raises(ValueError, match="a rate above 0"):
        Shape(rate, delay)


@pytest.mark.parametrize(("up", "down", "latency"), [(0, 1, 1), (1, -1, 1), (1, 1, -1), (math.nan, 1, 1)])
def test_an_impossible_profile_is_refused(up: float, down: float, latency: float) -> None:
    with pytest.raises(ValueError, match="rates above 0"):
        Profile("none", up, down, latency, "made up")


def test_the_profiles_are_those_of_webpagetest_and_one_of_ethernet() -> None:
    rates = {word: (one.name, one.up_mbit_s, one.down_mbit_s, one.round_trip_ms) for word, one in BY_WORD.items()}
    assert rates == {
        "3g": ("3G", 0.768, 1.6, 300),
        "dsl": ("home DSL", 0.384, 1.5, 50),
        "lte": ("LTE", 12, 12, 70),
        "gigabit": ("1 Gb/s", 1000, 1000, 1),
    }
    assert tuple(BY_WORD.values()) == PROFILES
    assert all(one.source for one in PROFILES)


def test_a_profile_gives_rates_in_bytes_and_half_its_round_trip_each_way() -> None:
    assert shapes(BY_WORD["3g"]) == (Shape(96_000, 0.15), Shape(200_000, 0.15))


def test_the_command_prints_its_address_and_the_bytes_it_carried(far: Far) -> None:
    target = f"127.0.0.1:{far.target[1]}"
    command = [sys.executable, "-m", "benchmarks.netshape.link", "--to", target, "--profile", "lte"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        address, rest = first.split(" -> ")
        assert rest == f"{target}; up 12 Mbit/s, 35 ms later; down 12 Mbit/s, 35 ms later\n"
        with socket.create_connection(("127.0.0.1", int(address.split(":")[1])), timeout=PATIENCE_S) as near:
            end, _ = far.listener.accept()
            with end:
                near.sendall(b"12345")
                assert receive(end, 5) == b"12345"
                end.sendall(b"123")
                assert receive(near, 3) == b"123"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "up 5 bytes, down 3 bytes\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--to", "nowhere"], "no HOST:PORT"),
        (["--to", "127.0.0.1:99999"], "no port"),
        (["--to", "127.0.0.1:1", "--profile", "lte", "--up-mbit", "3"], "alone"),
        (["--to", "127.0.0.1:1", "--profile", "dial-up"], "invalid choice"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert reason in capsys.readouterr().err


def test_a_rate_of_zero_and_a_taken_port_are_one_sentence(far: Far, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--to", "127.0.0.1:1", "--up-mbit", "0"]) == 1
    assert main(["--to", "127.0.0.1:1", "--port", str(far.target[1])]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert errors[0].startswith("error: 0.0 bytes/s")
    assert "in use" in errors[1]
    assert len(errors) == 2
