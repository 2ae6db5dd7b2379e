"""Names, shapes, dtypes and policies: by hand, of awkward tensors, of averaged tensors, and of hostile texts."""

import hashlib
import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedcomp.errors import CorruptError, DivergedError, FedcompError
from fedcomp.wire import layout_of, parse_layout
from fedcomp.wire.dtypes import DTYPES
from fedcomp.wire.tensor import tensor_of

Arrays = dict[str, NDArray[Any]]

SMALL: Arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "steps": np.array(41, np.int64)}


def awkward() -> Arrays:
    rng = np.random.default_rng(0)
    return {
        "norm.running_mean": rng.standard_normal(3).astype(np.float32),
        "norm.running_var": rng.random(3).astype(np.float16),
        "norm.num_batches_tracked": np.array(2**62 + 1, np.int64),
        "mask": np.array([[True, False]]),
        "bytes": np.array([0, 255], np.uint8),
        "words": np.array([0, 2**64 - 1], np.uint64),
        "empty": np.zeros((0, 5), np.float32),
        "empty.counts": np.zeros((3, 0), np.int32),
        "scale": np.array(0.1, np.float32),
        "half": rng.standard_normal((2, 2)).astype(np.float16),
        "double": rng.standard_normal(4),
        "turned": rng.standard_normal((3, 4)).astype(np.float32).T,
        "head.w": np.ones(7, np.float32),
    }


def same(one: Arrays, other: Arrays) -> bool:
    def bits(arrays: Arrays) -> list[tuple[str, str, tuple[int, ...], bytes]]:
        return [(name, str(array.dtype), array.shape, array.tobytes()) for name, array in arrays.items()]

    return bits(one) == bits(other)


def test_text_and_digest_equal_those_written_by_hand() -> None:
    layout = layout_of(SMALL)
    assert layout.text == b'[["w","float32",[2,3],"compressed"],["steps","int64",[],"exact"]]'
    assert layout.digest == int.from_bytes(hashlib.blake2b(layout.text, digest_size=8).digest(), "little")
    assert (layout.n, layout.exact_size) == (6, 8)


def test_the_vector_holds_the_floating_tensors_in_order_and_the_rest_is_bytes() -> None:
    vector, exact = layout_of(SMALL).flatten(SMALL)
    assert vector.tolist() == [0, 1, 2, 3, 4, 5]
    assert exact == (41).to_bytes(8, "little")


def test_policies_follow_dtype_name_and_pattern() -> None:
    policies = {tensor.name: tensor.policy for tensor in layout_of(awkward(), local=["head.*"]).tensors}
    assert policies.pop("head.w") == "local"
    exact = {
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
        "mask",
        "bytes",
        "words",
        "empty.counts",
    }
    assert {name for name, policy in policies.items() if policy == "exact"} == exact
    assert {name for name, policy in policies.items() if policy == "compressed"} == policies.keys() - exact


def test_awkward_tensors_come_back_in_their_dtypes_shapes_and_bits() -> None:
    arrays = awkward()
    arrays["double"] = arrays["double"].astype(np.float32).astype(np.float64)  # they travel as float32
    layout = layout_of(arrays, local=["head.*"])
    back = layout.unflatten(*layout.flatten(arrays))
    del arrays["head.w"]
    assert same(back, arrays)


def test_unflattened_arrays_share_no_memory() -> None:
    layout = layout_of(SMALL)
    vector, exact = layout.flatten(SMALL)
    back = layout.unflatten(vector, exact)
    assert not np.shares_memory(back["w"], vector)
    assert all(array.flags.writeable for array in back.values())
    assert not np.shares_memory(vector, SMALL["w"])


