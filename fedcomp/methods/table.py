"""The table of all methods, each measured on one fixed vector: `fedcomp methods` prints it."""

import re
from collections.abc import Iterator

import numpy as np

from fedcomp.core import RandomStream, Shapes, Vector
from fedcomp.methods.registry import METHODS

SHAPES: Shapes = ((256, 384), (384,), (384, 10), (10,))
N = sum(int(np.prod(shape)) for shape in SHAPES)
MEASURED = (
    f"Measured at the default settings on one vector of {N:,} entries in {len(SHAPES)} tensors; dense is 32 bits."
)
ERROR = "Error is ||C(v) - v|| / ||v|| of the first message; methods with error feedback send the missing part later."

FAMILIES = {
    "automatic": "Chosen for each round",
    "balance": "Chosen for each round",
    "rotation_low_rank": "Rotation and low rank",
    "sparsification": "Sparsification",
    "quantization": "Quantization",
    "sign_based": "Signs",
}
"""The heading of the methods of each file of this folder, in the order of the page."""

Row = tuple[str, str, str, str, str, str, float, float]
"""Name, settings, paper, state, up, down, bits per parameter and relative error of the first message."""


def measured_vector() -> Vector:
    """Return the vector that every method is measured on, float32 (102538,).

    Each of its four tensors is nearly Gaussian, with its own standard deviation.
    """
    stream = RandomStream(0)
    gaussian = sum(stream.uniform(N).astype(np.float64) for _ in range(12)) - 6
    deviations = np.repeat([0.01, 0.05, 0.02, 0.1], [int(np.prod(shape)) for shape in SHAPES])
    return (gaussian * deviations).astype(np.float32)


def rows() -> Iterator[Row]:
    """Yield the row of each method at its default settings, plug-ins included."""
    vector = measured_vector()
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    for name in METHODS:
        about = METHODS.about(name)
        compressor = METHODS[name]()
        body, _ = compressor.encode(vector, compressor.init(N), seed=1, shapes=SHAPES)
        error = float(np.linalg.norm(compressor.decode(body, N) - vector.astype(np.float64))) / norm
        state = ", ".join(array.replace("_", " ") for array in compressor.init(1)) or "nothing"
        up, down = ("yes" if works else "no" for works in (about.uplink, about.downlink))
        yield name, METHODS.settings(name), about.paper, state, up, down, 8 * len(body) / N, error


def text_lines() -> Iterator[str]:
    """Yield the table as plain text, three lines per method: the second has its settings, and the third its paper."""
    yield MEASURED
    yield ERROR
    yield ""
    yield f"{'method':<18}{'bits/param':>10}{'error':>8}  {'up':<4}{'down':<6}keeps between rounds"
    for name, settings, paper, state, up, down, bits, error in rows():
        yield f"{name:<18}{bits:>10.4f}{error:>8.3f}  {up:<4}{down:<6}{state}"
        yield f"    {settings or 'no settings'}"
        yield f"    {paper}"


def markdown_lines() -> Iterator[str]:
    """Yield the page docs/reference/methods.md: a table for each family of methods, the smallest messages first."""
    yield from ("# Methods", "")
    yield "Every compression method, by family, the smallest messages first. Not sure? [Choose a method](../how-to/choose.md)."
    yield "`fedcomp methods --markdown > docs/reference/methods.md` writes this page."
    yield ""
    yield f"* **bits/param** and **error**: {MEASURED[0].lower()}{MEASURED[1:]}"
    yield f"  {ERROR}"
    yield "* **direction**: both, or only up (nodes to server) or down."
    yield "* **keeps**: what the sender remembers from one message to the next."
    families: dict[str, list[Row]] = {title: [] for title in FAMILIES.values()}
    for row in sorted(rows(), key=lambda row: row[6]):
        module = METHODS[row[0]].__module__.removeprefix("fedcomp.methods.")
        families.setdefault(FAMILIES.get(module, "From other packages"), []).append(row)
    for title, family in families.items():
        yield from ("", f"## {title}", "")
        yield "| method | bits/param | error | direction | keeps | settings and their defaults | paper |"
        yield "| --- | ---: | ---: | --- | --- | --- | --- |"
        for name, settings, paper, state, up, down, bits, error in family:
            quoted = f"`{settings}`" if settings else "none"
            direction = "both" if up == down == "yes" else "up" if up == "yes" else "down"
            linked = re.sub(r"arXiv:(\S+)", r"[arXiv:\1](https://arxiv.org/abs/\1)", paper)
            yield f"| `{name}` | {bits:.4f} | {error:.3f} | {direction} | {state} | {quoted} | {linked} |"
