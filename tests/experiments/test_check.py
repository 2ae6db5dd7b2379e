"""A study that cannot run is refused before its first cell: settings that do not fit each other, and missing data."""

from pathlib import Path

import pytest
import torch

from experiments.check import check_data, check_settings, uses_gpu
from experiments.plan import StudyError
from tests.experiments.cells import METHOD, plan

HEAD = """title = "x"
[run]
dataset = "digits"
model = "logistic"
clients = 10
iterations = 1
evaluate-every = 1
local-steps = 1
"""


def test_a_study_that_fits_is_accepted_silently(tmp_path: Path) -> None:
    log: list[str] = []
    text = f"{HEAD}[grid]\nmodel = ['logistic', 'mlp']\npartition = ['iid()', 'classes(2)']\n{METHOD}"
    study = plan(tmp_path, text.replace('model = "logistic"\n', ""))
    check_settings(study)
    check_data(study, "", log.append)
    assert log == []


@pytest.mark.parametrize(
    ("text", "key", "names"),
    [
        (HEAD.replace("digits", "digit") + METHOD, "run.dataset is 'digit'", "digits"),
        (HEAD.replace("logistic", "logistics") + METHOD, "run.model is 'logistics'", "logistic"),
        (HEAD.replace("logistic", "vgg11s") + METHOD, "run.model is 'vgg11s'", "8x8"),
        (f"{HEAD}[grid]\nmodel = [\n'mlp',\n'mpl']\n{METHOD}", "grid.model is 'mpl'", "mlp"),
        (f"{HEAD}{METHOD}uplink = 'ef21()'", r"method\[0\].uplink is 'ef21\(\)'", "EF21"),
        (f"{HEAD}uplink = 'stc()'\n{METHOD}strategy = 'ef21()'", r"run.uplink is 'stc\(\)'", "EF21"),
        (f"{HEAD}{METHOD}strategy = 'ef21()'", r"method\[0\].uplink is 'auto", "EF21"),  # the app's default
        (f"{HEAD}{METHOD}downlink = 'ef21()'", r"method\[0\].downlink is 'ef21", "downlink"),
        (f"{HEAD}clip-norm = 0.5\n{METHOD}strategy = 'ef21()'\nuplink = 'ef21()'", "run.clip-norm is 0.5", "EF21"),
        (
            f"{HEAD}{METHOD}strategy = 'ef21()'\nuplink = 'ef21()'\nclip-median = 3.0",
            r"method\[0\].clip-median is 3",
            "EF21",
        ),
        (f"{HEAD}device = 'cuda:99'\n{METHOD}", "run.device is 'cuda:99'", "cpu"),
        (f"{HEAD}{METHOD}strategy = 'krum(num_malicious_nodes=50)'", r"method\[0\].strategy is 'krum", "103 updates"),
        (f"{HEAD}device = 'cuda:01'\n{METHOD}", "run.device is 'cuda:01'", "cuda:<number>"),
        (
            f"{HEAD}{METHOD}strategy = 'fedprox()'\ntraining = 'fedprox(1)'",
            r"method\[0\].training is 'fedprox",
            "already",
        ),
        (f"{HEAD}{METHOD}learning-rate-schedule = 'up'", r"method\[0\].learning-rate-schedule is 'up'", "cosine"),
        (f"{HEAD}{METHOD}training = 'fedprox(-1)'", r"method\[0\].training is 'fedprox\(-1\)'; mu is -1", "0"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_their_key(tmp_path: Path, text: str, key: str, names: str) -> None:
    with pytest.raises(StudyError, match=f"study.toml: {key}.*; .*{names}"):
        check_settings(plan(tmp_path, text))


def test_missing_data_are_refused_with_their_key(tmp_path: Path) -> None:
    mnist = plan(tmp_path, HEAD.replace("digits", "mnist") + METHOD)
    check_settings(mnist)  # needs no data
    with pytest.raises(StudyError, match="run.dataset is 'mnist'; .*train-images"):
        check_data(mnist, str(tmp_path), print)


def test_a_dataset_that_is_not_on_the_hub_needs_a_folder(tmp_path: Path) -> None:
    text = HEAD.replace("digits", "speech-commands").replace("logistic", "kws_cnn") + METHOD
    with pytest.raises(StudyError, match="run.dataset is 'speech-commands'; .*data-dir"):
        check_data(plan(tmp_path, text), "", print)


@pytest.mark.parametrize(("partitions", "numbers"), [("'iid()', 'classes(11)'", "11"), ("'iid()'", "1437 .*1438")])
def test_a_partition_that_the_data_do_not_allow_is_refused_with_its_key(
    tmp_path: Path, partitions: str, numbers: str
) -> None:
    text = f"{HEAD}[grid]\nclients = [10, 1438]\npartition = [{partitions}]\n{METHOD}".replace("clients = 10\n", "")
    with pytest.raises(StudyError, match=f"grid.partition is .*{numbers}"):
        check_data(plan(tmp_path, text), "", print)


def test_a_study_uses_a_gpu_if_any_device_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on = {
        device: plan(tmp_path, f"{HEAD}device = '{device}'\n{METHOD}") for device in ("auto", "cpu", "cuda", "cuda:1")
    }
    for there in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
        assert {device: uses_gpu(one) for device, one in on.items()} == {
            "auto": there,
            "cpu": False,
            "cuda": True,
            "cuda:1": True,
        }
