"""Every example runs plain and compressed under the same seed: as good, for far fewer bytes, and as its README says."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from examples.run import main

EXAMPLES = Path(__file__).parents[1] / "examples"
MIN_RATIO = {"pytorch": 15.0}
"""The least compression ratio that is accepted, of both directions together."""
MAX_ACCURACY_LOSS = 0.5
"""The accuracy, in percent, that compression may cost."""
MAX_LOSS_RATIO = 1.02
"""The loss after a compressed run over that after a plain one."""
OTHER_MACHINE = {"accuracy": 2.0, "loss": 0.1, "ratio": 0.15}
"""How far results may be from those of the README, because machines round differently: accuracy in percent, others relative."""
OUTPUT = re.compile(
    r"compress=false\n(?:accuracy (?P<plain>[\d.]+)%|loss (?P<plain_loss>[\d.]+))\n"
    r"compress=true\nfedcomp: the whole run, compared with plain Flower: .*together [\d.]+ \w+, (?P<ratio>[\d.]+) times smaller\n"
    r"(?:accuracy (?P<compressed>[\d.]+)%|loss (?P<compressed_loss>[\d.]+))\n"
)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let torch use one thread, and drop the path and the modules of the example afterwards."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_every_example_is_tested() -> None:
    assert {path.parent.name for path in EXAMPLES.glob("*/pyproject.toml")} == set(MIN_RATIO)


@pytest.mark.parametrize("name", MIN_RATIO)
def test_an_example_is_as_good_compressed_as_plain_for_far_fewer_bytes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(str(EXAMPLES / name))
    output = capsys.readouterr().out
    found, written = OUTPUT.fullmatch(output), OUTPUT.search((EXAMPLES / name / "README.md").read_text())
    assert found, f"a node was refused or failed, or fedcomp warns:\n{output}"
    assert written, "the README shows the output"
    values, claims = ({key: float(text) for key, text in match.groupdict().items() if text} for match in (found, written))
    if "plain" in values:
        assert values["plain"] >= 80, "the app learns something"
        assert values["compressed"] >= values["plain"] - MAX_ACCURACY_LOSS
    else:
        assert values["compressed_loss"] <= MAX_LOSS_RATIO * values["plain_loss"]
    assert values["ratio"] >= MIN_RATIO[name]
