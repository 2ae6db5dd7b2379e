"""`fedcomp doctor`: a line for each check, against SuperLinks' kinds of servers and what stands in their place."""

import json
import os
import re
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer
from threading import Thread
from typing import Any

import pytest

from deploy.keys import make_server
from fedcomp.__main__ import main
from fedcomp.commands import doctor

grpc: Any = pytest.importorskip("grpc", reason="grpcio, which Flower installs, is the server")


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    status = main(["doctor", *arguments])
    return status, capsys.readouterr().out.splitlines()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority and a server's certificate for loopback."""
    folder = tmp_path_factory.mktemp("keys")
    make_server(folder)
    return folder


@pytest.fixture
def server() -> Iterator[Any]:
    """A server of gRPC without services and, so far, without ports."""
    found = grpc.server(ThreadPoolExecutor(1))
    yield found
    found.stop(None).wait()


def test_a_wheel_names_its_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "files", lambda _: tmp_path)
    (tmp_path / "provenance.json").write_text(json.dumps({"commit": None, "modified": None}))
    assert any(re.fullmatch(r"fedcomp [\d.]+, numpy .*", text) for _, text in doctor.machine()), "built without git"
    for modified, changed in ((False, ""), (True, ", with changes")):
        (tmp_path / "provenance.json").write_text(json.dumps({"commit": "0123456789abcdef", "modified": modified}))
        assert any(f" (commit 0123456789ab{changed}), numpy " in text for _, text in doctor.machine())


def test_this_machine_can_take_part(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = lines(capsys)
    assert status == 0
    assert [line.split()[1] for line in found] == ["Python", "fedcomp", "flwr", "torch", "the"]
    assert all(line.startswith("ok     ") for line in found)


def test_another_flower_and_none_and_no_torch_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version
    for other in ("1.39.9", "1.43.0", "2.0.1"):
        monkeypatch.setattr(metadata, "version", lambda name, other=other: other if name == "flwr" else version(name))
        [(result, text)] = [check for check in doctor.machine() if "flwr" in check[1]]
        assert result == doctor.FAILED
        assert f"flwr is {other}; flwr<1.43,>=1.40 is needed: pip install '.[flower]' in the project's folder" in text

    def absent(name: str) -> str:
        if name == "flwr":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    def no_module(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(metadata, "version", absent)
    monkeypatch.setattr(doctor, "import_module", no_module)
    notes = [text for result, text in doctor.machine() if result == doctor.NOTE]
    assert [text.split(";")[0] for text in notes] == ["flwr is not installed", "torch is not installed"]


def test_a_clock_before_the_installation_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedcomp.commands.doctor.time.time", lambda: 3600.0)
    status, found = lines(capsys)
    assert status == 1
    assert found[-1].startswith("FAILED the clock says 1970-01-01 01:00 UTC, before fedcomp was installed")


def test_a_superlink_without_tls_answers(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    status, found = lines(capsys, f"127.0.0.1:{port}")
    assert status == 0
    assert found[-2:] == [
        f"ok     127.0.0.1:{port} takes connections",
        "ok     it speaks gRPC without TLS: nodes connect with --insecure",
    ]


def test_certificates_for_a_superlink_without_tls_fail(
    server: Any, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    status, found = lines(capsys, f"127.0.0.1:{port}", "--root-certificates", str(keys / "ca.pem"))
    assert status == 1
    assert found[-1].startswith("FAILED it does not speak TLS")


def secure(server: Any, keys: Path) -> int:
    pair = (keys / "server.key").read_bytes(), (keys / "server.pem").read_bytes()
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    server.start()
    return int(port)


def test_a_superlink_with_tls_answers(server: Any, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = secure(server, keys)
    status, found = lines(capsys, f"127.0.0.1:{port}", "--root-certificates", str(keys / "ca.pem"))
    assert status == 0
    assert found[-2].startswith("ok     its certificate is valid for 127.0.0.1, until ")
    assert found[-1] == "ok     it speaks gRPC"


def test_what_is_wrong_with_tls_is_said(
    server: Any, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"127.0.0.1:{secure(server, keys)}"
    make_server(tmp_path / "other")
    (tmp_path / "empty").write_text("")
    for arguments, sentence in (
        ((), "it speaks neither gRPC nor HTTP without TLS; name its certificates: --root-certificates FILE"),
        (("--root-certificates", str(tmp_path / "other" / "ca.pem")), "its certificate is refused: "),
        (("--root-certificates", str(tmp_path / "empty")), f"{tmp_path / 'empty'} holds no certificates"),
        (("--root-certificates", str(tmp_path / "none")), f"{tmp_path / 'none'} holds no certificates: No such file"),
    ):
        status, found = lines(capsys, address, *arguments)
        assert status == 1
        assert found[-1].startswith(f"FAILED {sentence}")


def test_what_stands_in_the_place_of_a_superlink_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for address, sentence in (
        (f"127.0.0.1:{port}", f"127.0.0.1:{port}: Connection refused; does the SuperLink run"),
        ("no-such-host.invalid:8000", "no-such-host.invalid is not known"),
        (f"{'x' * 80}:8000", f"{'x' * 80} is not known"),
        ("127.0.0.1", "'127.0.0.1' is no address; HOST:PORT is needed"),
        (":8000", "':8000' is no address"),
        ("127.0.0.1:99999", "'127.0.0.1:99999' is no address"),
    ):
        status, found = lines(capsys, address)
        assert status == 1
        assert found[-1].startswith(f"FAILED {sentence}")


def test_a_server_that_is_silent_or_closes_does_not_speak_grpc(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        status, found = lines(capsys, f"127.0.0.1:{silent.getsockname()[1]}")
    assert status == 1
    assert found[-1].startswith("FAILED it speaks neither gRPC nor HTTP without TLS")


class Refusal(StreamRequestHandler):
    """Answers the first line as a server of HTTP/1.1 does that does not know HTTP/2."""

    def handle(self) -> None:
        assert self.rfile.readline() == b"PRI * HTTP/2.0\r\n"
        self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize("tls", [False, True])
def test_a_superlink_of_flowers_http_answers(tls: bool, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with TCPServer(("127.0.0.1", 0), Refusal) as server:
        if tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(keys / "server.pem", keys / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        one = Thread(target=server.handle_request)
        one.start()
        certificates = ["--root-certificates", str(keys / "ca.pem")] if tls else []
        status, found = lines(capsys, f"127.0.0.1:{server.server_address[1]}", *certificates)
        one.join()
    assert status == 0
    assert found[-1] == (
        "ok     it speaks HTTP" if tls else "ok     it speaks HTTP without TLS: nodes connect with --insecure"
    )


def test_its_processor_count_is_that_of_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys)[1][0].endswith(f", {os.cpu_count()} processors")
