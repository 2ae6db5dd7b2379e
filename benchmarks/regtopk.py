"""RegTop-k compared with top-k with error feedback, on linear regression with heterogeneous senders.

    python -m benchmarks.regtopk [--density 0.6] [--rounds 2500] [--out docs/results/regtopk.png]

The experiment of Bereyhi, Liang, Boudreau, Afana, arXiv:2501.05633, "linear regression": N = 20 senders, each with 500
samples of J = 100 Gaussian features; each sender's optimum is drawn around its own mean, sqrt(5) times a standard normal;
noise of variance 0.5, full gradients of the mean squared error, step 0.01.  The authors' program, unlike their paper,
divides by the values sent, and there only RegTop-k undoes steps that are too long; here both denominators run, and no
arm undoes anything.  Every arm sums the same gradients, and every message is really encoded
and decoded.  Prints the distance to the optimum of the common loss, as measured, and draws the curves.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from numpy.typing import NDArray

import fedcomp
from benchmarks.figure_file import format_of, write
from benchmarks.measurement import print_table
from fedcomp.core import Vector

Matrix = NDArray[np.float64]
SENDERS, FEATURES, SAMPLES = 20, 100, 500
STEP, NOISE, SPREAD = 0.01, 0.5, 5.0
COLORS = ("#000000", "#d55e00", "#0072b2", "#009e73")
SHOWN = (100, 500, 2500)


@dataclass(frozen=True, slots=True)
class Problem:
    """Each sender's mean of x x^T (N, J, J) and of x y (N, J); the common loss's optimum (J,)."""

    moments: Matrix
    targets: Matrix
    optimum: Matrix

    @classmethod
    def drawn(cls, seed: int) -> "Problem":
        """Return the problem of `seed`."""
        rng = np.random.default_rng(seed)
        centers = np.sqrt(SPREAD) * rng.standard_normal((SENDERS, 1))
        own = centers + rng.standard_normal((SENDERS, FEATURES))
        x = rng.standard_normal((SENDERS, SAMPLES, FEATURES))
        y = np.einsum("nsj,nj->ns", x, own) + np.sqrt(NOISE) * rng.standard_normal((SENDERS, SAMPLES))
        moments = np.einsum("nsj,nsi->nji", x, x) / SAMPLES
        targets: Matrix = np.einsum("nsj,ns->nj", x, y) / SAMPLES
        optimum = cast(Any, np.linalg.solve)(moments.mean(axis=0), targets.mean(axis=0))
        return cls(moments, targets, optimum)

    def gradients(self, model: Vector) -> Matrix:
        """Return each sender's full gradient at `model`, (N, J)."""
        return 2 * (self.moments @ model - self.targets)


def distances(problem: Problem, compressor: fedcomp.Compressor, rounds: int) -> Iterator[float]:
    """Yield the distance to the optimum after each round of mean compressed updates -STEP gradient."""
    model = np.zeros(FEATURES, np.float32)
    states = [compressor.init(FEATURES) for _ in range(SENDERS)]
    for number in range(rounds):
        total = np.zeros(FEATURES, np.float32)
        for sender, gradient in enumerate(problem.gradients(model)):
            update = (-STEP * gradient).astype(np.float32)
            seed = number * SENDERS + sender
            body, states[sender] = compressor.encode(update, states[sender], seed, server_round=number, model=model)
            total += compressor.decode(body, FEATURES)
        model += total / np.float32(SENDERS)
        yield float(np.linalg.norm(model - problem.optimum))


def arms(density: float, mu: float) -> list[str]:
    """Return the compressors to compare."""
    regularized = f"regtopk(density={density}, mu={mu}, nodes={SENDERS}"
    return ["dense()", f"topk(density={density})", f"{regularized})", f"{regularized}, denominator='asked')"]


def draw(curves: pd.DataFrame, title: str) -> Figure:
    """Return a figure of the distances over the rounds: the median of the seeds, and a band from least to most."""
    figure = Figure(figsize=(7, 4.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    sns.lineplot(
        curves, x="round", y="distance", hue="arm", style="arm", palette=COLORS, estimator="median",
        errorbar=("pi", 100), ax=axes,
    )  # fmt: skip
    axes.set(yscale="log", ylabel="distance to the optimum, |w - w*| (logarithmic)")
    axes.set_title(title, fontsize=10)
    axes.grid(visible=True, alpha=0.35)
    axes.legend(title=None)
    return figure


def main() -> None:
    """Run all arms on all seeds, print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--density", type=float, default=0.6, help="the fraction kept; the paper's S")
    parser.add_argument("--mu", type=float, default=4.0, help="RegTop-k's regularization")
    parser.add_argument("--rounds", type=int, default=2500)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a .png, .svg or .pdf file for the figure; none is drawn without")
    options = parser.parse_args()
    try:
        if options.out:
            format_of(options.out)
    except ValueError as error:
        parser.error(f"--out: {error}")
    problems = [Problem.drawn(seed) for seed in range(options.seeds)]
    rows: list[dict[str, str]] = []
    curves: list[pd.DataFrame] = []
    for text in arms(options.density, options.mu):
        compressor = fedcomp.parse(text)
        runs = np.array([list(distances(problem, compressor, options.rounds)) for problem in problems])
        row = {"": text}
        for number in SHOWN:
            if number <= options.rounds:
                one = runs[:, number - 1]
                row[f"round {number}"] = f"{np.median(one):.2g} ({one.min():.1g} to {one.max():.1g})"
        rows.append(row)
        rounds = [*range(1, options.rounds + 1)] * len(problems)
        curves.append(pd.DataFrame({"arm": text, "round": rounds, "distance": runs.ravel()}))
    print_table(f"median distance to the optimum over {options.seeds} seeds (smallest to largest)", rows)
    if options.out:
        title = f"linear regression, {SENDERS} senders, {FEATURES} weights, density {options.density:g}"
        write(draw(pd.concat(curves), title), options.out)


if __name__ == "__main__":
    main()
