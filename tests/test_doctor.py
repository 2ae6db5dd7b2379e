"""`fedcomp doctor`: a line for each check, against SuperLinks' kinds of servers and what stands in their place."""

import json
import os
import re
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer
from threading import Thread

import pytest

from deploy.keys import make_server
from fedcomp.__main__ import main
from fedcomp.commands import doctor


class Http(StreamRequestHandler):
    """Answers each request as a SuperLink does that has no such page."""

    def handle(self) -> None:
        if self.rfile.readline():
            self.wfile.write(b"HTTP/1.1 404 Not Found\r\n\r\n")


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    status = main(["doctor", *arguments])
    return status, capsys.readouterr().out.splitlines()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority and a server's certificate for loopback."""
    folder = tmp_path_factory.mktemp("keys")
    make_server(folder)
    return folder


@contextmanager
def served(keys: Path | None = None) -> Generator[str]:
    """Serve `Http`, over TLS with the certificate in `keys`; yield the address."""
    with TCPServer(("127.0.0.1", 0), Http) as server:
        if keys:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(keys / "server.pem", keys / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


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


def test_a_superlink_without_tls_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with served() as address:
        status, found = lines(capsys, address)
    assert status == 0
    assert found[-2:] == [
        f"ok     {address} takes connections",
        "ok     it speaks HTTP without TLS: nodes connect with --insecure",
    ]


def test_certificates_for_a_superlink_without_tls_fail(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served() as address:
        status, found = lines(capsys, address, "--root-certificates", str(keys / "ca.pem"))
    assert status == 1
    assert found[-1].startswith("FAILED it does not speak TLS")
    assert found[-1].endswith("is the port right? Without TLS, nodes connect with --insecure")


def test_a_superlink_with_tls_answers(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(keys) as address:
        status, found = lines(capsys, address, "--root-certificates", str(keys / "ca.pem"))
    assert status == 0
    assert found[-2].startswith("ok     its certificate is valid for 127.0.0.1, until ")
    assert found[-1] == "ok     it speaks HTTP"


def test_what_is_wrong_with_tls_is_said(keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_server(tmp_path / "other")
    (tmp_path / "empty").write_text("")
    for arguments, sentence in (
        ((), "it does not speak HTTP without TLS; is the port right? With TLS, name its certificates: --root-cert"),
        (("--root-certificates", str(tmp_path / "other" / "ca.pem")), "its certificate is refused: "),
        (("--root-certificates", str(tmp_path / "empty")), f"{tmp_path / 'empty'} holds no certificates"),
        (("--root-certificates", str(tmp_path / "none")), f"{tmp_path / 'none'} holds no certificates: No such file"),
    ):
        with served(keys) as address:
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


def test_a_server_that_is_silent_or_speaks_something_else_is_no_superlink(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        status, found = lines(capsys, f"127.0.0.1:{silent.getsockname()[1]}")
    assert status == 1
    assert found[-1].startswith("FAILED it does not speak HTTP without TLS")
    monkeypatch.setattr(Http, "handle", lambda handler: handler.wfile.write(b"\0\0\6\4\0\0\0\0\0"))  # HTTP/2, as gRPC
    with served() as address:
        status, found = lines(capsys, address)
    assert status == 1
    assert found[-1].startswith("FAILED it does not speak HTTP without TLS")


def test_certificates_without_an_address_are_refused(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        lines(capsys, "--root-certificates", str(keys / "ca.pem"))
    assert "--root-certificates without HOST:PORT checks nothing" in capsys.readouterr().err


def test_its_processor_count_is_that_of_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys)[1][0].endswith(f", {os.cpu_count()} processors")
