"""Cells that take a moment: logistic regression on digits; and the plans of study files."""

from pathlib import Path

from experiments.configuration import Cell, Value, defaults
from experiments.plan import StudyPlan, read_plan

SHORT: dict[str, Value] = {
    "model": "logistic",
    "clients": 10,
    "clients-per-round": 2,
    "iterations": 20,
    "local-steps": 10,
    "evaluate-every": 10,
}


def cell(**settings: Value) -> Cell:
    """Return a cell of two rounds of ten steps, on two of ten nodes; keywords replace its settings."""
    given = {key.replace("_", "-"): value for key, value in settings.items()}
    return Cell("STC", {**defaults(), **SHORT, **given})


RUN = """[run]
clients = 10
clients-per-round = 5
iterations = 10
evaluate-every = 5
local-steps = 1
"""
METHOD = """[[method]]
label = "one"
"""


def plan(folder: Path, text: str, name: str = "study.toml") -> StudyPlan:
    """Return the plan in a file with this text."""
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return read_plan(path)
