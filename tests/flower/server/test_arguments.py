"""Arguments of another type: one sentence says what was found, and what is needed."""

import re
from typing import Any

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from fedcomp.flower import CompressedStrategy, LocalGrid
from tests.flower.toy import app, arrays_of, model


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"local": 3}, "local is 3; name patterns of tensors are needed, as local=['head.*']"),
        ({"local": None}, "local is None; name patterns of tensors are needed, as local=['head.*']"),
        ({"exact": ["a", 3]}, "exact is ['a', 3]; name patterns of tensors are needed, as exact=['head.*']"),
        ({"tied": 3}, "tied is 3; groups of names are needed, as tied=[('embedding.weight', 'output.weight')]"),
        ({"tied": [3]}, "tied is [3]; groups of names are needed, as tied=[('embedding.weight', 'output.weight')]"),
        ({"order": 3}, "order is 3; a callable that gives the rank of a node id is needed"),
        ({"records": 3}, "records is 3; compressors by key are needed, as {'control': stc()}"),
    ],
)
def test_an_argument_of_another_type_is_refused_at_construction(arguments: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        CompressedStrategy(FedAvg(), **arguments)


def test_patterns_and_groups_may_come_from_any_iterable() -> None:
    strategy = CompressedStrategy(FedAvg(), local="a.*", exact=iter(["b", "c"]), tied=(iter(pair) for pair in ["de"]))
    assert (strategy.local, strategy.exact, strategy.tied) == (("a.*",), ("b", "c"), (("d", "e"),))


@pytest.mark.parametrize("arrays", [arrays_of(model()), [np.ones(3)], None])
def test_initial_arrays_that_are_no_record_are_refused_with_the_remedy(arrays: Any) -> None:
    name = type(arrays).__name__
    with pytest.raises(ValueError, match=rf"initial_arrays is of type {name}; an ArrayRecord is needed, .*to_record"):
        CompressedStrategy(FedAvg()).start(LocalGrid(app(), 2), arrays)
