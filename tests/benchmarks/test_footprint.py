"""What is measured of a node: files as du counts them, and the memory of processes by what they are."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from benchmarks.footprint import MIB, Peaks, installed, main, on_disk
from deploy.program import Program, end, wait_until

HOLD = """
import time
held = bytearray({size})
open({ready!r}, "w").close()
time.sleep(60)
"""


def test_files_are_counted_as_du_counts_them(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "data").write_bytes(os.urandom(123_456))
    (tmp_path / "more").write_bytes(os.urandom(10))
    (tmp_path / "link").symlink_to("/usr")
    du = subprocess.run(["du", "-s", "-B1", tmp_path / "deep" / "er" / "data"], capture_output=True, text=True)
    data = int(du.stdout.split()[0])
    assert 123_456 <= data <= on_disk(tmp_path) <= data + 3 * 4096


def test_an_environment_is_as_large_as_what_is_in_it(tmp_path: Path) -> None:
    venv.create(tmp_path, symlinks=True)
    [packages] = tmp_path.glob("lib/*/site-packages")
    empty, _ = installed(tmp_path / "bin" / "python")
    (packages / "data").write_bytes(os.urandom(3 * MIB))
    (packages / "one-1.0.dist-info").mkdir()
    (packages / "one-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: one\nVersion: 1.0\n")
    size, count = installed(tmp_path / "bin" / "python")
    assert count == 1
    assert 3 * MIB <= size - empty <= 3 * MIB + 3 * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_greatest_size_of_each_part_stays_when_it_has_ended(tmp_path: Path) -> None:
    peaks = Peaks()
    for part, size in (("flwr-clientapp", 60 * MIB), ("flower-supernode", 20 * MIB), ("flwr-clientapp", 10 * MIB)):
        ready = tmp_path / f"{part}-{size}"
        program = Program(part, f"{tmp_path}/", tmp_path / "log")
        code = HOLD.format(size=size, ready=str(ready))
        program.start([sys.executable, "-c", code, part], tmp_path, dict(os.environ))
        try:
            assert wait_until(ready.exists, 30)
            peaks.look(program)
        finally:
            end([program], grace_s=1)
    assert set(peaks.parts) == {"flwr-clientapp", "flower-supernode"}
    assert 60 * MIB < peaks.parts["flwr-clientapp"] < 100 * MIB
    assert 20 * MIB < peaks.parts["flower-supernode"] < 60 * MIB
    assert 60 * MIB < peaks.together < 100 * MIB


def test_a_python_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--python", "/nowhere/python"]) == 2
    assert capsys.readouterr().err == "footprint: [Errno 2] No such file or directory: '/nowhere/python'\n"
