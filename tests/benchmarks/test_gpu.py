"""The GPU benchmark: its parts run on the CPU, and it needs neither Flower nor pydantic."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import gpu
from benchmarks.federation import Result, federation

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


def test_it_measures_compression_and_training_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["gpu", "--device", "cpu", "--entries", "5000", "--repeats", "1", "--no-tests"]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(gpu, "MODELS", (("logistic", (1, 8, 8)),))
    monkeypatch.setattr(gpu, "ROUNDS", 2)
    threads = torch.get_num_threads()
    try:
        assert gpu.main() == 0
    finally:
        torch.set_num_threads(threads)
    lines = capsys.readouterr().out.splitlines()
    compression = [line.split() for line in lines if line.split()[:1] == ["5,000"]]
    assert [line[-1] for line in compression] == ["3", "passes", "passes", "ms"]
    assert " ".join(compression[0][-7:]) == "passes, goal on a GPU: under 3"
    assert float(compression[0][-8]) > 0
    assert all(float(line[-2]) > 0 for line in compression[1:3])
    steps = [line for line in lines if line.startswith("logistic") and ": training" not in line]
    assert len(steps) == len(gpu.PLANS)
    refused = [line for line in steps if "times a step" not in line]
    assert len(refused) == 2
    assert "needs a GPU" in refused[0]
    assert "the model has none" in refused[1], "ZeroFL needs a second layer"
    assert sum(" its memory, " in line for line in steps) == len(gpu.PLANS) - 2
    errors = [line.split("gradient error ")[1] for line in steps if "gradient error" in line]
    assert len(errors) == 3
    assert 0 < float(errors[1]) < 0.1, "of mixed precision"
    assert float(errors[0]) == 0, "a logistic regression has no activations"
    assert re.fullmatch(r"\d+ s in all", lines[-1])
    for line, training in ((lines[-4], gpu.FEDERATION_PLAN), (lines[-3], "no plug-ins")):
        figures = r"accuracy [\d.]+ %, [\d.]+ times less traffic, [\d.]+ s"
        assert re.fullmatch(rf"cpu +{re.escape(training)} +{figures}", line)


def test_memory_is_the_most_at_a_time_and_that_at_the_loss() -> None:
    """4,000 bytes and 8,000 more; 8,000 are free again at the loss, and 2,000 come after it."""

    def step(at_loss: Callable[[], object]) -> None:
        kept = torch.empty(1000)
        more = torch.empty(2000)
        del more
        at_loss()
        late = torch.empty(500)
        del kept, late

    assert gpu.memory(step, CPU) == (12_000, 4_000)


def test_activations_take_less_memory_when_they_are_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "PLANS", ("activation_compression()", "batch_augmentation(2)"))
    compressed, doubled = gpu.steps("cnn", (1, 28, 28), CPU, 1)
    peak, saved = (float(word) for word in re.findall(r"([\d.]+) (?:its memory|after)", compressed))
    assert peak < 0.75
    assert saved < 0.2
    peak, saved = (float(word) for word in re.findall(r"([\d.]+) (?:its memory|after)", doubled))
    assert min(peak, saved) > 1.7


@pytest.mark.system
def test_tests_that_fail_or_do_not_run_are_an_error(tmp_path: Path) -> None:
    texts = {"good": "def test_a(): pass", "bad": "def test_a(): assert False", "broken": "import nothing_such"}
    for name, text in texts.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    status = {name: gpu.run_tests([str(tmp_path / f"test_{name}.py")])[1] for name in (*texts, "missing")}
    assert status["good"] == 0
    assert all(status[name] for name in ("bad", "broken", "missing"))


def test_tests_that_take_too_long_are_ended_and_an_error(tmp_path: Path) -> None:
    (tmp_path / "test_long.py").write_text("def test_a():\n    while True: pass\n")
    summary, status = gpu.run_tests([str(tmp_path / "test_long.py")], limit_s=0.5)
    assert status
    assert "not done after 0 s" in summary


@pytest.mark.parametrize(("error", "found"), [(MemoryError, "this machine"), (torch.OutOfMemoryError, "this device")])
def test_a_section_without_enough_memory_says_so(
    error: type[Exception], found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines() -> Iterator[str]:
        yield "one line"
        raise error

    gpu.print_section("a title", lines())
    assert capsys.readouterr().out == f"a title\none line\n    more than the memory of {found}\n"


@pytest.mark.parametrize("arguments", [["--repeats", "0"], ["--entries", "-5"], ["--entries", "x"]])
def test_numbers_that_are_not_positive_are_refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cpu", *arguments])
    with pytest.raises(SystemExit, match="2"):
        gpu.main()


def test_a_ratio_is_the_median_over_pairs_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now, turns = 0.0, list[str]()

    def work(name: str, lasts: float) -> None:
        nonlocal now
        now += lasts
        turns.append(name)

    monkeypatch.setattr("time.perf_counter", lambda: now)
    noise = iter([9.0, 3.0, 3.0, 100.0])  # the first run of all is not counted
    assert gpu.ratio(lambda: work("base", 2.0), lambda: work("action", next(noise)), CPU, 3) == 1.5
    assert turns == ["base", "action"] * 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_without_a_gpu_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu"])
    assert gpu.main() == 1
    assert "torch finds no GPU here" in capsys.readouterr().err


@pytest.fixture(scope="module")
def plain() -> Result:
    """Return what a federation of six rounds ends with."""
    return federation(CPU, 6)


def test_a_federation_learns_and_is_the_same_each_time(plain: Result) -> None:
    assert federation(CPU, 6) == plain
    longer = federation(CPU, 12)
    assert longer.accuracy > 0.6
    assert longer.dense_bytes > 15 * longer.sent_bytes, "the key frames are most of it in 12 rounds"


@pytest.mark.sample(1)
@pytest.mark.parametrize("training", ["admm('ternary', interval=5)", "rigl(0.3)", "mixed_precision()"])
def test_a_federation_trains_with_plug_ins(plain: Result, training: str) -> None:
    changed = federation(CPU, 6, training)
    assert changed.digest != plain.digest
    assert changed.accuracy > 0.3


@pytest.mark.system
def test_it_needs_neither_flower_nor_pydantic() -> None:
    text = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('flwr', 'flwr_datasets', 'datasets', 'ray', 'pydantic', 'rich'):\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import torch\n"
        "from benchmarks.gpu import federations\n"
        "print(*federations(torch.device('cpu'), 2))\n"
    )
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