@pytest.mark.parametrize("policy", ["w", "*", "st?ps"])
def test_patterns_make_tensors_local(policy: str) -> None:
    arrays = {**SMALL, "other": np.ones(2, np.float32)}
    if policy == "*":
        with pytest.raises(ValueError, match="the model has no floating tensor"):
            layout_of(arrays, [policy])
        return
    layout = layout_of(arrays, [policy])
    assert sum(tensor.policy == "local" for tensor in layout.tensors) == 1
    assert parse_layout(layout.text) == layout


def test_a_model_that_is_sent_exactly_is_told_how() -> None:
    with pytest.raises(ValueError, match=r"all floating ones are sent exactly; .* dense\(\) both ways"):
        layout_of(SMALL, exact=["*"])


def test_an_exact_name_is_that_tensor_alone_whatever_a_pattern_would_match() -> None:
    names = ["layers[0].w", "layers[1].w", "layers1.w", "a*", "ab"]
    arrays = {name: np.ones(2, np.float32) for name in names}
    for local, expected in ((["layers[1].w"], ["layers[1].w"]), (["a*"], ["a*"]), (["layers*"], names[:3])):
        layout = layout_of(arrays, local)
        assert [tensor.name for tensor in layout.tensors if tensor.policy == "local"] == expected


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="'head'.* w, steps"):
        layout_of(SMALL, ["head"])


@pytest.mark.parametrize("dtype", ["clongdouble", "longdouble", "U3", "O", "datetime64[s]"])
def test_a_dtype_that_cannot_travel_is_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match="tensor 'x'.*float16, float32"):
        layout_of({**SMALL, "x": np.zeros(2, dtype)})


def test_a_model_too_large_to_encode_is_refused() -> None:
    with pytest.raises(ValueError, match="2147483649 entries.* 2147483648"):
        layout_of({"w": np.broadcast_to(np.float32(0), (2**31 + 1,))})


@pytest.mark.parametrize("dtype", [name for name in DTYPES if "int" in name])
def test_averaged_integers_are_rounded_back_and_never_wrap_around(dtype: str) -> None:
    limits = np.iinfo(dtype)
    layout = layout_of({"w": np.ones(1, np.float32), "x": np.zeros(6, dtype)})
    for kind in (np.float16, np.float32, np.float64):
        with np.errstate(over="ignore"):
            values = np.array([0.4, 0.6, 1.5, 99.4, limits.min, limits.max], np.float64).astype(kind)
        values = np.nan_to_num(values, posinf=6e4, neginf=-6e4)
        _, exact = layout.flatten({"w": np.ones(1, np.float32), "x": values})
        back = layout.unflatten_exact(exact)["x"].tolist()
        assert back[:4] == [0, 1, 2, 99]
        assert back[4] == limits.min or kind is np.float16
        assert back[5] >= min(limits.max * 0.99, 6e4)
    _, exact = layout.flatten({"w": np.ones(1, np.float32), "x": np.array([-1e30, 1e30, 0, 0, 0, 0])})
    low, high = layout.unflatten_exact(exact)["x"].tolist()[:2]
    assert low == limits.min
    assert 0 <= limits.max - high <= limits.max * 2.0**-52


@pytest.mark.parametrize("dtype", [name for name in DTYPES if "int" in name])
@pytest.mark.parametrize("given", [name for name in DTYPES if "int" in name])
def test_integers_of_another_dtype_go_to_the_nearest_within_the_range(dtype: str, given: str) -> None:
    limits, ends = np.iinfo(dtype), np.iinfo(given)
    values = np.array([0, 1, 99, ends.min, ends.max], given)
    tensor = tensor_of("x", np.zeros(5, dtype))
    layout = layout_of({"w": np.ones(1, np.float32), "x": np.zeros(5, dtype)})
    _, exact = layout.flatten({"w": np.ones(1, np.float32), "x": values})
    expected = [min(max(value, limits.min), limits.max) for value in values.tolist()]
    assert layout.unflatten_exact(exact)["x"].tolist() == expected
    beyond = [value for value in values.tolist() if not limits.min <= value <= limits.max]
    assert tensor.first_rounded(values) == (float(beyond[0]) if beyond else None)


