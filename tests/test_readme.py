"""Every example in the README and in the guide runs as it is written there, and every page is linked."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid, load_training_state

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "guide.md"
MAX_README_LINES = 150


def _blocks(language: str, page: Path = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_the_flower_app_in_the_readme_runs_and_is_compressed(tmp_path: Path) -> None:
    files = {}
    for block in _blocks("python"):
        if first := re.match(r"# (\w+\.py)\n", block):
            files[str(first[1])] = block
    assert sorted(files) == ["client_app.py", "server_app.py", "try_it.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "try_it.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(README.parent), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loss = re.search(r"^loss (\d+\.\d+)$", done.stdout, re.MULTILINE)
    ratio = re.search(r"^up (\d+) times smaller$", done.stdout, re.MULTILINE)
    assert loss is not None
    assert ratio is not None
    assert float(loss[1]) < 1.0, "it starts at ln 10 = 2.3"
    assert int(ratio[1]) > 25, "one bit an entry, of 32"
    assert "fedcomp: round 1, compared with plain Flower: up" in done.stderr


def test_the_install_lines_of_the_readme_install_all_that_its_app_imports() -> None:
    trees = [ast.parse(block) for block in _blocks("python") if re.match(r"# \w+\.py\n", block)]
    assert len(trees) == 3
    imported = {
        name.split(".")[0]
        for tree in trees
        for node in ast.walk(tree)
        for name in (
            [each.name for each in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)]
        )
        if name
    }
    packages = packages_distributions()
    others = {packages[name][0] for name in imported - {"fedcomp", "client_app", "server_app"}}
    [line] = [line for block in _blocks("sh") for line in block.splitlines() if line.startswith("pip install")]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*line.partition("#")[0].split(), *extras["dependencies"], *extras["optional-dependencies"]["flower"]]
    assert "'.[flower]'" in line
    assert others <= {re.match(r"[\w-]*", name)[0] for name in named}  # type: ignore[index]
    assert others >= {"flwr", "torch", "scikit-learn"}


@pytest.mark.parametrize("start", ["from_file", "from_seed"])
def test_the_first_model_in_the_guide_is_not_sent(start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = (block for block in _blocks("python", GUIDE) if "from_file" in block)
    names: dict[str, Any] = {"np": np, "ClientApp": ClientApp, "FedAvg": FedAvg}
    names |= {"CompressionMod": CompressionMod, "CompressedStrategy": CompressedStrategy}
    monkeypatch.chdir(tmp_path)
    exec(block.replace("[from_file]", f"[{start}]"), names)  # noqa: S102 - it is the page's
    weights = {"w": np.random.Generator(np.random.PCG64(7)).random((10, 64), np.float32)}
    np.savez("pretrained.npz", **weights)  # type: ignore[arg-type]
    app: ClientApp = names["app"]
    strategy: CompressedStrategy = names["strategy"]

    @app.train()
    def train(message: Message, context: Context) -> Message:
        content = {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    grid = LocalGrid(app, 3, {"seed": 7})
    strategy.start(grid, ArrayRecord({"w": Array(weights["w"])}), num_rounds=2)
    assert strategy.ledger.refused == 0
    assert strategy.ledger.first_model_bytes < 3 * 200, "three names of a model of 2,560 bytes"


def test_the_codec_example_prints_the_output_below_it() -> None:
    text = GUIDE.read_text()
    found = re.search(r"^```python\n(import numpy.*?)^```\n\n```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    env = {"PYTHONPATH": str(README.parent), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", found[1]], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == found[2]


def test_the_app_in_the_guide_continues_from_its_checkpoint_to_the_same_model(tmp_path: Path) -> None:
    (server,) = re.findall(r"^```python\n(# server_app.py\n.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    client = next(block for block in _blocks("python") if block.startswith("# client_app.py"))
    program = """
from pathlib import Path
import numpy as np, torch
from flwr.app import Context, RecordDict
import client_app, server_app
from fedcomp.flower import LocalGrid

class EndingGrid(LocalGrid):
    def send_and_receive(self, messages, *, timeout=None):
        if len(self.seconds) == self.last:
            raise KeyboardInterrupt
        return super().send_and_receive(messages, timeout=timeout)

