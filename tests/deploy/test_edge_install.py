"""A node with the extra `client` in an empty environment trains in a real federation, on its own samples."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.federation import Federation
from deploy.run_config import ROOT
from fedcomp.data import load, read_card, write_own

ABSENT = {"flwr-datasets", "datasets", "scikit-learn", "scipy", "matplotlib", "pandas", "pyarrow", "ray"}


@pytest.mark.chaos
def test_a_device_with_only_the_client_extra_trains(tmp_path: Path) -> None:
    python = install(tmp_path)
    listed = subprocess.run([python, "-m", "pip", "list", "--format", "freeze"], capture_output=True, text=True)
    packages = {line.partition("==")[0].lower() for line in listed.stdout.splitlines()}
    assert {"fedcomp", "flwr", "numpy", "torch"} <= packages
    assert not packages & ABSENT

    card = read_card("digits", ROOT / "datasets")
    train = load(card).train
    write_own(tmp_path / "samples", card, train.x[:300], train.y[:300])
    with Federation(tmp_path / "federation", nodes=1) as federation:
        [node] = federation.nodes
        node.config = {"data-dir": str(tmp_path / "samples"), "state-dir": str(tmp_path / "state")}
        node.env = {"PATH": f"{python.parent}{os.pathsep}/usr/bin:/bin", "PYTHONPATH": ""}
        federation.start()
        settings = {"partition": "own()", "num-rounds": 2, "min-nodes": 1, "fraction-train": 1.0}
        run = federation.run(ROOT, settings | {"runs-dir": str(tmp_path / "runs")})
        assert run.wait(300) == "finished:completed", run.log()
    assert "round 2/2" in run.log()
    assert (tmp_path / "runs" / "digits-001" / "model.npz").exists()


def install(folder: Path) -> Path:
    """Return the interpreter of an environment with the wheel and its extra `client`, and nothing else."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    wheels = folder / "wheels"

    def pip(*arguments: str | Path) -> None:
        subprocess.run([python, "-m", "pip", *arguments], cwd=ROOT, env=env, check=True, timeout=900)

    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ".")
    [wheel] = wheels.iterdir()
    pip("install", "--quiet", "-c", ROOT / "constraints.txt", f"{wheel}[client]")
    return python
