"""RegTop-k's experiment, in small."""

import numpy as np
import pandas as pd
import pytest

import fedcomp
from benchmarks import regtopk
from benchmarks.regtopk import Problem, arms, distances, draw


def test_the_optimum_is_where_the_gradients_cancel_and_single_senders_pull_apart() -> None:
    problem = Problem.drawn(0)
    gradients = problem.gradients(problem.optimum.astype(np.float32))
    assert np.abs(gradients.mean(axis=0)).max() < 1e-5
    assert np.abs(gradients).mean() > 1


def test_without_compression_the_optimum_is_reached() -> None:
    found = list(distances(Problem.drawn(1), fedcomp.dense(), 400))
    assert found[-1] < 1e-2 < 1 < found[0]


@pytest.mark.nightly
def test_top_k_with_error_feedback_stays_at_a_distance_that_regtopk_goes_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regtopk, "SENDERS", 10)
    _, top_k, regularized, _ = arms(0.6, 4.0)
    problem = Problem.drawn(0)
    curves = [list(distances(problem, fedcomp.parse(text), 400))[390:] for text in (top_k, regularized)]
    assert np.median(curves[1]) < 0.2 * np.median(curves[0])
    assert "nodes=10" in regularized


def test_the_figure_has_a_line_and_a_legend_for_each_arm() -> None:
    texts = arms(0.6, 4.0)
    curves = pd.DataFrame([(text, at, 0.1) for text in texts for at in (1, 2)], columns=["arm", "round", "distance"])
    (axes,) = draw(curves, "title").axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == texts
    assert "logarithmic" in axes.get_ylabel()
