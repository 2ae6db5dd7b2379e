"""Every example runs plain and compressed under the same seed: as good, for far fewer bytes, and as its README says."""

import ast
import logging
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from statistics import fmean

import pytest
import torch

from deploy.control import Control
from deploy.environment import environment
from deploy.federation import end_all
from deploy.flower_programs import SuperLink
from deploy.program import Program
from deploy.scratch import mark_of_folder, scratch_folder
from examples import run

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
MIN_RATIO = {
    "pytorch": 20.0,
    "scikit-learn": 10.0,
    "lora": 15.0,
    "personal-heads": 15.0,
    "differential-privacy": 8.0,
    "scaffold": 3.0,
    "asynchronous": 10.0,
    "split": 6.0,
    "gossip": 12.0,
    "xgboost": 1.0,
    "jax": 15.0,
    "lightning": 12.0,
}
"""The least compression ratio that is accepted, of both directions together."""
NEEDS = {"lora": "peft", "xgboost": "xgboost", "jax": "jax", "lightning": "lightning"}
"""Libraries of examples that `make install` does not install."""
SHORT, WHOLE = ("scikit-learn", "jax", "lightning", "xgboost"), ("gossip", "pytorch")
"""Examples that take a few seconds, whose full runs `make test` includes; and those of which `make system` has them."""
MAX_ACCURACY_LOSS = 0.5
"""The accuracy, in percent, that compression may cost."""
SEEDS = {"scaffold": 8}
"""How many seeds an example is judged by, in the mean, where the difference of one run scatters by half a percent or more."""
MAX_LOSS_RATIO = 1.02
"""The loss after a compressed run over that after a plain one."""
MIN_ACCURACY = 85
MACHINES = 2.5
"""How far the accuracy, in percent, may be from that of the README: machines round differently."""
RESULT = r"(?:accuracy (?P<{0}>[\d.]+)%|loss (?P<{0}_loss>[\d.]+))\n(?:after \d+ s of virtual time\n)?"
TRAFFIC = r"(?:.*; )?together [\d.]+ \w+, (?:as much|(?P<{0}>[\d.]+) times smaller)(?:; .* uncompressed records)?\n"
OUTPUT = re.compile(
    rf"compress=false\n(?:{TRAFFIC.format('_dense')})?{RESULT.format('plain')}"
    rf"compress=true\n{TRAFFIC.format('ratio')}{RESULT.format('compressed')}"
)


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Restore what an example changes in this process: the threads of torch, the path of imports, and the log's level."""
    threads, path, level = torch.get_num_threads(), sys.path.copy(), logging.getLogger("flwr").level
    yield
    logging.getLogger("flwr").setLevel(level)
    torch.set_num_threads(threads)
    sys.path[:] = path


def numbers(found: re.Match[str]) -> dict[str, float]:
    """Return the numbers in the output of an example; the ratio is 1 where compression changes nothing."""
    return {"ratio": 1.0} | {key: float(text) for key, text in found.groupdict().items() if text}


def written(name: str) -> dict[str, float]:
    """Return the numbers in the README of an example."""
    found = OUTPUT.search((EXAMPLES / name / "README.md").read_text())
    assert found, "the README shows the output"
    return numbers(found)


