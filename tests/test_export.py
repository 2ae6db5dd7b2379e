"""`fedcomp export`: a model of a run as safetensors, the same to the bit, or one sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedcomp.__main__ import main

safetensors = pytest.importorskip("safetensors")


def test_a_model_comes_back_to_the_bit_in_numpy_and_in_torch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.numpy import load_file
    from safetensors.torch import load_file as load_tensors

    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "weight": rng.standard_normal((3, 4)).astype(np.float32),
        "turned": rng.standard_normal((5, 2)).astype(np.float32).T,
        "half": rng.standard_normal(7).astype(np.float16),
        "steps": np.array(12, np.int64),
        "mask": np.array([True, False]),
        "empty": np.zeros((0, 3), np.float32),
    }
    np.savez(tmp_path / "model.npz", **arrays)  # type: ignore[arg-type]
    out = tmp_path / "model.safetensors"
    assert main(["export", str(tmp_path / "model.npz"), str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 6 tensors, {out.stat().st_size} bytes\n"
    for loaded in (load_file(out), {name: tensor.numpy() for name, tensor in load_tensors(out).items()}):
        assert loaded.keys() == arrays.keys()
        for name, array in arrays.items():
            assert loaded[name].dtype == array.dtype
            np.testing.assert_array_equal(loaded[name], array)
    with safetensors.safe_open(out, "pt") as file:
        assert file.metadata() == {"format": "pt"}, "transformers loads no other"
    model = torch.nn.Linear(4, 3, bias=False)
    model.load_state_dict({"weight": load_tensors(out)["weight"]})


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (None, "No such file or directory"),
        (b"text", "is no .npz file of numbers"),
        (b"PK\x03\x04x", "is no .npz file of numbers"),
    ],
)
def test_a_file_that_is_no_model_is_one_sentence_and_writes_nothing(
    data: bytes | None, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "model.npz", tmp_path / "out.safetensors"
    if data is not None:
        path.write_bytes(data)
    assert main(["export", str(path), str(out)]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("fedcomp: export: ")
    assert sentence in printed
    assert printed.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("out", ["model.npz", "folder/../model.npz", "soft", "hard"])
def test_the_model_itself_is_not_written_over(out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.npz"
    np.savez(path, weight=np.ones(2, np.float32))
    (tmp_path / "folder").mkdir()
    (tmp_path / "soft").symlink_to(path)
    (tmp_path / "hard").hardlink_to(path)
    before = path.read_bytes()
    for model, target in ((path, tmp_path / out), (tmp_path / out, path)):
        assert main(["export", str(model), str(target)]) == 1
        assert capsys.readouterr().err == f"fedcomp: export: {target} is {model} itself; another OUT is needed\n"
    assert path.read_bytes() == (tmp_path / out).read_bytes() == before
    assert (tmp_path / "soft").is_symlink()


def test_packed_weights_are_written_unpacked(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from fedcomp.training import pack

    weights = {
        "signs": torch.tensor([[-0.5, 0.5, 0.5, -0.5]] * 40),
        "sparse": torch.nn.functional.one_hot(torch.arange(60)).float() * torch.arange(1, 61),
        "bias": torch.arange(300.0),
    }
    packed = pack(weights)
    assert packed.keys() == {
        "signs/shape",
        "signs/values",
        "signs/codes",
        *(f"sparse/{part}" for part in ("shape", "mask", "nonzero")),
        "bias",
    }
    np.savez(tmp_path / "inference.npz", **packed)  # type: ignore[arg-type]
    assert main(["export", str(tmp_path / "inference.npz"), str(tmp_path / "out")]) == 0
    loaded = load_file(tmp_path / "out")
    assert loaded.keys() == weights.keys()
    assert all(torch.equal(loaded[name], weight) for name, weight in weights.items())


def test_names_with_slashes_alone_are_not_packed_weights(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    arrays = {name: np.ones(2, np.float32) for name in ("params/dense/kernel", "params/shape", "params/mask", "codes")}
    np.savez(tmp_path / "model.npz", **arrays)  # type: ignore[arg-type]
    assert main(["export", str(tmp_path / "model.npz"), str(tmp_path / "out")]) == 0
    assert load_file(tmp_path / "out").keys() == arrays.keys()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_archive_is_one_sentence(save: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, rng = tmp_path / "model.npz", np.random.default_rng(0)
    save(path, weight=np.arange(60, dtype=np.float32).reshape(6, 10), bias=np.ones(3, np.float32))
    whole, statuses = path.read_bytes(), []
    for _ in range(300):
        damaged = bytearray(whole)
        for place in rng.integers(len(whole), size=3):
            damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        statuses.append(main(["export", str(path), str(tmp_path / "out")]))
        assert capsys.readouterr().err.count("\n") == statuses[-1], bytes(damaged)
    assert statuses.count(1) > 200


def test_objects_and_numbers_that_the_format_lacks_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for array in (np.array([{}], object), np.array(["text"]), np.ones(2, np.longdouble)):
        np.savez(tmp_path / "model.npz", array)
        assert main(["export", str(tmp_path / "model.npz"), str(tmp_path / "out")]) == 1, array.dtype
        assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


class Payload:
    """Makes a file where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", np.array([Payload(tmp_path / "touched")], object))
    assert main(["export", str(tmp_path / "model.npz"), str(tmp_path / "out")]) == 1
    assert not (tmp_path / "touched").exists()


def test_an_array_alone_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "model.npy", np.ones(2))
    assert main(["export", str(tmp_path / "model.npy"), str(tmp_path / "out")]) == 1
    assert "is no .npz file of numbers" in capsys.readouterr().err
