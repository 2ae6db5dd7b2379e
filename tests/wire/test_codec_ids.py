"""Numbers of codecs are given once."""

import pytest

from fedcomp.entropy.bodies.golomb_interleaved import GolombTernaryInterleaved
from fedcomp.entropy.bodies.golomb_ternary import GolombTernary
from fedcomp.entropy.bodies.raw import Raw
from fedcomp.entropy.bodies.seeded_values import SeededValues
from fedcomp.entropy.bodies.sparse_levels import SparseLevelsCode
from fedcomp.entropy.bodies.sparse_values import SparseValues
from fedcomp.errors import UnknownFormatError
from fedcomp.methods import METHODS
from fedcomp.wire.codec_ids import CODECS, NO_BODY, codec_by_id, codec_id


def test_published_numbers_name_what_they_always_named() -> None:
    published = {
        1: Raw(),
        2: GolombTernary(),
        3: GolombTernaryInterleaved(),
        4: SparseValues(),
        5: SparseLevelsCode(),
        6: SeededValues(),
    }
    assert {number: CODECS[number] for number in published} == published


def test_a_codec_and_its_number_are_one() -> None:
    for number, code in CODECS.items():
        assert codec_id(code) == number
        assert codec_by_id(number) == code
        assert NO_BODY < number < 128


def test_a_setting_of_the_encoder_makes_no_other_codec() -> None:
    assert SparseLevelsCode("delta keys") != SparseLevelsCode()
    assert codec_id(SparseLevelsCode("delta keys")) == codec_id(SparseLevelsCode()) == 5


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_can_be_sent(name: str) -> None:
    assert codec_id(METHODS[name]().entropy) in CODECS


@pytest.mark.parametrize("number", [0, 127, 255])
def test_an_unknown_number_is_refused(number: int) -> None:
    with pytest.raises(UnknownFormatError, match=f"codec {number}; known are 1, 2, 3"):
        codec_by_id(number)


def test_a_code_without_a_number_is_the_callers_mistake() -> None:
    class Mine:
        pass

    with pytest.raises(ValueError, match="has no codec id; put it into fedcomp.wire.codec_ids.CODECS"):
        codec_id(Mine())  # type: ignore[arg-type]