def test_an_averaged_bool_follows_the_majority() -> None:
    layout = layout_of({"w": np.ones(1, np.float32), "x": np.zeros(4, np.bool_)})
    for values in (np.array([0, 0.49, 0.5, 1]), np.array([0, -1, 1, 2])):
        _, exact = layout.flatten({"w": np.ones(1, np.float32), "x": values})
        assert exact == bytes([0, 0, 1, 1])
    tensor = tensor_of("x", np.zeros(2, np.bool_))
    assert [tensor.first_rounded(np.array(pair)) for pair in ([0, 1], [0.0, 0.5], [1, 2], [-1, 1])] == [
        None,
        0.5,
        2,
        -1,
    ]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"w": None}, r"missing \['w'\], unexpected \[\]"),
        ({"steps": None}, r"missing \['steps'\], unexpected \[\]"),
        ({"more": np.ones(1)}, r"missing \[\], unexpected \['more'\]"),
        ({"w": np.zeros(6, np.float32)}, r"tensor 'w' has shape \(6,\); the model's has \(2, 3\)"),
        ({"steps": np.zeros(1, np.int64)}, r"tensor 'steps' has shape \(1,\); the model's has \(\)"),
    ],
)
def test_tensors_that_do_not_fit_the_model_are_refused_by_name(change: dict[str, Any], text: str) -> None:
    arrays = {name: array for name, array in {**SMALL, **change}.items() if array is not None}
    with pytest.raises(ValueError, match=text):
        layout_of(SMALL).flatten(arrays)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"w": np.full((2, 3), math.nan)}, "tensor 'w' holds NaN or infinity"),
        ({"w": np.full((2, 3), -math.inf, np.float16)}, "tensor 'w' holds NaN or infinity"),
        ({"w": np.full((2, 3), 1e39)}, "tensor 'w' holds a value beyond float32"),
        ({"steps": np.array(math.nan)}, "tensor 'steps' holds NaN or infinity"),
    ],
)
def test_numbers_that_cannot_be_sent_are_refused_by_name_as_diverged(change: Arrays, text: str) -> None:
    with pytest.raises(DivergedError, match=text):
        layout_of(SMALL).flatten({**SMALL, **change})


def test_statistics_beyond_their_dtype_are_refused_by_name() -> None:
    arrays: Arrays = {"w": np.ones(1, np.float32), "norm.running_var": np.ones(2, np.float16)}
    with pytest.raises(DivergedError, match=r"tensor 'norm.running_var' holds a value beyond float16"):
        layout_of(arrays).flatten({**arrays, "norm.running_var": np.array([1, 1e6])})


def test_each_entry_of_the_vector_belongs_to_a_tensor() -> None:
    layout = layout_of(awkward())
    names = [layout.name_at(index) for index in range(layout.n)]
    assert names == ["scale"] + ["half"] * 4 + ["double"] * 4 + ["turned"] * 12 + ["head.w"] * 7
    with pytest.raises(IndexError):
        layout.name_at(layout.n)


def test_other_models_have_other_digests() -> None:
    others = [
        {"v": SMALL["w"], "steps": SMALL["steps"]},
        {"steps": SMALL["steps"], "w": SMALL["w"]},
        {"w": SMALL["w"].reshape(3, 2), "steps": SMALL["steps"]},
        {"w": SMALL["w"].astype(np.float64), "steps": SMALL["steps"]},
        {"w": SMALL["w"]},
    ]
    digests = {layout_of(arrays).digest for arrays in [SMALL, *others]} | {layout_of(SMALL, ["steps"]).digest}
    assert len(digests) == 7


def test_every_layout_is_read_back_from_its_text() -> None:
    for arrays in (SMALL, awkward(), {"ünï \"'\\\n\x1b[31m": np.ones(1, np.float32)}):
        layout = layout_of(arrays)
        assert parse_layout(layout.text) == layout


