"""A fresh environment in which the plug-in is installed."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parent
ROOT = PLUGIN.parents[1]
SCRIPT = "#!{python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that has the plug-in, fedcomp and the packages of this environment."""
    folder = tmp_path_factory.mktemp("plugin")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    packages = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    )
    shown = (Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("platlib")), ROOT)
    (Path(packages.strip()) / "shown.pth").write_text("\n".join(map(str, shown)))
    for entry in distribution("flwr").entry_points.select(group="console_scripts"):
        script = python.parent / entry.name
        script.write_text(SCRIPT.format(python=python, module=entry.module, function=entry.attr))
        script.chmod(0o755)
    source = shutil.copytree(PLUGIN, folder / "source")  # the build writes beside the sources
    install = ["install", "--no-deps", "--no-build-isolation", "--no-index", "--quiet", str(source)]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install], check=True, timeout=120)
    return python