def train(grid, last):
    grid.last = last
    torch.manual_seed(0)
    try:
        server_app.app(grid, Context(0, 0, {}, RecordDict(), {"num-rounds": 5}))
    except KeyboardInterrupt:
        print("interrupted")
    return np.load("server.checkpoint")["replica"].tobytes()

grid = EndingGrid(client_app.app, num_nodes=4)
interrupted = train(grid, 4)
continued = train(grid, None)
Path("server.checkpoint").unlink()
whole = train(EndingGrid(client_app.app, num_nodes=4), None)
print(interrupted == whole, continued == whole)
"""
    for name, text in (("server_app.py", server), ("client_app.py", client), ("program.py", program)):
        (tmp_path / name).write_text(text)
    env = {"PYTHONPATH": str(README.parent), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.partition(":")[0] for line in done.stdout.splitlines()]
    rounds = [f"round {number}" for number in range(1, 6)]
    assert lines == ["interrupted", *rounds[2:], *rounds, "False True"]


def test_the_programs_in_the_training_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    loop, masks, _ = _blocks("python", ROOT / "docs" / "training.md")
    exec(loop, {})  # noqa: S102 - it is the page's
    assert capsys.readouterr().out == "batch_augmentation(copies=4, shift=1) + mixed_precision(dtype='bfloat16')\n"
    exec(masks, {})  # noqa: S102 - it is the page's
    assert "'0.weight_mask': (800,)" in capsys.readouterr().out


def test_the_programs_in_the_asynchronous_page_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "asynchronous.md"
    for program in _blocks("python", page):
        exec(program, {})  # noqa: S102 - it is the page's
        assert f"```\n{capsys.readouterr().out}```" in page.read_text()


def test_the_app_in_the_training_page_keeps_its_state_on_each_node() -> None:
    names: dict[str, Any] = {}
    exec(_blocks("python", ROOT / "docs" / "training.md")[2], names)  # noqa: S102 - it is the page's
    grid = LocalGrid(names["app"], 2)
    strategy = CompressedStrategy(FedAvg(min_available_nodes=2, fraction_evaluate=0.0))
    strategy.start(grid, ArrayRecord(nn.Linear(64, 10).state_dict()), num_rounds=2)
    assert strategy.ledger.refused == 0
    for context in grid.contexts.values():
        state, server_round = load_training_state(context.state)
        assert server_round == 2
        assert {part: set(tensors) for part, tensors in state.items()} == {
            "admm(table='ternary')": {"weight"},
            "momentum": {"weight", "bias"},
        }
        assert all(tensor.count_nonzero() > 0 for tensors in state.values() for tensor in tensors.values())


def test_the_programs_in_the_gossip_page_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    page, names = ROOT / "docs" / "gossip.md", dict[str, object]()
    programs = _blocks("python", page)
    assert len(programs) == 2
    for program in programs:
        exec(program, names)  # noqa: S102 - it is the page's
        assert f"```python\n{program}```\n\n```\n{capsys.readouterr().out}```" in page.read_text()


@pytest.mark.nightly
@pytest.mark.system
def test_the_program_in_the_split_page_trains_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Machines round differently, so the numbers are those of the page more or less."""
    page = ROOT / "docs" / "split.md"
    (program,) = _blocks("python", page)
    exec(program, {})  # noqa: S102 - it is the page's
    line = r"^(\w+): accuracy (\d+)%, (\d+\.\d) times fewer bytes$"
    printed, written = (re.findall(line, text, re.MULTILINE) for text in (capsys.readouterr().out, page.read_text()))
    assert [name for name, _, _ in printed] == [name for name, _, _ in written] == ["cnn", "lstm"]
    for one, other in zip(printed, written, strict=True):
        assert float(one[1]) == pytest.approx(float(other[1]), abs=4)
        assert float(one[2]) == pytest.approx(float(other[2]), rel=0.1)


def test_the_readme_fits_on_two_screens() -> None:
    assert len(README.read_text().splitlines()) <= MAX_README_LINES


def test_every_local_link_of_the_readme_and_the_docs_leads_to_a_file() -> None:
    for page in (README, ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            beside = {"wire-format.md", "deployment.md", "contributing.md"}  # pages that include a file from elsewhere
            assert (page.parent / target).exists() or target in beside, f"{page.name} links to {target}"


def test_two_marked_lines_make_it_compressed() -> None:
    assert sum(block.count("  # <--") for block in _blocks("python")) == 2
