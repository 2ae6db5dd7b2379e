"""Every example in the README runs, as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def test_the_flower_app_in_the_readme_runs_and_is_compressed(tmp_path: Path) -> None:
    files = {}
    for block in _blocks("python"):
        if first := re.match(r"# (\w+\.py)\n", block):
            files[str(first[1])] = block
    assert sorted(files) == ["client_app.py", "server_app.py", "try_it.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "try_it.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(README.parent), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loss = re.search(r"^loss (\d+\.\d+)$", done.stdout, re.MULTILINE)
    ratio = re.search(r"^up (\d+) times smaller$", done.stdout, re.MULTILINE)
    assert loss is not None
    assert ratio is not None
    assert float(loss[1]) < 1.0, "it starts at ln 10 = 2.3"
    assert int(ratio[1]) > 100
    assert "fedcomp: round 1: uplink" in done.stderr


def test_the_codec_example_prints_what_stands_below_it() -> None:
    text = README.read_text()
    found = re.search(r"^```python\n(import numpy.*?)^```\n\n```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    env = {"PYTHONPATH": str(README.parent), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", found[1]], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == found[2]


def test_three_marked_lines_make_it_compressed() -> None:
    assert sum(block.count("  # <--") for block in _blocks("python")) == 3
