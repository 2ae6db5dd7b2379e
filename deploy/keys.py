"""Keys and certificates of a federation: its own authority, the SuperLink's certificate, and a key for each SuperNode.

This file needs only `cryptography`, which Flower installs: it can be copied to a device and run there, so that the
private key never leaves the device.

    fedcomp keys server FOLDER --host superlink.example.org --host 192.0.2.7
    fedcomp keys node FOLDER                # on the node; only FOLDER/node.pub leaves it
    fedcomp keys peer FOLDER --node 3 --host 192.0.2.9    # node 3 of a graph, of fedcomp gossip

A private key is created with mode 0600, in a folder of mode 0700, and is never overwritten.  One without its other file,
which a command that was killed leaves, gets that file from the next command.
"""

import argparse
import ipaddress
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CURVE = ec.SECP384R1()
"""The first choice of `flwr supernode register`, which also accepts the other NIST curves."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
AUTHORITY_DAYS = 3650
SERVER_DAYS = 730
PURPOSES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
EXISTS = "{} exists already; keys are never overwritten: move it away, or name another folder"
UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)
"""What `cryptography` raises for a damaged key, one that a password protects, and one of another kind."""
CLOCK_SKEW = timedelta(days=1)  # the clock of a device without a battery may be behind


class KeyFileError(Exception):
    """Keys cannot be made; the text is one sentence."""


def make_server(folder: Path, hosts: Sequence[str] = (), days: int = SERVER_DAYS) -> None:
    """Make `server.key` and `server.pem` in `folder`, signed by the authority there, which is made if there is none.

    The certificate is valid for `days` days, for the loopback names and for `hosts`: names or addresses at which nodes
    reach the SuperLink.  Raises `KeyFileError` for an impossible host, and if there is a certificate already.
    """
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH]
    _make_certificate(folder, "server", f"SuperLink {hosts[0] if hosts else LOOPBACK[0]}", hosts, purposes, days)


def make_peer(folder: Path, number: int, hosts: Sequence[str] = (), days: int = SERVER_DAYS) -> None:
    """Make `node-<number>.key` and `node-<number>.pem` for a node of a graph, which is server and client to its neighbours.

    The authority, the hosts and the errors are those of `make_server`.  The certificate names the node, and neighbours
    check that.
    """
    if number < 0:
        raise KeyFileError(f"node {number}; a number from 0 is needed")
    name = f"node-{number}.gossip"
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    _make_certificate(folder, f"node-{number}", name, (name, *hosts), purposes, days)


def _make_certificate(
    folder: Path, file: str, common_name: str, hosts: Sequence[str], purposes: list[x509.ObjectIdentifier], days: int
) -> None:
    """Make the private key and the certificate `file`, signed by the authority in `folder`."""
    names = [_name(host) for host in dict.fromkeys((*LOOPBACK, *hosts))]
    if days < 1:
        raise KeyFileError(f"a certificate for {days} days; at least 1 is needed")
    _private_folder(folder)
    key_path, path = folder / f"{file}.key", folder / f"{file}.pem"
    key = _own_key(key_path, path, load_pem_private_key)
    authority, signer = _authority(folder)
    builder = (
        _certificate(common_name, authority.subject, key, days)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    signed = builder.sign(signer, hashes.SHA384()).public_bytes(Encoding.PEM)
    _write_pair(key_path, _pem(key), path, signed)


def make_node(folder: Path) -> None:
    """Make `node.key`, for `flower-supernode`, and `node.pub`, for `flwr supernode register`, in `folder`.

    Both have OpenSSH's format, as ``ssh-keygen -t ecdsa -b 384`` makes them.  Raises `KeyFileError` if there is a
    public key already.
    """
    _private_folder(folder)
    key = _own_key(folder / "node.key", folder / "node.pub", load_ssh_private_key)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    _write_pair(folder / "node.key", private, folder / "node.pub", public)


def _own_key(path: Path, public_path: Path, load: Callable[[bytes, None], object]) -> ec.EllipticCurvePrivateKey:
    """Return the private key in `path`, or a new one if there is no such file; refuse if its other file is there already."""
    if public_path.exists():
        raise KeyFileError(EXISTS.format(path if path.exists() else public_path))
    if not path.exists():
        return ec.generate_private_key(CURVE)
    with suppress(*UNREADABLE, OSError):
        if isinstance(key := load(path.read_bytes(), None), ec.EllipticCurvePrivateKey):
            return key
    raise KeyFileError(
        f"{path} cannot be read as a private key of an elliptic curve; keys are never overwritten: move it away"
    )


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the certificate and the key of the authority in `folder`; make them if there are none."""
    key_path, path = folder / "ca.key", folder / "ca.pem"
    if key_path.exists() and path.exists():
        try:
            key = load_pem_private_key(key_path.read_bytes(), None)
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
        except UNREADABLE as error:
            raise KeyFileError(f"{folder} holds an authority that cannot be read: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise KeyFileError(f"{key_path} is not the key of {path}")
        return certificate, key
    key = _own_key(key_path, path, load_pem_private_key)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"fedcomp {os.urandom(4).hex()}")])
    builder = (
        _certificate("", name, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
    )
    certificate = builder.sign(key, hashes.SHA384())
    _write_pair(key_path, _pem(key), path, certificate.public_bytes(Encoding.PEM))
    return certificate, key


def _certificate(
    common_name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    """Return the parts that all certificates share; without a `common_name`, the subject is the issuer."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])]) if common_name else issuer
    start = datetime.now(UTC) - CLOCK_SKEW
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + CLOCK_SKEW + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*granted: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{purpose: purpose in granted for purpose in PURPOSES})


def _name(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    if not re.fullmatch(r"(?=.{1,253}$)(?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*", host) or host[-1].isdigit():
        raise KeyFileError(f"host {host!r}; a DNS name or an IP address is needed, without port")
    return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _private_folder(folder: Path) -> None:
    """Make `folder` if there is none; refuse a folder that other users may read."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise KeyFileError(f"{folder} cannot be a folder: {error.strerror}") from None
    mode = folder.stat().st_mode & 0o777
    if mode & 0o077:
        raise KeyFileError(f"folder {folder} has mode {mode:04o}; keys need 0700 (chmod 700, or another folder)")


def _write_pair(private_path: Path, private: bytes, public_path: Path, public: bytes) -> None:
    """Make both files or none, or the second one for a first one that is there; every user may read the second one."""
    with ExitStack() as undo:
        if not private_path.exists():
            _write(private_path, private, 0o600)
            undo.callback(private_path.unlink)
        _write(public_path, public, 0o644)
        undo.pop_all()


def _write(path: Path, data: bytes, mode: int) -> None:
    """Make the file atomically, with that mode; refuse to replace one."""
    for left in path.parent.glob(f".{path.name}.{8 * '?'}"):  # by a command that was killed
        left.unlink()
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename, it does not replace
    except FileExistsError:
        raise KeyFileError(EXISTS.format(path)) from None
    finally:
        temporary.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, or 1 after one sentence if no key was made."""
    parser = argparse.ArgumentParser(
        prog="fedcomp keys", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    server = commands.add_parser("server", help="make an authority and the SuperLink's certificate")
    node = commands.add_parser("node", help="make a SuperNode's key; run it on the node")
    peer = commands.add_parser("peer", help="make the key and the certificate of a node of a graph")
    peer.add_argument("--node", type=int, required=True, help="its number")
    for command in (server, peer):
        command.add_argument("--host", action="append", default=[], help="a name or address of it; repeatable")
        command.add_argument("--days", type=int, default=SERVER_DAYS, help="of its validity (default: %(default)s)")
    for command in (server, node, peer):
        command.add_argument("folder", type=Path, help="where the keys go; its mode must be 0700")
    args = parser.parse_args(arguments)
    try:
        folder: Path = args.folder.expanduser()  # which no shell does in quotes
        if args.command == "server":
            make_server(folder, args.host, args.days)
            ca, pem, key = (shlex.quote(str(folder / name)) for name in ("ca.pem", "server.pem", "server.key"))
            print(f"SuperLink: --ssl-ca-certfile {ca} --ssl-certfile {pem} --ssl-keyfile {key}")
            print(f"nodes:     give each {ca}; the *.key files stay here")
        elif args.command == "peer":
            make_peer(folder, args.node, args.host, args.days)
            files = {"ca": "ca.pem", "certificate": f"node-{args.node}.pem", "key": f"node-{args.node}.key"}
            print("[tls]")
            for name, file in files.items():  # a text of JSON is one of TOML
                print(f"{name} = {json.dumps(str(folder / file), ensure_ascii=False)}")
        else:
            make_node(folder)
            key, public = (shlex.quote(str(folder / name)) for name in ("node.key", "node.pub"))
            print(f"SuperNode: --auth-supernode-private-key {key}, which stays here")
            print(f"operator:  flwr supernode register {public}")
    except (KeyFileError, OSError, RuntimeError) as error:  # RuntimeError: a home that is not known
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