def rows(*more: Any) -> bytes:
    return json.dumps([["w", "float32", [2], "compressed"], *more], separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"{}",
        b"[]",
        b"[1]",
        b'"wxyz"',
        b"[" * 100_000,
        b"\xff\xfe",
        b"[[" + b"9" * 5000 + b"]]",
        b'[["w", "float32", [2], "compressed"]]',
        b'[["w","float32",[2.0],"compressed"]]',
        b'[["w","float32",[true],"compressed"]]',
        b'[["w","float32",[-2],"compressed"]]',
        b'[["w","float32",[NaN],"compressed"]]',
        b'[["w","float32",2,"compressed"]]',
        b'[["w","float32","2","compressed"]]',
        b'[["w","float32",[0],"compressed"]]',
        b'[["w","float32",[],"exact"]]',
        b'[["w","int64",[2],"compressed"]]',
        b'[["w","object",[2],"compressed"]]',
        b'[["w",["float32"],[2],"compressed"]]',
        b'[["w","float32",[2],"sent"]]',
        b'[["w","float32",[2],["exact"]]]',
        b'[[7,"float32",[2],"compressed"]]',
        b'[[["w"],"float32",[2],"compressed"]]',
        b'[["w","float32",[2],"compressed",0]]',
        b'[["w","float32",[2]]]',
        b'[["w","float32",[65536,65536],"compressed"]]',
        b'[["w","float32",[2147483648],"compressed"],["v","float32",[1],"compressed"]]',
        rows(["w", "float32", [2], "compressed"]),
        rows(["x", "float32", [0, 2**31, 2**31], "compressed"]),
        rows(["x", "int8", [2**31, 2**31], "exact"]),
        rows(["x", "int8", [1] * 33, "exact"]),
        rows(["x", "int8", [2**100], "exact"]),
    ],
    ids=lambda text: text[:60].decode("latin-1"),
)
def test_a_text_that_no_layout_has_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptError, match="^the layout "):
        parse_layout(text)


def test_changed_texts_are_refused_or_are_layouts() -> None:
    rng = np.random.default_rng(1)
    text = layout_of(awkward(), ["head.*"]).text
    read = 0
    for _ in range(3000):
        changed = bytearray(text)
        for _ in range(rng.integers(1, 3)):
            changed[rng.integers(len(changed))] = rng.choice(list(b'[]",0129abc\xff'))
        try:
            layout = parse_layout(bytes(changed))
        except FedcompError:
            continue
        read += 1
        assert layout.text == changed
        assert layout.n > 0
    assert 0 < read < 3000


@pytest.mark.parametrize(
    ("name", "array", "exact", "text"),
    [
        ("a.running_mean", np.ones(1, np.float32), b"\x00\x00\xc0\x7f", "'a.running_mean' holds NaN or infinity"),
        ("a.running_var", np.ones(1, np.float16), b"\x00\xfc", "'a.running_var' holds NaN or infinity"),
        ("mask", np.ones(2, np.bool_), b"\x01\x02", "'mask' holds a bool that is neither 0 nor 1"),
    ],
)
def test_impossible_exact_tensors_are_refused(name: str, array: NDArray[Any], exact: bytes, text: str) -> None:
    layout = layout_of({"w": np.ones(1, np.float32), name: array})
    layout.check_exact(array.tobytes())
    with pytest.raises(CorruptError, match=f"the exact tensor {text}"):
        layout.check_exact(exact)


def test_a_layout_of_a_huge_model_takes_no_memory_before_the_tensors_are_checked() -> None:
    layout = parse_layout(b'[["w","float32",[2,3],"compressed"],["v","float32",[1000,1000,1000],"compressed"]]')
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="tensor 'v' has shape"):
            layout.flatten({"w": SMALL["w"], "v": SMALL["w"]})
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
