"""The texts that Flower gives errors on nodes, from which the server reads what went wrong."""

from pathlib import Path

import flwr
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error

from fedcomp.flower.compat import ErrorCode, error_of_app, is_about_array_type, is_about_bfloat16, raised_text

FLOWER = Path(flwr.__file__).parent


@pytest.mark.every_case
@pytest.mark.parametrize("text", ["no data", "", "it's <'quoted'>", "two\nlines"])
def test_the_text_of_an_apps_exception_is_read_from_its_error(text: str) -> None:
    assert raised_text(error_of_app(ValueError(text))) == text


def test_another_form_is_the_whole_text_and_an_error_of_the_network_has_none() -> None:
    assert raised_text(Error(ErrorCode.LOAD_CLIENT_APP_EXCEPTION, "cannot load")) == "cannot load"
    assert raised_text(Error(ErrorCode.NODE_UNAVAILABLE, "<class 'ValueError'>:<'gone'>")) is None


def test_flower_writes_the_exception_of_an_app_in_that_form() -> None:
    """Simulation and SuperNode make the reason in their own loops, which start a backend or talk to a SuperNode."""
    makers = [
        text
        for path in FLOWER.rglob("*.py")
        if "e_code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION" in (text := path.read_text())
        and not path.is_relative_to(FLOWER / "compat")
    ]
    assert len(makers) == 2
    for text in makers:
        assert """reason = str(type(ex)) + ":<'" + str(ex) + "'>\"""" in text


def test_an_app_that_reads_an_array_of_a_strange_type_is_found_by_the_text() -> None:
    with pytest.raises(TypeError) as raised:
        Array("uint8", (1,), "fedcomp.frame/1", b"0").numpy()
    error = error_of_app(raised.value)
    assert is_about_array_type(error, "fedcomp.frame/1")
    assert not is_about_array_type(error, "fedcomp.frame")


def test_a_record_that_refuses_bfloat16_is_found_by_the_text() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError) as raised:
        ArrayRecord({"w": torch.zeros(2, dtype=torch.bfloat16)})
    assert is_about_bfloat16(raised.value)
    with pytest.raises(TypeError) as raised:
        ArrayRecord({"w": np.zeros})
    assert not is_about_bfloat16(raised.value)
