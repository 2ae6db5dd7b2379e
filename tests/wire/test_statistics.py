"""BatchNorm statistics are recognised by name and by place, and everything that is named exact travels as it is."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.wire import BFLOAT16, layout_of
from fedcomp.wire.statistics import batchnorm_statistics


def _zeros(*shapes: int | tuple[int, ...], dtype: object = np.float32) -> list[NDArray[np.float32]]:
    return [np.zeros(shape, dtype) for shape in shapes]  # type: ignore[call-overload]


COUNT = np.array(0)
MATRIX = (8, 4)


@pytest.mark.parametrize(
    ("names", "statistics"),
    [
        (["bn.weight", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked"], {1, 2, 3}),
        (["running_var", "w"], {0}),
        (["model/bn/gamma", "model/bn/moving_mean", "model/bn/moving_variance"], {1, 2}),
        (["bn/gamma:0", "bn/moving_mean:0", "bn/moving_variance:0", "dense/bias:0"], {1, 2}),
        (["params/BatchNorm_0/scale", "batch_stats/BatchNorm_0/mean", "batch_stats.BatchNorm_0.var"], {1, 2}),
        (["bn.scale", "bn.bias", "bn.mean", "bn.var"], {2, 3}),
        (["bn/~/mean_ema/average", "bn/~/var_ema/hidden", "bn/scale"], {0, 1}),
        (["bn._mean", "bn._variance", "bn.weight"], {0, 1}),
        (["bn0_gamma", "bn0_running_mean", "bn0_moving_var"], {1, 2}),
        (["['params']['bn']['scale']", "['batch_stats']['bn']['mean']"], {1}),
        (["mean", "mean.weight", "policy.mean", "log_var", "encoder.var", "running_mean.weight", "...", ""], set()),
    ],
)
def test_statistics_by_name(names: list[str], statistics: set[int]) -> None:
    assert batchnorm_statistics(dict.fromkeys(names, np.ones(3, np.float32))) == {names[place] for place in statistics}


@pytest.mark.parametrize(
    ("arrays", "statistics"),
    [
        (_zeros(MATRIX, 8, 8, 8, 8), {3, 4}),
        (_zeros(MATRIX, 8, 8, 8, 8, 8, MATRIX), {3, 4, 5}),  # a bias before, or another vector behind
        (_zeros(MATRIX, 8, 8, 8, MATRIX), {2, 3}),  # without a scale
        ([*_zeros(MATRIX, 8, 8, 8, 8, 8), COUNT, *_zeros(MATRIX, 8)], {4, 5}),
        ([*_zeros(MATRIX, 8, 8), COUNT, *_zeros(MATRIX)], {1, 2}),
        (_zeros(MATRIX, *[8] * 8, MATRIX), {3, 4, 7, 8}),
        (_zeros(MATRIX, *[8] * 9, MATRIX), set(range(3, 10))),
        (_zeros(8, 8, 4, 4), set()),
        (_zeros(MATRIX, 8, 8, MATRIX, 8, 8, MATRIX), set()),
        ([*_zeros(8, 8), *_zeros(8, 8, dtype=np.float64)], set()),
        ([*_zeros(8), COUNT], set()),
        (_zeros(8, 8, 8, 8, dtype=np.int32), set()),
        (_zeros(8, 8, 8, 8, dtype=BFLOAT16), {2, 3}),
        (_zeros((), (), (), ()), set()),
        ([], set()),
    ],
)
def test_statistics_by_place_in_a_list(arrays: list[NDArray[np.float32]], statistics: set[int]) -> None:
    named = {str(place): array for place, array in enumerate(arrays)}
    assert batchnorm_statistics(named) == {str(place) for place in statistics}
    turned = dict(reversed(named.items())) if len(named) > 1 else {}
    assert batchnorm_statistics(turned) == set(), "only a list has places"
    assert batchnorm_statistics({f"w{name}": array for name, array in named.items()}) == set()


def test_exact_tensors_are_named_by_themselves_or_by_a_pattern() -> None:
    arrays = {name: np.ones(3, np.float32) for name in ("a.scale", "b.scale", "[c]", "w", "head.scale")}
    layout = layout_of(arrays, local=["head.*"], exact=["*.scale", "[c]"])
    policies = {tensor.name: tensor.policy for tensor in layout.tensors}
    assert policies == {
        "a.scale": "exact",
        "b.scale": "exact",
        "[c]": "exact",
        "w": "compressed",
        "head.scale": "local",
    }
    with pytest.raises(ValueError, match=r"no tensor matches the exact pattern '\*\.zero'; the tensors are a\.scale, "):
        layout_of(arrays, exact=["*.zero"])
    with pytest.raises(ValueError, match="no floating tensor to send"):
        layout_of(arrays, exact=["*"])
    with pytest.raises(ValueError, match="cannot be tied: compressed ones"):
        layout_of(arrays, tied=[("a.scale", "w")], exact=["*.scale"])
