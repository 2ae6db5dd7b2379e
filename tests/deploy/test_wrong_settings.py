"""Every wrong setting is refused by the launcher itself, in one sentence, before Flower or Ray starts."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy import simulate
from deploy.run_config import ROOT, LaunchError, app_of, check_run, federation_config, run_config
from server.folder import create_folder
from server.run_records import RoundRecord
from server.settings import Settings

NODES = 4
COUNTS = ("num-rounds", "min-nodes", "local-epochs", "batch-size", "evaluate-every")
FROM_ZERO = ("local-steps", "num-threads", "checkpoint-every", "seed")
STEPS = ("learning-rate",)
SIZES = ("sampling-decay", "weight-decay", "clip-norm", "clip-median", "node-timeout")
SHARES = ("fraction-evaluate", "momentum")
TEXTS = ("dataset", "partition", "model", "strategy", "weighting", "uplink", "downlink", "device")
WRONG: list[str] = [
    *(f"{key}={value}" for key in COUNTS for value in ("0", "-1", "2.5", "1e30", "9223372036854775808", "lots", "true")),
    *(f"{key}={value}" for key in FROM_ZERO for value in ("-1", "0.5", "1e30", "18446744073709551616", "lots")),
    *(f"{key}={value}" for key in STEPS for value in ("0.0", "-1.0", "1e300", "1e38", "nan", "inf", "fast")),
    *(f"{key}={value}" for key in SIZES for value in ("-1.0", "1e300", "nan", "inf", "much")),
    *(f"{key}={value}" for key in SHARES for value in ("-0.1", "1.5", "nan", "half")),
    *(f"fraction-train={value}" for value in ("0.0", "-1.0", "1.1", "nan", "half")),
    *(f"round-timeout={value}" for value in ("0.0", "1e-6", "-5.0", "1e300", "soon")),
    *(f"{key}=7" for key in TEXTS),
    *(f"{key}=''" for key in ("dataset", "partition", "model", "strategy", "uplink", "downlink", "runs-dir")),
    *(f"device={value}" for value in ("tpu", "cuda:x", "gpu", "cuda:99", "mps:1")),
    *(f"dataset={value}" for value in ("../digits", "a/b")),
    *(f"run-name={value}" for value in ("..", "a/b", "../x", "x" * 101)),
    *(f"resume={value}" for value in ("1", "yes")),
    "resume=true",
    "num-threads=1000000000",
    *(f"partition='{text}'" for text in ("classes(0)", "even", "dirichlet(alpha=-1)", "classes(2", "iid() + iid()")),
    *(f"partition='iid() + {text}'" for text in ("rotation(degrees=999)", "noise(sigma=-1)", "noise(sigma=1) + iid()")),
    *(f"partition='{text}'" for text in ("classes(11)", "stc(classes=11)", "sizes([5])", "shards(2000)", 'natural("x")')),
    "dataset=nothing",
    *(f"model={name}" for name in ("nothing", "kws_cnn", "vgg11s")),  # digits are too small for two of them
    *(
        f"{link}='{text}'"
        for link in ("uplink", "downlink")
        for text in ("stc(", "nothing()", "stc(density=2)", "stc(density=0)", "eden(bits=9)", "qsgd(levels=0)", "topk(k=3)")
    ),
    *(f"uplink='{text}'" for text in ("powersgd(rank=129)", "powersgd(rank=0)", "randk(density=-1)", "ef21(density=0.1)")),
    *(f"downlink='{text}'" for text in ("dgc()", "ef21(density=0.1)")),
    "strategy=ef21",
    "strategy=ef21 uplink='ef21(density=0.1)' clip-norm=1.0",
    *(
        f"strategy='{text}'"
        for text in (
            "fedsgd", "fedavg(x=1)", "fedavg(1)", "fedadam(eta=1e308)", "fedadam(eta=0)", "fedadam(beta_1=2)",
            "fedavgm(server_momentum=3)", "fedprox(proximal_mu=-1)", "fedtrimmedavg(beta=0.5)", "majorityvote(step=0)",
            "krum(num_malicious_nodes=50)", "krum(num_malicious_nodes=1)", "krum(num_malicious_nodes=-1)",
            "bulyan(num_malicious_nodes=3)", "bulyan(num_malicious_nodes=1)", "bulyan()", "fedmedian",
            "fedtrimmedavg(beta=0.1)", "fedtrimmedavg(beta=5e-324)",
            "multikrum(num_malicious_nodes=0, num_nodes_to_select=100)", "multikrum(num_nodes_to_select=0)",
        )
    ),
    *(
        f"training='{text}'"
        for text in (
            "pruned", "fedprox(mu=-1)", "fedprox() + fedprox()", "fedprox() -", 'mixed_precision("float16")',
            "activation_compression(error=0)", "batch_augmentation(copies=0)", "batch_augmentation(shift=8)",
            "batch_augmentation(mirror=1)", "rigl(0)", "quantized(1)", "zerofl(1)", "admm(rho=-1)", "zerofl() + quantized()",
        )
    ),
    "client-momentum=half",
    "optimizer=lamb",
    "strategy='rigl(interval=5)'",
    "training='rigl()' uplink='powersgd()'",
    "training='fedprox(1)' strategy='fedprox(proximal_mu=1)'",
    *(f"learning-rate-schedule='{text}'" for text in ("linear", "cosine(last=2)", "steps(0.5)", "")),
    "strategy=bulyan fraction-train=0.5",
    "strategy=bulyan fraction-train=1.0 sampling-decay=1.0",
    "min-nodes=5",
    "colour=red",
    "resume=true run-name=nothing",
    "partition='own()'",
    "runs-dir=/dev/null",
    "runs-dir=~nobodyatall/x",
    "data-dir=~nobodyatall",
    "uplink",
    "= =",
]  # fmt: skip
WRONG_FEDERATION = [
    *(f"client-resources-num-cpus={value}" for value in ("0", "-1", "3", "lots", "1.5", "true")),
    *(f"init-args-num-cpus={value}" for value in ("0", "99999", "x")),
    *(f"client-resources-num-gpus={value}" for value in ("-1", "1e30", "x")),
    *(f"init-args-num-gpus={value}" for value in ("-1", "0.5", "1000")),
    "client-resources-num-gpus=0.5 init-args-num-gpus=0",
    "init-args-logging-level=foo",
    "init-args-log-to-driver=2",
    "backend=slurm",
    "backend-name=ray",
    "verbose=3",
    "foo=1",
    "num-supernodes=7",
    "words",
]


def sentence(error: Exception) -> str:
    text = str(error)
    assert "\n" not in text
    assert 15 < len(text) < 800
    return text


def test_there_are_enough() -> None:
    assert len(set(WRONG)) == len(WRONG)
    assert len(WRONG) + len(WRONG_FEDERATION) >= 150


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_setting_is_refused_in_one_sentence_that_names_it(text: str) -> None:
    with pytest.raises(LaunchError) as caught:
        check_run(run_config([text], app_of(ROOT)["config"], NODES), NODES)
    told = sentence(caught.value)
    if "=" in text and " " not in text:
        key, value = text.split("=", 1)
        assert key in told or value.strip("'") in told or key in ("strategy", "uplink", "downlink", "resume"), told


@pytest.mark.parametrize("text", WRONG_FEDERATION)
def test_a_wrong_option_of_the_simulation_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(LaunchError) as caught:
        federation_config([text], 2)
    told = sentence(caught.value)
    assert text.split("=")[0] in told
    assert "None" not in told


def test_right_settings_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    for text in (
        "strategy='krum(num_malicious_nodes=1)' fraction-train=1.0",
        "strategy='bulyan(num_malicious_nodes=1)' fraction-train=1.0",
        "strategy='fedtrimmedavg(beta=0.3)' fraction-train=1.0",
        "strategy=fedmedian fraction-train=0.5",
        "strategy='fedtrimmedavg(beta=0)'",
        "strategy=ef21 uplink='ef21(density=0.1)'",
        "clip-median=3.0 clip-norm=10.0 learning-rate=1 round-timeout=1",
    ):
        check_run(run_config([text], app_of(ROOT)["config"], 7), 7)
    assert federation_config(["client-resources-num-cpus=1 client-resources-num-gpus=0.25"], 2) == {
        "client-resources-num-cpus": 1,
        "client-resources-num-gpus": 0.25,
        "init-args-num-cpus": 2,
    }
    assert federation_config([], 3) == {"client-resources-num-cpus": 1, "init-args-num-cpus": 3}


@pytest.mark.parametrize("arguments", [["-c", "strategy='krum(num_malicious_nodes=50)'"], ["--federation", "foo=1"]])
def test_the_launcher_starts_nothing_for_them(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*_: Any) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr("deploy.flower_programs.SuperLink.start", start)
    monkeypatch.setattr(sys, "argv", ["simulate.py", "--nodes", "4", *arguments])
    with contextlib.suppress(SystemExit):
        assert simulate.main() == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_more_gpus_than_there_are_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert federation_config(["client-resources-num-gpus=2"], 2)["client-resources-num-gpus"] == 2
    for text, needed in (
        ("init-args-num-gpus=4", "init-args-num-gpus is 4; this machine has 2"),
        ("client-resources-num-gpus=3", "client-resources-num-gpus is 3; at most 2, "),
        ("client-resources-num-gpus=2 init-args-num-gpus=1", "client-resources-num-gpus is 2; at most 1, "),
    ):
        with pytest.raises(LaunchError, match=needed):
            federation_config([text], 2)


def test_a_run_that_exists_and_one_that_does_not_fit_are_refused(tmp_path: Path) -> None:
    defaults = app_of(ROOT)["config"]

    def check(*texts: str) -> None:
        check_run(run_config([f"runs-dir={tmp_path}", *texts], defaults, NODES), NODES)

    check("run-name=mine")
    settings = Settings.from_config({**defaults, "runs-dir": str(tmp_path), "run-name": "mine", "min-nodes": NODES})
    create_folder(settings).append(RoundRecord(1, 0.5, 1.0))
    for text, needed in (
        ("run-name=mine", "holds a run already; choose another run-name"),
        ("run-name=mine resume=true", "has no checkpoint"),
        ("run-name=other resume=true", "there is no run 'other'"),
    ):
        with pytest.raises(LaunchError, match=needed):
            check(text)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