def skip_without(name: str) -> None:
    """Skip the test if the library of an example is not installed."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed; fedcomp does not depend on it")


def imported(name: str) -> set[str]:
    """Return the modules that the files of an example import, without those of the standard library and its own."""
    modules: set[str] = set()
    for path in (EXAMPLES / name).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add(str(node.module))
    own = {path.parent.name for path in (EXAMPLES / name).glob("*/__init__.py")} | sys.stdlib_module_names
    return {module for module in modules if module.split(".")[0] not in own}


def test_every_example_is_tested_and_listed() -> None:
    names = {path.parent.name for path in EXAMPLES.glob("*/pyproject.toml")}
    assert names == set(MIN_RATIO)
    assert set(re.findall(r"^\| \[.*\]\(([\w-]+)\) \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)) == names
    assert set(re.findall(r"\| \[[^\]]*\]\(examples/([\w-]+)\) \|", (ROOT / "README.md").read_text())) == names


def test_examples_that_differ_in_their_strategy_alone_train_the_same_network() -> None:
    """Each folder must run on its own, since Flower sends it alone: the copies of a file are kept equal here."""
    copies = ("pytorch", "asynchronous", "differential-privacy")
    texts = {(EXAMPLES / name / f"{name.replace('-', '_')}_example" / "task.py").read_text() for name in copies}
    assert len(texts) == 1


@pytest.mark.parametrize("name", MIN_RATIO)
def test_the_tables_have_the_numbers_of_the_example(name: str) -> None:
    values = written(name)
    accuracy = f"{values['plain']:.1f} → {values['compressed']:.1f} %" if "plain" in values else ""
    loss = f"loss {values['plain_loss']:#.3g} → {values['compressed_loss']:#.3g}" if "plain_loss" in values else ""
    result, ratio = accuracy or loss, f"{values['ratio']:.1f}"
    assert f"](examples/{name}) | {result} | {ratio} |" in (ROOT / "README.md").read_text()
    [row] = [line for line in (EXAMPLES / "README.md").read_text().splitlines() if f"]({name}) |" in line]
    assert f" | {result} | " in row
    assert row.endswith(f" | {ratio} |")


@pytest.mark.parametrize("name", MIN_RATIO)
def test_an_example_installs_what_it_imports_and_needs_the_public_face_alone(name: str) -> None:
    modules = imported(name)
    face = {"fedcomp", "fedcomp.flower", "fedcomp.flower.split", "fedcomp.gossip", "fedcomp.split"}
    assert {module for module in modules if module.startswith("fedcomp")} <= face
    project = tomllib.loads((EXAMPLES / name / "pyproject.toml").read_text())["project"]
    installed = {re.split(r"[\[<>=]", text)[0] for text in project["dependencies"]}
    packages = {"flwr_datasets": "flwr-datasets", "sklearn": "scikit-learn", "xgboost": "xgboost-cpu"}
    top = {module.split(".")[0] for module in modules} - {"numpy"}
    assert {packages.get(each, each) for each in top} == installed


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in SHORT else pytest.mark.system if name in WHOLE else pytest.mark.nightly)
        for name in MIN_RATIO
    ],
)
@pytest.mark.filterwarnings("default")  # of the libraries
def test_an_example_is_as_good_compressed_as_plain_for_far_fewer_bytes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without(name)
    logging.getLogger("flwr").setLevel(logging.ERROR)  # as other tests of the same process leave it
    claims = written(name)
    differences: list[float] = []
    for seed in range(1, SEEDS.get(name, 1) + 1):
        if name == "gossip":
            sys.path.insert(0, str(EXAMPLES / name))
            import_module("simulate").main()
        else:
            run.main(str(EXAMPLES / name), seed=seed)
        output = capsys.readouterr().out
        found = OUTPUT.fullmatch(output)
        assert found, f"a node was refused or failed, or fedcomp warns:\n{output}"
        values = numbers(found)
        assert values["ratio"] >= MIN_RATIO[name]
        assert values["ratio"] == pytest.approx(claims["ratio"], rel=0.2)
        if "plain" in values:
            assert values["plain"] >= MIN_ACCURACY, "the app learns something"
            assert values["compressed"] == pytest.approx(claims["compressed"], abs=MACHINES)
            differences.append(values["compressed"] - values["plain"])
        else:
            assert values["compressed_loss"] <= MAX_LOSS_RATIO * values["plain_loss"]
            assert values["compressed_loss"] == pytest.approx(claims["compressed_loss"], rel=0.1)
    assert fmean(differences or [0.0]) >= -MAX_ACCURACY_LOSS


QUICK = {"num-server-rounds": 2, "num-versions": 4, "local-epochs": 1, "local-steps": 2, "batch-size": 100}


@pytest.mark.parametrize("name", sorted(set(MIN_RATIO) - {*SHORT, *WHOLE}))
@pytest.mark.filterwarnings("default")  # of the libraries
def test_two_rounds_of_an_example_run_plain_and_compressed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    skip_without(name)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    settings = run.read(EXAMPLES / name)[1].keys() & QUICK.keys()
    run.main(str(EXAMPLES / name), *(f"{setting}={QUICK[setting]}" for setting in settings))
    output = capsys.readouterr().out
    found = OUTPUT.fullmatch(output)
    assert found, f"a node was refused or failed, or fedcomp warns:\n{output}"
    assert numbers(found)["ratio"] > 1


@pytest.mark.filterwarnings("default")  # of the libraries
def test_peft_loads_the_adapter_that_the_lora_example_saves_and_the_model_is_a_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without("lora")
    folder = EXAMPLES / "lora"
    sys.path.insert(0, str(folder))
    task, peft = import_module("lora_example.task"), import_module("peft")
    base, tokenizer = task.small_model()
    base.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    rounds = ("num-server-rounds=1", "train.training-arguments.max-steps=1")
    short = (*rounds, f"model.name='{tmp_path}/base'", f"save-to='{tmp_path}/adapter'")
    run.run(folder, *short)
    loss = re.search(r"loss ([\d.]+)\n", capsys.readouterr().out)
    assert loss
    loaded = import_module("transformers").AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    model = peft.PeftModel.from_pretrained(loaded, tmp_path / "adapter")
    texts = task.load_texts({"static.dataset.name": ""}, -1)
    assert task.test(model, tokenizer, texts, 512) == pytest.approx(float(loss[1]), abs=1e-3)
    with model.disable_adapter():
        assert task.test(model, tokenizer, texts, 512) > float(loss[1]) + 0.01, "the adapter does something"


def test_the_settings_of_flowertune_are_settings_of_the_lora_example() -> None:
    folder = EXAMPLES / "lora"
    text = (folder / "flowertune.toml").read_text()
    config = run.read(folder, text)[1]
    assert config["model.name"] == "mistralai/Mistral-7B-v0.3"
    assert config["static.dataset.name"] == "flwrlabs/alpaca-gpt4"
    assert (config["num-server-rounds"], config["strategy.fraction-train"], config["compress"]) == (200, 0.1, True)


@pytest.mark.parametrize(
    ("name", "settings", "error"),
    [
        (".", [], "no Flower app in .*/examples; name a folder"),
        ("gossip", [], "gossip is no Flower app; python .*/examples/gossip/simulate.py runs it"),
        ("pytorch", ["num-server-rounds=0"], "num-server-rounds is 0; at least 1 is needed"),
        ("pytorch", ["num-server-rounds=1.5"], "num-server-rounds is 1.5; a whole number is needed"),
        ("pytorch", ["num-server-rounds=true"], "num-server-rounds is true; a whole number is needed"),
        ("pytorch", ["learning-rate='high'"], 'learning-rate is "high"; a number is needed'),
        ("pytorch", ["compress=1"], "compress is 1; true or false is needed"),
        ("lora", ["model.name=7"], "model.name is 7; a text is needed"),
        ("pytorch", ["rounds=3"], "pytorch has no setting rounds; it has num-server-rounds, "),
        ("pytorch", ["batch-size=many"], "Invalid value"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(name: str, settings: list[str], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        run.read(EXAMPLES / name, *settings)


@pytest.mark.parametrize("setting", ["compress=true", "compress = false"])
def test_the_setting_compress_chooses_one_of_the_two_runs(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    run.main(str(EXAMPLES / "scikit-learn"), "num-server-rounds=1", setting)
    assert re.findall("compress.*", capsys.readouterr().out) == [setting]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["rounds=3"], "pytorch has no setting rounds; .*"),
        (["--seed", "-1"], "--seed is -1; a whole number from 0 to 4294967295 is needed"),
    ],
)
def test_a_refusal_is_one_line(arguments: list[str], error: str) -> None:
    command = [sys.executable, "examples/run.py", "examples/pytorch", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert re.fullmatch(f"error: {error}\n", done.stderr)


@pytest.mark.nightly
@pytest.mark.system
def test_flwr_run_trains_an_example_in_the_simulation_of_flower(capsys: pytest.CaptureFixture[str]) -> None:
    with scratch_folder() as home:
        mark = mark_of_folder(home)
        program = Program("SuperLink", f"{mark}superlink/", home / "superlink.log")
        superlink = SuperLink(program, ["--insecure", "--simulation"])
        try:
            superlink.start(home, environment(home))
            control = Control(home, mark)
            control.connect(superlink.address)
            started = control.run(EXAMPLES / "pytorch", {"num-server-rounds": 2}, home, {"num-supernodes": 2})
            started.follow(verbose=True)
        finally:
            end_all([program], mark)
    assert re.search(r"the whole run, compared with plain Flower: up .*\n(?:.*\n)*accuracy ", capsys.readouterr().out)
