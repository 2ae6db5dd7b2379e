"""Training plug-ins of other packages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedcomp.training import fedprox, register
from fedcomp.training.plan import Begin
from fedcomp.training.step import Step

ROOT = Path(__file__).parents[2]
MODULE = """
from fedcomp.training import Step, register


class Scaled(Step):
    def __init__(self, factor):
        self.factor = factor

    def loss(self, loss):
        return self.factor * loss


@register("Author et al., 2026", "the loss times a factor", measured="nothing yet")
def scaled(factor: float = 2.0):
    return lambda model, kept, generator: Scaled(factor)
"""
IMPORTS = """
import pytest
import torch
from torch import nn
from torch.nn import functional

from clipped import clipped
"""
PROGRAM = """
import sys
sys.path.append(sys.argv[1])
import torch
from fedcomp.__main__ import main
from fedcomp.training import parse

plan = parse("fedprox(mu=0.0) + scaled(factor=3.0)")
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.ones_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
training = plan.begin(model)
training.step(optimizer, torch.ones(1, 1), torch.zeros(1, 1), torch.nn.functional.mse_loss)
print(plan, model.weight.item())
main(["training"])
"""


@pytest.mark.system
def test_a_node_finds_the_plug_in_of_an_installed_package(tmp_path: Path) -> None:
    """w = 1 - 0.25 * 3 * 2."""
    metadata = tmp_path / "scaled-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: scaled\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[fedcomp.training]\nabsent = no_module\nscaled = scaled_module\n")
    (tmp_path / "scaled_module.py").write_text(MODULE)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=True)
    first, *listing = done.stdout.splitlines()
    assert first == "fedprox(mu=0.0) + scaled(factor=3.0) -0.5"
    place = listing.index(f"{'scaled':<24}the loss times a factor")
    assert listing[place + 1 : place + 4] == ["    factor=2.0", "    Author et al., 2026", "    measured: nothing yet"]
    assert done.stderr.count("absent = no_module") == 1, "it is tried once"


def test_a_taken_name_is_refused() -> None:
    def fedprox_again() -> Begin:
        return lambda model, kept, generator: Step()

    fedprox_again.__name__ = "fedprox"
    with pytest.raises(ValueError, match=r"^training plug-in 'fedprox' exists already \(Li et al\., MLSys 2020\)"):
        register("Other et al.", "")(fedprox_again)
    assert str(fedprox()) == "fedprox(mu=0.01)"


@pytest.mark.system
def test_the_plug_in_of_the_guide_passes_its_test(tmp_path: Path) -> None:
    section = (ROOT / "docs" / "how-to" / "add-a-training-plug-in.md").read_text()
    blocks = re.findall(r"^   ```python\n(.*?)^   ```$", section, re.MULTILINE | re.DOTALL)
    plug_in, test = (re.sub("^   ", "", block, flags=re.MULTILINE) for block in blocks)
    (tmp_path / "clipped.py").write_text(plug_in)
    (tmp_path / "test_clipped.py").write_text(f"{IMPORTS}\n\n{test}")
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_clipped.py"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, tmp_path)))}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout
