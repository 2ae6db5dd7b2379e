"""Cells that take a moment: logistic regression on digits."""

from experiments.configuration import Cell, Value, defaults

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
