"""Settings: their text, and what is refused before anything runs."""

from typing import Any

import pytest

import fedcomp
from fedcomp.errors import CorruptError
from fedcomp.split import SplitSettings
from fedcomp.split.settings import parse_request


@pytest.mark.parametrize(
    "settings",
    [
        SplitSettings(),
        SplitSettings(fedcomp.eden(bits=1.5), fedcomp.dense(), direct=True, batch_size=7, steps=3, learning_rate=0.5),
        SplitSettings(forward=fedcomp.topk(density=0.1, feedback=False), momentum=0.9),
    ],
)
def test_a_message_names_the_settings(settings: SplitSettings) -> None:
    assert parse_request(settings.text("activations")) == ("activations", settings)
    assert parse_request(settings.text("weights")) == ("weights", settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"forward": fedcomp.stc()}, "forward is stc.* remembers what it leaves out"),
        ({"backward": fedcomp.powersgd()}, "backward is powersgd.* remembers"),
        ({"forward": fedcomp.auto()}, r"forward is auto\(\), which follows a server's rounds"),
        ({"forward": "cgx(bits=2)"}, r"forward is 'cgx\(bits=2\)'; a compressor is needed"),
        ({"backward": None}, "backward is None; a compressor is needed"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"learning_rate": 0}, "learning_rate is 0"),
        ({"momentum": 1}, "momentum is 1"),
        ({"direct": 1}, "direct is 1"),
    ],
)
def test_settings_that_are_not_possible_are_refused_in_one_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        SplitSettings(**settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cgx(bits=2)",
        "activations(steps=0)",
        "weights(nothing=1)",
        "activations(forward='stc()')",
        "weights(1, 2, 3)",
        "a" * 999,
    ],
)
def test_requests_that_nobody_makes_are_refused(text: str) -> None:
    with pytest.raises(CorruptError):
        parse_request(text)
