"""Every example in the README and in the pages runs as it is written there, and every link leads to a file."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

from docs.scripts.pictures import badges
from fedcomp.data import read_card
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid, load_training_state
from fedcomp.tasks import build_model, input_shape

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
QUICKSTART = ROOT / "docs" / "start" / "quickstart.md"
HOW_TO = ROOT / "docs" / "how-to"
MAX_README_LINES, MAX_README_COLUMNS = 150, 120
MAX_WORDS = 3000


def _blocks(language: str, page: Path) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def test_the_page_about_trained_models_loads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run of one's own, and of a run's folder; the adapter of the last example is tested with the LoRA example."""
    own, folder, _ = _blocks("python", HOW_TO / "use-the-model.md")
    model = nn.Linear(3, 2)
    app = ClientApp(mods=[CompressionMod()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        sent = cast(ArrayRecord, message.content["arrays"])
        arrays = ArrayRecord({name: Array(array.numpy() + 1) for name, array in sent.items()})
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    monkeypatch.chdir(tmp_path)
    before = model.weight.detach().clone()
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    exec(own, {"strategy": strategy, "grid": LocalGrid(app, 2), "ArrayRecord": ArrayRecord, "model": model})  # noqa: S102
    saved = torch.load(tmp_path / "model.pt", weights_only=True)["weight"]
    assert torch.equal(saved, model.weight)
    assert (saved - before).mean() == pytest.approx(3, rel=0.1)
    card = read_card("digits", ROOT / "datasets")
    trained = {
        name: tensor.numpy() for name, tensor in build_model("mlp", input_shape(card), 10, 7).state_dict().items()
    }
    (tmp_path / "runs" / "digits-001").mkdir(parents=True)
    np.savez(tmp_path / "runs" / "digits-001" / "model.npz", **trained)
    (tmp_path / "datasets").symlink_to(ROOT / "datasets")
    found: dict[str, Any] = {}
    exec(folder, found)  # noqa: S102
    assert all(np.array_equal(tensor.numpy(), trained[name]) for name, tensor in found["model"].state_dict().items())


@pytest.mark.system
def test_the_flower_app_in_the_quickstart_runs_and_is_compressed(tmp_path: Path) -> None:
    files = {}
    for block in _blocks("python", QUICKSTART):
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
        timeout=300,
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


def test_the_install_lines_of_the_quickstart_install_all_that_its_app_imports() -> None:
    trees = [ast.parse(block) for block in _blocks("python", QUICKSTART) if re.match(r"# \w+\.py\n", block)]
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
    lines = [line for block in _blocks("sh", QUICKSTART) for line in block.splitlines()]
    [line] = [line for line in lines if line.startswith("pip install -c")]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*line.partition("#")[0].split(), *extras["dependencies"], *extras["optional-dependencies"]["flower"]]
    assert "'.[flower]'" in line
    assert others <= {re.match(r"[\w-]*", name)[0] for name in named}  # type: ignore[index]
    assert others >= {"flwr", "torch", "scikit-learn"}


@pytest.mark.parametrize("start", ["from_file", "from_seed"])
def test_the_first_model_of_a_shared_start_is_not_sent(
    start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = _blocks("python", HOW_TO / "first-model.md")
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
    text = (HOW_TO / "codec.md").read_text()
    found = re.search(r"^```python\n(import numpy.*?)^```\n\n```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    env = {"PYTHONPATH": str(README.parent), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", found[1]], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == found[2]


def test_every_message_that_a_page_encodes_has_a_seed() -> None:
    """The default would be one seed for all messages: `randk` would never send most entries."""
    pages = (README, *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/**/*.ipynb"), *ROOT.glob("examples/**/*.md"))
    calls = [call for page in pages for call in re.findall(r"\.encode\(.*(?:state|\.init\().*", page.read_text())]
    assert len(calls) >= 2
    assert [call for call in calls if "seed=" not in call] == []


@pytest.mark.system
def test_the_app_with_a_checkpoint_continues_from_its_checkpoint_to_the_same_model(tmp_path: Path) -> None:
    (server,) = _blocks("python", HOW_TO / "checkpoint.md")
    client = next(block for block in _blocks("python", QUICKSTART) if block.startswith("# client_app.py"))
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
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.partition(":")[0] for line in done.stdout.splitlines()]
    rounds = [f"round {number}" for number in range(1, 6)]
    assert lines == ["interrupted", *rounds[2:], *rounds, "False True"]


def test_the_programs_in_the_training_pages_run(capsys: pytest.CaptureFixture[str]) -> None:
    loop, _ = _blocks("python", HOW_TO / "training" / "index.md")
    (masks,) = _blocks("python", HOW_TO / "training" / "sparse.md")
    exec(loop, {})  # noqa: S102 - it is the page's
    assert capsys.readouterr().out == "batch_augmentation(copies=4, shift=1) + mixed_precision(dtype='bfloat16')\n"
    exec(masks, {})  # noqa: S102 - it is the page's
    assert "'0.weight_mask': (800,)" in capsys.readouterr().out


def test_the_programs_in_the_asynchronous_page_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = HOW_TO / "asynchronous.md"
    for program in _blocks("python", page):
        exec(program, {})  # noqa: S102 - it is the page's
        assert f"```\n{capsys.readouterr().out}```" in page.read_text()


def test_the_app_in_the_training_page_keeps_its_state_on_each_node() -> None:
    names: dict[str, Any] = {}
    exec(_blocks("python", HOW_TO / "training" / "index.md")[1], names)  # noqa: S102 - it is the page's
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
    page, names = HOW_TO / "gossip.md", dict[str, object]()
    programs = _blocks("python", page)
    assert len(programs) == 2
    for program in programs:
        exec(program, names)  # noqa: S102 - it is the page's
        assert f"```python\n{program}```\n\n```\n{capsys.readouterr().out}```" in page.read_text()


@pytest.mark.nightly
@pytest.mark.system
def test_the_program_in_the_split_page_trains_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Machines round differently, so the numbers are those of the page more or less."""
    page = HOW_TO / "split.md"
    (program,) = _blocks("python", page)
    exec(program, {})  # noqa: S102 - it is the page's
    line = r"^(\w+): accuracy (\d+)%, (\d+\.\d) times fewer bytes$"
    printed, written = (re.findall(line, text, re.MULTILINE) for text in (capsys.readouterr().out, page.read_text()))
    assert [name for name, _, _ in printed] == [name for name, _, _ in written] == ["cnn", "lstm"]
    for one, other in zip(printed, written, strict=True):
        assert float(one[1]) == pytest.approx(float(other[1]), abs=4)
        assert float(one[2]) == pytest.approx(float(other[2]), rel=0.1)


def test_the_readme_fits_on_two_screens() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= MAX_README_LINES
    assert [line for line in lines if len(line) > MAX_README_COLUMNS] == []


def test_every_local_link_of_the_readme_and_the_docs_leads_to_a_file() -> None:
    others = (README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md")
    for page in (*others, *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_no_page_is_long_and_every_page_is_in_the_navigation() -> None:
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).as_posix(): page.read_text() for page in docs.rglob("*.md")}
    assert {name for name, text in pages.items() if len(text.split()) > MAX_WORDS} == set()
    assert set(re.findall(r"[\w/.-]+\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)) == set(pages)


def test_two_marked_lines_make_it_compressed() -> None:
    assert sum(block.count("  # <--") for block in _blocks("python", QUICKSTART)) == 2


@pytest.mark.parametrize("page", [README, QUICKSTART, ROOT / "docs" / "index.md"], ids=lambda page: page.name)
def test_the_diff_adds_two_lines_of_code_and_their_imports(page: Path) -> None:
    text = re.sub("^    (?=[`+-]|     )", "", page.read_text(), flags=re.MULTILINE)  # of blocks within tabs
    diffs = re.findall(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    added = re.findall(r"^\+ *(.*)", "".join(diffs), re.MULTILINE)
    imports = [line for line in added if "import" in line]
    code = [line for block in _blocks("python", QUICKSTART) for line in block.splitlines()]
    marked = [line.partition("  # <--")[0].strip() for line in code if "  # <--" in line]
    assert set(imports) <= set(code)
    assert [line for line in added if line not in imports] == marked
    assert len(imports) == len(marked) == 2


def test_the_badges_say_what_the_metadata_says() -> None:
    shown = {path.stem: path.read_text() for path in (ROOT / "docs" / "assets").glob("badge-*.svg")}
    assert shown == badges()
    assert all(f"docs/assets/{name}.svg" in README.read_text() for name in shown)
