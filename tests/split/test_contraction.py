"""Every compressor on the way up: it trains, changes included, or is refused in one sentence before anything runs."""

import numpy as np
import pytest
import torch

import fedcomp
from fedcomp.split import Boundary, SplitSettings
from tests.contraction import OUTCOMES, WORKS
from tests.split.pair import Pair, samples

PAIRS = [pair for pair in OUTCOMES if pair[1] in ("change", "direct")]
WORKING = [pair for pair in PAIRS if OUTCOMES[pair] == WORKS]


def settings(text: str, use: str, **others: float) -> SplitSettings:
    return SplitSettings(fedcomp.parse(text), direct=use == "direct", **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "use"), [pair for pair in PAIRS if OUTCOMES[pair] != WORKS])
def test_a_compressor_that_does_not_fit_is_refused_in_one_sentence(text: str, use: str) -> None:
    with pytest.raises(ValueError, match=OUTCOMES[text, use]) as error:
        settings(text, use)
    assert "\n" not in str(error.value)


def test_every_method_has_an_outcome() -> None:
    for use in ("change", "direct"):
        assert {fedcomp.parse(text).name for text, of in OUTCOMES if of == use} == set(fedcomp.METHODS) - {"int8"}


@pytest.mark.sample(4)
@pytest.mark.parametrize("text", [text for text, use in WORKING if use == "change"])
def test_what_both_ends_hold_stays_near_the_activations(text: str) -> None:
    """Activations that change by 5 % from visit to visit: the error never grows beyond a share of them, and then stays."""
    rng = np.random.default_rng(1)
    boundary = Boundary(settings(text, "change"))
    base = rng.standard_normal((8, 256)).astype(np.float32)
    errors: list[float] = []
    for _ in range(60):
        rows = base + 0.05 * rng.standard_normal(base.shape).astype(np.float32)
        received = boundary(torch.from_numpy(rows).requires_grad_(), range(8)).detach().numpy()
        errors.append(float(np.linalg.norm(received - rows) / np.linalg.norm(rows)))
    assert max(errors) < 0.3
    assert max(errors[40:]) < 1.5 * max(errors[5:40]) + 1e-3


@pytest.mark.sample(7)
@pytest.mark.parametrize(("text", "use"), WORKING)
def test_a_node_and_its_server_learn(text: str, use: str) -> None:
    pair = Pair(settings(text, use, batch_size=20, steps=15, learning_rate=0.5), count=60)
    x, y = samples(60)
    pair.run(3)
    accuracy = float((pair.model(x).argmax(1) == y).float().mean())
    assert accuracy > (
        0.8 if use == "change" else 0.5
    )  # guesses are right for a third; noise that stays costs direct ones
