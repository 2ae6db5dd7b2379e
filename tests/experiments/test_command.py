"""Options of the commands of the studies."""

from argparse import ArgumentTypeError

import pytest

from experiments.command import positive


def test_a_whole_number_above_0_is_needed() -> None:
    assert positive("12") == 12
    for text in ("0", "-1", "1.5", "x", ""):
        with pytest.raises(ArgumentTypeError, match=f"'{text}'; .*0"):
            positive(text)
