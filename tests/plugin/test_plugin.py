"""A package of a third party with a method, a quantized vector and a codec of its own, installed and trained with."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def output(*command: str | Path, cwd: Path = ROOT, timeout: float = 120) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.system
def test_the_plugin_keeps_the_contract(python: Path) -> None:
    program = "import fedcomp; from fedcomp.testing import check_compressor; check_compressor(fedcomp.parse('int8()'))"
    output(python, "-W", "error", "-c", program)


@pytest.mark.system
def test_the_methods_of_a_plugin_are_listed_after_the_others(python: Path) -> None:
    lines = output(python, "-m", "fedcomp", "methods").splitlines()
    assert lines[-3].startswith("int8 ")
    assert lines[-1] == "    fedcomp's example of a third party's method"


@pytest.mark.system
def test_a_federation_trains_with_the_method_of_a_plugin(python: Path, tmp_path: Path) -> None:
    lines = output(python, ROOT / "tests" / "plugin" / "federation.py", cwd=tmp_path).splitlines()
    assert lines == ["int8 is the last method: True", "refused: 0", "compressed: True", "learned: True"]


@pytest.mark.system
def test_a_frame_of_a_plugins_codec_is_decoded_by_a_process_that_has_seen_no_method_of_it(python: Path) -> None:
    output(python, "-W", "error", "-c", "from fedcomp.wire import codec_by_id; print(codec_by_id(200))")


def test_a_broken_plugin_is_named_in_one_log_line_and_the_methods_of_fedcomp_work(python: Path, tmp_path: Path) -> None:
    metadata = tmp_path / "broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[fedcomp.methods]\nfailing = broken_module\nabsent = no_module\n")
    (tmp_path / "broken_module.py").write_text("raise ArithmeticError('at import')\n")
    program = f"import sys; sys.path.append({str(tmp_path)!r}); import fedcomp; print(*fedcomp.METHODS)"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True)
    assert {"stc", "int8"} < set(done.stdout.split())
    failing, absent = sorted(done.stderr.splitlines(), reverse=True)
    assert "failing = broken_module" in failing
    assert "ArithmeticError: at import" in failing
    assert "absent = no_module" in absent


@pytest.mark.nightly
@pytest.mark.system
def test_flowers_simulation_trains_with_the_method_of_a_plugin(python: Path, tmp_path: Path) -> None:
    config = f"uplink=int8() downlink=int8() num-rounds=2 fraction-train=0.5 runs-dir={tmp_path} run-name=run"
    output(python, ROOT / "deploy" / "simulate.py", "--nodes", "4", "-c", config, timeout=300)
    assert '"rounds": 2' in (tmp_path / "run" / "summary.json").read_text()
