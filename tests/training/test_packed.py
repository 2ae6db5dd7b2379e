"""Packed models: exact, and as small as counted by hand."""

import io

import numpy as np
import pytest
import torch
from torch import Tensor

from fedcomp.training import pack, unpack


def nbytes(tensor: Tensor) -> int:
    return sum(part.nbytes for key, part in pack({"w": tensor}).items() if key != "w/shape")


@pytest.mark.parametrize(
    ("tensor", "size"),
    [
        (torch.tensor([[0.5, -0.5] * 8, [-0.5, 0.5] * 8]), 4 + 2 * 4),  # 32 codes of 1 bit, one row of two values
        (torch.tensor([[1.0, 2.0] * 80, [3.0, 4.0] * 80]), 40 + 4 * 4),  # 320 codes of 1 bit, two rows of two values
        (torch.cat([torch.zeros(79), torch.ones(1)]), 10 + 4),  # a mask of 80 bits, and one value
        (torch.cat([torch.zeros(704), torch.arange(1.0, 301.0)]), 126 + 300 * 4),  # a mask, and what is not zero
        (torch.full((1000,), 0.25), 4),  # one value needs no codes
        (torch.arange(400.0), 1600),  # as it is
    ],
)
def test_a_tensor_takes_the_bytes_of_its_smallest_form(tensor: Tensor, size: int) -> None:
    assert nbytes(tensor) == size
    assert torch.equal(unpack(pack({"w": tensor}))["w"], tensor)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (4, 3, 3, 3), (2, 0), (60, 50)])
@pytest.mark.parametrize("values", [1, 2, 3, 17, 256, 257, 300])
@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
def test_unpacking_restores_every_tensor_exactly(shape: tuple[int, ...], values: int, density: float) -> None:
    generator = torch.Generator().manual_seed(values)
    table = torch.randn(values, generator=generator)
    tensor = table[torch.randint(values, shape, generator=generator)]
    tensor = tensor * (torch.rand(shape, generator=generator) < density)
    file = io.BytesIO()
    np.savez(file, **pack({"a.weight": tensor, "steps": torch.tensor(5)}))  # type: ignore[arg-type]
    file.seek(0)
    with np.load(file) as archive:
        weights = unpack(archive)
    assert list(weights) == ["a.weight", "steps"]
    assert torch.equal(weights["a.weight"], tensor)
    assert weights["a.weight"].shape == tensor.shape
    assert weights["steps"].item() == 5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_a_dtype_that_numpy_lacks_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=f"w has {dtype}, which numpy lacks; float32 is needed"):
        pack({"w": torch.zeros(2, dtype=dtype)})


def test_a_sparse_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match="w has the layout torch.sparse_coo; a dense tensor is needed"):
        pack({"w": torch.eye(3).to_sparse()})


def test_a_conjugate_tensor_has_its_values() -> None:
    tensor = torch.tensor([1 + 2j, -3j])
    assert torch.equal(unpack(pack({"w": tensor.conj(), "imag": tensor.conj().imag}))["w"], tensor.conj())


def test_a_name_with_a_slash_is_refused() -> None:
    with pytest.raises(ValueError, match="'a/b'; one without a slash"):
        pack({"a/b": torch.zeros(1)})
