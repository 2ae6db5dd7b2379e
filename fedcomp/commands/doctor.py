"""Checks what a node or a server needs: libraries, the clock, and whether a SuperLink answers.

fedcomp doctor                                                         # this machine
fedcomp doctor superlink.example:8000 --root-certificates ca.pem       # and the way to a SuperLink
"""

import json
import os
import platform
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from importlib import import_module, metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedcomp import __version__
from fedcomp.commands import new_parser, path_of
from fedcomp.versions import unsupported_flower

OK, NOTE, FAILED = "ok", "note", "FAILED"
Check = tuple[str, str]
"""`OK`, `NOTE` or `FAILED`, and a sentence."""
TIMEOUT_S = 5.0
REQUEST = b"OPTIONS * HTTP/1.1\r\nHost: superlink\r\nConnection: close\r\n\r\n"
HTTP = b"HTTP/1."
"""How a server of HTTP/1 begins its answer to `REQUEST`, whatever it says."""


def machine() -> Iterator[Check]:
    """Yield the checks of this machine."""
    yield (
        OK,
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} processors",
    )
    yield OK, f"fedcomp {__version__}{_commit()}, numpy {metadata.version('numpy')}"
    yield _flower()
    yield _torch()
    yield _clock()


def _flower() -> Check:
    extra = "pip install '.[flower]' in the project's folder"
    try:
        wrong = unsupported_flower()
    except metadata.PackageNotFoundError as error:
        return NOTE, f"{error.name} is not installed; Flower apps need it: {extra}"
    return (FAILED, f"{wrong}: {extra}") if wrong else (OK, f"flwr {metadata.version('flwr')}")


def _commit() -> str:
    """Return the commit of a wheel; nothing in a folder with the sources, and for a wheel that was built without git."""
    file = files("fedcomp") / "provenance.json"
    provenance: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if provenance.get("commit") is None:
        return ""
    changed = ", with changes" if provenance["modified"] else ""
    return f" (commit {provenance['commit'][:12]}{changed})"


def _torch() -> Check:
    try:
        torch: Any = import_module("torch")
    except ImportError:
        return NOTE, "torch is not installed; plug-ins of the training and fedcomp's own app need it"
    if torch.cuda.is_available():
        return OK, f"torch {torch.__version__}, GPU {torch.cuda.get_device_name()}"
    return OK, f"torch {torch.__version__}, no CUDA GPU"


def _clock() -> Check:
    """Compare the clock with the time at which fedcomp was written to this disk."""
    now, installed = time.time(), Path(__file__).stat().st_mtime
    text = f"the clock says {datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M} UTC"
    if now < installed:
        return FAILED, f"{text}, before fedcomp was installed; certificates will not be valid until it is set"
    return OK, text


def superlink(address: str, root_certificates: Path | None) -> Iterator[Check]:
    """Yield the checks of the way to the SuperLink at `address`, HOST:PORT, up to the first that fails."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 1 << 16):
        yield FAILED, f"{address!r} is no address; HOST:PORT is needed, such as superlink.example:8000"
        return
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S)
    except (socket.gaierror, UnicodeError):  # no DNS knows it, or it cannot be a name
        yield FAILED, f"{host} is not known; check the name, and this machine's DNS"
    except TimeoutError:
        yield FAILED, f"{address} does not answer within {TIMEOUT_S:g} s; a firewall may drop what comes from here"
    except OSError as error:
        yield FAILED, f"{address}: {error.strerror}; does the SuperLink run, and listen on more than its own loopback?"
    else:
        with closing(connection):
            yield OK, f"{address} takes connections"
            yield from _speaks(connection, host, root_certificates)


def _speaks(connection: socket.socket, host: str, root_certificates: Path | None) -> Iterator[Check]:
    if root_certificates is None:
        if _speaks_http(connection):
            yield OK, "it speaks HTTP without TLS: nodes connect with --insecure"
        else:
            certificates = "With TLS, name its certificates: --root-certificates FILE"
            yield FAILED, f"it does not speak HTTP without TLS; is the port right? {certificates}"
        return
    try:
        context = ssl.create_default_context(cafile=root_certificates)
    except (OSError, ssl.SSLError) as error:
        yield FAILED, f"{root_certificates} holds no certificates: {getattr(error, 'strerror', None) or error}"
        return
    try:
        secure = context.wrap_socket(connection, server_hostname=host.strip("[]"))
    except ssl.SSLCertVerificationError as error:
        yield FAILED, f"its certificate is refused: {error.verify_message}"
    except OSError as error:
        yield FAILED, f"it does not speak TLS ({error}); is the port right? Without TLS, nodes connect with --insecure"
    else:
        with closing(secure):
            certificate: dict[str, Any] = dict(secure.getpeercert() or {})
            yield OK, f"its certificate is valid for {host}, until {certificate['notAfter']}"
            if _speaks_http(secure):
                yield OK, "it speaks HTTP"
            else:
                yield FAILED, "it speaks TLS, but not HTTP; is the port right?"


def _speaks_http(connection: socket.socket) -> bool:
    """Return whether the server answers in HTTP/1, as a SuperLink does to its nodes."""
    head = b""
    try:
        connection.settimeout(TIMEOUT_S)
        connection.sendall(REQUEST)
        while len(head) < len(HTTP) and (more := connection.recv(len(HTTP) - len(head))):
            head += more
    except OSError:
        return False
    return head == HTTP


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each check; return 0, or 1 if one failed."""
    parser = new_parser("fedcomp doctor", __doc__)
    parser.add_argument(
        "address",
        nargs="?",
        metavar="HOST:PORT",
        help="of a SuperLink: the one that nodes connect to, by default port 8000",
    )
    parser.add_argument("--root-certificates", type=path_of, metavar="FILE", help="as for flower-supernode")
    options = parser.parse_args(arguments)
    if options.root_certificates and not options.address:
        parser.error("--root-certificates without HOST:PORT checks nothing; the address of a SuperLink is needed")
    failed = False
    for result, text in (
        *machine(),
        *(superlink(options.address, options.root_certificates) if options.address else ()),
    ):
        print(f"{result:<7}{text}", flush=True)
        failed |= result == FAILED
    return int(failed)
