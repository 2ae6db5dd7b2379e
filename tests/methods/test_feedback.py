"""Which compressors may have error feedback around them."""

import pytest

import fedcomp
from tests.contraction import FEEDBACK, WORKS


@pytest.mark.parametrize("text", FEEDBACK)
def test_error_feedback_is_taken_or_refused_in_one_sentence(text: str) -> None:
    if FEEDBACK[text] == WORKS:
        assert "residual" in fedcomp.parse(text).init(1)
        return
    with pytest.raises(ValueError, match=FEEDBACK[text]) as error:
        fedcomp.parse(text)
    assert "\n" not in str(error.value)
