"""The tree of errors."""

import pickle

import pytest

from fedcomp import errors
from fedcomp.errors import FedcompError, NonFiniteError


@pytest.mark.parametrize("name", ["Truncated", "Corrupt", "UnknownFormat", "Layout", "Version", "Stale", "NoUpdate"])
def test_whatever_arrives_wrong_is_one_kind_of_error_and_not_the_callers(name: str) -> None:
    error = getattr(errors, f"{name}Error")
    assert issubclass(error, FedcompError)
    assert not issubclass(error, ValueError)


def test_an_entry_that_is_not_finite_is_the_callers_mistake_and_named() -> None:
    error = NonFiniteError(7, float("nan"), " (in tensor 'w')")
    assert isinstance(error, ValueError)
    assert str(error) == "entry 7 (in tensor 'w') is nan; only finite values can be encoded"


def test_errors_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(NonFiniteError(7, float("inf"), " (in tensor 'w')")))  # noqa: S301
    assert (error.index, error.value, str(error)) == (
        7,
        float("inf"),
        "entry 7 (in tensor 'w') is inf; only finite values can be encoded",
    )
