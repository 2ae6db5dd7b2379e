"""A study sweeps the columns and the numbers in partitions that vary."""

import pytest

from experiments.axes import column_axis, partition_axes


def test_the_classes_of_the_stc_split_are_an_axis_of_numbers() -> None:
    (axis,) = partition_axes(["stc(classes=10)", "stc(classes=2)", "stc(1)"])
    assert axis.label == "classes per client"
    assert axis.values == (1, 2, 10)
    assert axis.read("stc(classes=2)") == 2
    assert axis.show(2) == "classes per client: 2"


def test_two_numbers_that_vary_are_two_axes_with_their_defaults() -> None:
    classes, gamma = partition_axes(["stc(1)", "stc(2, gamma=0.9)"])
    assert classes.values == (1, 2)
    assert gamma.values == (0.9, 1.0)
    assert gamma.read("stc(1)") == 1.0


@pytest.mark.parametrize(
    "texts",
    [
        ["iid()", "classes(2)"],
        ["linear()", "square()"],
        ["iid()", "iid() + rotation(30)"],
        ["natural('writer')", "natural('speaker')"],
        ["unheard_of(1)", "unheard_of(2)"],
        ["no text (", "nor this ("],
        ["classes(1, 2, 3)", "classes(2, 2, 3)"],
    ],
)
def test_partitions_that_differ_in_more_than_numbers_are_distinguished_by_their_texts(texts: list[str]) -> None:
    (axis,) = partition_axes(texts)
    assert axis.values == tuple(texts)
    assert not axis.numeric
    assert axis.show(texts[0]) == texts[0]


def test_a_feature_skew_is_swept_like_a_scheme() -> None:
    (axis,) = partition_axes(["classes(2) + rotation(degrees=10)", "classes(2) + rotation(degrees=45)"])
    assert axis.name == "rotation"
    assert axis.values == (10, 45)


def test_a_single_partition_is_not_an_axis() -> None:
    assert partition_axes(["stc(classes=2)"]) == ()


def test_numbers_are_sorted_and_participation_is_shown_in_percent() -> None:
    axis = column_axis("participation", [0.5, 0.025])
    assert axis.values == (0.025, 0.5)
    assert axis.show(0.025) == "participation: 2.5 %"
    assert column_axis("dataset", ["mnist", "cifar10"]).values == ("mnist", "cifar10")
