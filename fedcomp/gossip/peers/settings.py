"""The settings of a node, from a TOML file; an error is one sentence: what was found, then what is needed."""

import importlib
import ipaddress
import ssl
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

from fedcomp.core import check_bool, check_int, check_range, parse_setting
from fedcomp.gossip.choco import Choco
from fedcomp.gossip.deep_squeeze import DeepSqueeze
from fedcomp.gossip.parsing import parse_method
from fedcomp.gossip.peers.task import Task
from fedcomp.gossip.topology import MAX_NODES, Topology, parse_topology

MAX_ROUNDS = 2**31
MAX_PORT = 65535
TEXTS = ("listen", "topology", "method", "state-dir", "task")
DEFAULTS: dict[str, Any] = {"seed": 0, "timeout": 600.0, "silence": 5.0, "insecure": False, "tls": {}, "settings": {}}
NEEDED = ("node", "nodes", *TEXTS, "rounds", "neighbors")
TLS_FILES = ("ca", "certificate", "key")


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificate of the authority, and this node's certificate and private key, in PEM."""

    ca: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """One node.  `timeout_s` bounds the wait for a neighbour that is present, and `silence_s` for one that does not answer.

    `tls` is None for a node that communicates in plain text.
    """

    number: int
    listen: str
    topology: Topology
    neighbors: Mapping[int, str]
    method: Choco | DeepSqueeze
    rounds: int
    seed: int
    state_dir: Path
    make_task: Callable[..., Task]
    task_settings: Mapping[str, Any]
    timeout_s: float
    silence_s: float
    tls: Tls | None
    plain: Mapping[str, Any]
    """The settings as in the file."""


def read_settings(path: Path) -> PeerSettings:
    """Return the settings in the TOML file `path`; paths in it are relative to its folder, and may begin with ``~``.

    Raises `ValueError` for a file that cannot be read, and for an unknown, missing or impossible setting.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as TOML: {error}") from None
    if unknown := given.keys() - {*NEEDED, *DEFAULTS}:
        raise ValueError(f"unknown setting {min(unknown)!r}; there are: {', '.join(sorted({*NEEDED, *DEFAULTS}))}")
    if missing := [name for name in NEEDED if name not in given]:
        raise ValueError(f"setting {missing[0]!r} is missing; a node needs all of: {', '.join(NEEDED)}")
    values = DEFAULTS | given
    for name in TEXTS:
        if not isinstance(values[name], str):
            raise ValueError(f"{name} is {values[name]!r}; a text is needed")
    for name in ("neighbors", "tls", "settings"):
        if not isinstance(values[name], dict):
            raise ValueError(f"{name} is {values[name]!r}; a table is needed")
    check_int("nodes", values["nodes"], 2, MAX_NODES)
    check_int("node", values["node"], 0, values["nodes"] - 1)
    check_int("rounds", values["rounds"], 1, MAX_ROUNDS)
    check_int("seed", values["seed"], 0, 2**63 - 1)
    check_range("timeout", values["timeout"], least=1, most=1e6, what="a number of seconds")
    check_range("silence", values["silence"], least=0.1, most=1e6, what="a number of seconds")
    check_bool("insecure", values["insecure"])
    topology = parse_setting("topology", values["topology"], lambda text: parse_topology(text, values["nodes"]))
    neighbors = _neighbors(values["neighbors"], topology, values["node"])
    addresses = {"listen": values["listen"], **{f"neighbors.{each}": text for each, text in neighbors.items()}}
    for name, text in addresses.items():
        host, _, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
        if not host or not port.isdecimal() or not 1 <= int(port) <= MAX_PORT:
            raise ValueError(f"{name} is {text!r}; host:port is needed, such as 127.0.0.1:9100")
    return PeerSettings(
        values["node"],
        values["listen"],
        topology,
        neighbors,
        parse_setting("method", values["method"], parse_method),
        values["rounds"],
        values["seed"],
        _path(path.parent, "state-dir", values["state-dir"]),
        _entry(values["task"], values["settings"]),
        values["settings"],
        values["timeout"],
        values["silence"],
        _tls(values, addresses, path.parent),
        values,
    )


def _path(folder: Path, name: str, text: str) -> Path:
    try:
        return folder / Path(text).expanduser()
    except RuntimeError as error:  # of a home that is not known
        raise ValueError(f"{name} is {text!r}: {error}") from None


def _neighbors(table: Mapping[str, Any], topology: Topology, number: int) -> dict[int, str]:
    needed = topology.neighbors[number]
    if sorted(table) != sorted(map(str, needed)):
        found = ", ".join(sorted(table)) or "none"
        raise ValueError(f"neighbors are {found}; node {number} of this graph has {', '.join(map(str, needed))}")
    return {each: table[str(each)] for each in needed}


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _tls(values: Mapping[str, Any], addresses: Mapping[str, str], folder: Path) -> Tls | None:
    table = values["tls"]
    if values["insecure"]:
        if table:
            raise ValueError("insecure is true, and tls names files; one of the two is needed")
        for name, address in addresses.items():
            if not _is_loopback(address):
                raise ValueError(f"insecure is true, and {name} is {address!r}; loopback addresses alone are possible")
        return None
    if sorted(table) != sorted(TLS_FILES):
        found = ", ".join(sorted(table)) or "nothing"
        raise ValueError(
            f"tls has {found}; the files {', '.join(TLS_FILES)} are needed, or insecure = true on loopback"
        )
    found_files: dict[str, bytes] = {}
    for name in TLS_FILES:
        try:
            found_files[name] = _path(folder, f"tls.{name}", str(table[name])).read_bytes()
        except OSError as error:
            raise ValueError(f"tls.{name} is {table[name]!r}; a readable file is needed ({error.strerror})") from None
        if b"-----BEGIN" not in found_files[name]:
            raise ValueError(f"tls.{name} is {table[name]!r}; a PEM file is needed")
    try:
        ca, certificate, key = (_path(folder, f"tls.{name}", str(table[name])) for name in TLS_FILES)
        context = ssl.create_default_context(cafile=ca)
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # of ssl: a damaged file, or a key of another certificate
        texts = ", ".join(repr(table[name]) for name in TLS_FILES)
        raise ValueError(
            f"tls has {texts}; certificates, and the key of the second one, are needed ({error})"
        ) from None
    return Tls(**found_files)


def _entry(text: str, settings: Mapping[str, Any]) -> Callable[..., Task]:
    module, _, name = text.partition(":")
    try:
        entry = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # TypeError: a relative name, as .mine
        raise ValueError(f"task is {text!r}; module:function is needed ({error})") from None
    if not callable(entry):
        raise ValueError(f"task is {text!r}; a function is needed, not a {type(entry).__name__}")
    try:
        signature(entry).bind(0, 2, 0, **settings)
    except TypeError as error:
        raise ValueError(f"settings are {settings}, which {text} does not take: {error}") from None
    return entry  # type: ignore[no-any-return]  # what it returns is checked when it is called
