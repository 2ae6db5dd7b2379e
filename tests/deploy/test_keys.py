"""Keys and certificates: TLS and Flower accept them, and their files are private."""

import os
import shlex
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from deploy.keys import KeyFileError, make_node, make_peer, make_server

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def careless() -> Iterator[None]:
    """A umask that lets every user read and write new files."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with an authority and a certificate for two more names."""
    make_server(tmp_path / "keys", ["superlink.example.org", "192.0.2.7"])
    return tmp_path / "keys"


def handshake(keys: Path, authority: Path, name: str) -> None:
    """Connect a client that trusts `authority` to a server `name` with the certificate in `keys`."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(keys / "server.pem", keys / "server.key")
    client_context = ssl.create_default_context(cafile=str(authority))
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    for end in (client, server, client, server):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "superlink.example.org", "192.0.2.7"])
def test_the_certificate_is_valid_for_loopback_and_the_given_names(keys: Path, name: str) -> None:
    handshake(keys, keys / "ca.pem", name)


def test_another_name_and_another_authority_are_not_verified(keys: Path, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'superlink\.example\.com'"):
        handshake(keys, keys / "ca.pem", "superlink.example.com")
    make_server(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(keys, tmp_path / "other" / "ca.pem", "localhost")


def test_a_second_certificate_is_signed_by_the_same_authority(keys: Path) -> None:
    before = (keys / "ca.pem").read_bytes(), (keys / "ca.key").read_bytes()
    for name in ("server.key", "server.pem"):
        (keys / name).rename(keys / f"old-{name}")
    make_server(keys, ["new.example.org"])
    assert ((keys / "ca.pem").read_bytes(), (keys / "ca.key").read_bytes()) == before
    handshake(keys, keys / "ca.pem", "new.example.org")


def test_the_authority_cannot_sign_another_authority(keys: Path) -> None:
    authority = x509.load_pem_x509_certificate((keys / "ca.pem").read_bytes())
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)


def test_the_two_files_of_a_node_are_one_key_pair_on_flowers_curve(tmp_path: Path) -> None:
    make_node(tmp_path / "node")
    private = load_ssh_private_key((tmp_path / "node" / "node.key").read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp384r1"
    assert load_ssh_public_key((tmp_path / "node" / "node.pub").read_bytes()) == private.public_key()


@pytest.mark.usefixtures("careless")
def test_only_the_owner_can_read_private_keys(tmp_path: Path) -> None:
    make_server(tmp_path / "server")
    make_node(tmp_path / "node")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {
        "server": 0o700, "ca.key": 0o600, "ca.pem": 0o644, "server.key": 0o600, "server.pem": 0o644,
        "node": 0o700, "node.key": 0o600, "node.pub": 0o644,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["node.key", "node.pub", "server.key", "server.pem"])
def test_a_key_is_never_overwritten_and_nothing_is_made(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    (folder / name).write_text("precious")
    with pytest.raises(KeyFileError, match="never overwritten"):
        make_node(folder) if name.startswith("node") else make_server(folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {name: "precious"}


@pytest.mark.parametrize("left", [{"ca.key"}, {"ca.key", "ca.pem"}, {"ca.key", "ca.pem", "server.key"}])
def test_a_command_that_was_killed_is_finished_by_the_next(keys: Path, left: set[str]) -> None:
    before = {path.name: path.read_bytes() for path in keys.iterdir() if path.name in left}
    for path in keys.iterdir():
        if path.name not in left:
            path.unlink()
    make_server(keys)
    assert {path.name for path in keys.iterdir()} == {"ca.key", "ca.pem", "server.key", "server.pem"}
    assert before.items() <= {path.name: path.read_bytes() for path in keys.iterdir()}.items()
    handshake(keys, keys / "ca.pem", "localhost")


def test_a_node_key_without_its_other_file_gets_it(tmp_path: Path) -> None:
    make_node(tmp_path)
    private, public = tmp_path / "node.key", tmp_path / "node.pub"
    before = private.read_bytes(), public.read_bytes()
    public.unlink()
    make_node(tmp_path)
    assert (private.read_bytes(), public.read_bytes()) == before


def test_a_damaged_authority_is_refused(keys: Path, tmp_path: Path) -> None:
    make_server(tmp_path / "other")
    for name in ("server.key", "server.pem"):
        (keys / name).unlink()
    mine, other = keys / "ca.key", (tmp_path / "other" / "ca.key").read_bytes()
    for content, found in ((other, r"ca\.key .*ca\.pem"), (b"no key", r"keys "), (None, r"ca\.pem ")):
        mine.unlink() if content is None else mine.write_bytes(content)
        with pytest.raises(KeyFileError, match=found):
            make_server(keys)
    assert {path.name for path in keys.iterdir()} == {"ca.pem"}
    (keys / "ca.pem").rename(mine)
    with pytest.raises(KeyFileError, match=r"ca\.key "):
        make_server(keys)
    assert {path.name for path in keys.iterdir()} == {"ca.key"}


@pytest.mark.parametrize(
    "host", ["", "a:8000", "https://a", "a b", "-a", "a..b", "x" * 64, "1.2.3", "192.0.2.256", "*.example.org", "[::1]"]
)
def test_an_impossible_host_is_refused_before_anything_is_made(tmp_path: Path, host: str) -> None:
    with pytest.raises(KeyFileError, match="DNS"):
        make_server(tmp_path / "keys", [host])
    assert not (tmp_path / "keys").exists()


def test_a_certificate_for_zero_days_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="0 days; .*1"):
        make_server(tmp_path / "keys", days=0)


def test_a_folder_that_others_may_read_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(KeyFileError, match="0755; .*0700"):
        make_node(folder)
    (tmp_path / "file").touch()
    with pytest.raises(KeyFileError, match=r"file "):
        make_node(tmp_path / "file")


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the file as on a device, without this project."""
    line = [sys.executable, "-I", str(ROOT / "deploy" / "keys.py"), *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_makes_keys_and_prints_their_use(tmp_path: Path) -> None:
    done = command("server", str(tmp_path / "keys"), "--host", "example.org")
    assert done.returncode == 0
    assert f"--ssl-keyfile {tmp_path}/keys/server.key" in done.stdout
    done = command("node", str(tmp_path / "node"))
    assert done.returncode == 0
    assert f"flwr supernode register {tmp_path}/node/node.pub" in done.stdout


def test_the_command_prints_paths_as_a_shell_and_toml_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / 'my "own" keys'
    words = shlex.split(command("server", '~/my "own" keys').stdout)
    assert [word for word in words if word.endswith("/server.pem")] == [str(folder / "server.pem")]
    done = command("peer", str(folder), "--node", "1")
    assert tomllib.loads(done.stdout)["tls"] == {
        "ca": str(folder / "ca.pem"),
        "certificate": str(folder / "node-1.pem"),
        "key": str(folder / "node-1.key"),
    }
    assert shlex.split(command("node", str(folder)).stdout)[-1] == str(folder / "node.pub")
    done = command("node", "~nobody-of-this-name/keys")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)


def test_the_command_refuses_in_one_sentence(tmp_path: Path) -> None:
    command("node", str(tmp_path / "node"))
    done = command("node", str(tmp_path / "node"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"error: {tmp_path}/node/node.key ")


def test_a_copy_of_a_key_that_a_killed_command_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".node.key.0123abcd").write_text("secret")
    make_node(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"node.key", "node.pub"}


@pytest.mark.parametrize("kind", ["folder", "text"])
def test_something_else_in_the_place_of_a_key_is_named_and_left_alone(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    path.mkdir() if kind == "folder" else path.write_text("no key")
    with pytest.raises(KeyFileError, match=r"node\.key cannot be read as a private key"):
        make_node(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["node.key"]


def test_a_node_of_a_graph_has_a_number_from_0(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="node -1; .*0"):
        make_peer(tmp_path / "keys", -1)
