"""The notebook runs from top to bottom, and prints and draws as its stored outputs show."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docs.scripts.notebook import NOTEBOOK, PAGE, render

ROOT = Path(__file__).parents[1]
EXECUTE = Path(sys.executable).with_name("jupyter-execute")
MAX_BYTES = 200_000


def outputs(path: Path) -> list[tuple[int, list[str]]]:
    """Return the number of each cell of code that was run, and its outputs: printed text, or the name of a drawn format."""
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        (
            cell["execution_count"],
            ["".join(one["text"]) if "text" in one else min(one["data"]) for one in cell["outputs"]],
        )
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def test_the_stored_notebook_is_small_and_was_run_in_order() -> None:
    assert NOTEBOOK.stat().st_size < MAX_BYTES
    stored = outputs(NOTEBOOK)
    assert [number for number, _ in stored] == list(range(1, len(stored) + 1))
    assert sum(shown == ["image/png"] for _, shown in stored) == 2


def test_the_page_of_the_notebook_is_the_stored_notebook() -> None:
    assert {path: path.read_bytes() for path in render(NOTEBOOK, PAGE)} == render(NOTEBOOK, PAGE), (
        "docs.scripts.notebook"
    )


@pytest.mark.nightly
@pytest.mark.system
def test_a_run_of_the_notebook_shows_what_is_stored(tmp_path: Path) -> None:
    if not EXECUTE.exists():
        pytest.skip("nbclient is not installed; `make install` installs it")
    copy = tmp_path / NOTEBOOK.name
    copy.write_bytes(NOTEBOOK.read_bytes())
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    command = [str(EXECUTE), "--inplace", "--timeout=300", copy.name]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr

    def without_numbers(path: Path) -> list[tuple[int, list[str]]]:  # another processor may round otherwise
        return [(cell, [re.sub(r"[\d.]+|\s+", " ", text) for text in shown]) for cell, shown in outputs(path)]

    assert without_numbers(copy) == without_numbers(NOTEBOOK)
    printed = "".join(text for _, shown in outputs(copy) for text in shown)
    rows = re.findall(r"^(dense|eden|stc)\(.*?\) +([\d.]+) +([\d.]+)%$", printed, re.MULTILINE)
    (_, dense_size, dense_accuracy), *others = ((name, float(size), float(share)) for name, size, share in rows)
    assert [name for name, _, _ in others] == ["eden", "stc"]
    assert all(dense_size > 10 * size and dense_accuracy < share + 3 for _, size, share in others)
