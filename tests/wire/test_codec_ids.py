"""Each entropy code has one number on the wire, and keeps it."""

from collections.abc import Iterator
from typing import Any

import pytest

from fedcomp.entropy import EntropyCode, GolombTernary, Raw, SparseLevelsCode
from fedcomp.errors import UnknownFormatError
from fedcomp.methods import METHODS
from fedcomp.quantized import Dense
from fedcomp.wire import CODECS, NO_BODY, codec_by_id, codec_id, register_codec


class Reversed:
    """A third party's code: float32 values in reverse order."""

    def encode(self, value: Dense, /) -> bytes:
        """Return the values, "<f4", the last one first."""
        return Raw().encode(Dense(value.vector[::-1]))

    def decode(self, value: bytes, /, n: int | None = None) -> Dense:
        """Return the values."""
        return Dense(Raw().decode(value, n).vector[::-1])


@pytest.fixture
def restored_codecs() -> Iterator[None]:
    """Removes what a test registers."""
    before = dict(CODECS)
    yield
    CODECS.clear()
    CODECS.update(before)


def test_the_ids_of_all_codes_are_pinned() -> None:
    assert {number: type(code).__name__ for number, code in CODECS.items()} == {
        1: "Raw",
        2: "GolombTernary",
        3: "GolombTernaryInterleaved",
        4: "SparseValues",
        5: "SparseLevelsCode",
        6: "SeededValues",
        7: "LevelsCode",
        8: "RotatedBits",
        9: "LowRankRaw",
        10: "SegmentsCode",
        11: "StepsCode",
        12: "TernaryCode",
        14: "CrossPolytopeCode",
    }


def test_a_code_and_its_id_lead_to_each_other() -> None:
    for number, code in CODECS.items():
        assert codec_id(code) == number
        assert codec_by_id(number) == code
        assert NO_BODY < number < 128


def test_an_encoder_setting_does_not_change_the_id() -> None:
    assert SparseLevelsCode("delta keys") != SparseLevelsCode()
    assert codec_id(SparseLevelsCode("delta keys")) == codec_id(SparseLevelsCode()) == 5


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_has_a_codec_id(name: str) -> None:
    assert codec_id(METHODS[name]().entropy) in CODECS


@pytest.mark.parametrize("number", [0, 127, 255])
def test_an_unknown_id_is_refused(number: int) -> None:
    with pytest.raises(UnknownFormatError, match=f"{number}; known are 1, 2, 3"):
        codec_by_id(number)


@pytest.mark.usefixtures("restored_codecs")
@pytest.mark.parametrize("number", [128, 255])
def test_a_registered_code_is_found_by_its_id_and_by_its_type(number: int) -> None:
    code = Reversed()
    with pytest.raises(ValueError, match="128 to 255"):
        codec_id(code)
    register_codec(number, code)
    assert codec_by_id(number) is code
    assert codec_id(Reversed()) == number


@pytest.mark.parametrize("number", [-1, 0, 1, 127, 256, "200"])
def test_an_id_below_128_or_above_255_is_refused(number: Any) -> None:
    with pytest.raises(ValueError, match="128 to 255"):
        register_codec(number, Reversed())


@pytest.mark.usefixtures("restored_codecs")
def test_a_taken_id_is_refused() -> None:
    class Other(Reversed):
        pass

    register_codec(200, Reversed())
    with pytest.raises(ValueError, match="200"):
        register_codec(200, Other())
    assert type(codec_by_id(200)) is Reversed


@pytest.mark.usefixtures("restored_codecs")
@pytest.mark.parametrize(("code", "number"), [(GolombTernary(), 2), (SparseLevelsCode("bitmap"), 5)])
def test_a_type_that_has_an_id_is_refused(code: EntropyCode[Any], number: int) -> None:
    with pytest.raises(ValueError, match=str(number)):
        register_codec(200, code)
    assert codec_id(code) == number


def test_a_class_in_place_of_an_instance_is_refused() -> None:
    with pytest.raises(ValueError, match="Reversed"):
        register_codec(200, Reversed)  # type: ignore[arg-type]
