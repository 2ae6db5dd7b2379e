"""What cannot run is found before the first cell does: settings that do not fit each other, and data that are not there."""

from pathlib import Path

import pytest
import torch

from experiments.check import check_data, check_settings, uses_gpu
from experiments.plan import Plan, read_plan
from experiments.source import StudyError

HEAD = """title = "x"
[run]
dataset = "digits"
model = "logistic"
clients = 10
iterations = 1
evaluate-every = 1
local-steps = 1
"""
METHOD = """[[method]]
label = "one"
"""


def plan(folder: Path, text: str) -> Plan:
    """Return the plan in a file with this text."""
    (folder / "study.toml").write_text(text)
    return read_plan(folder / "study.toml")


def test_a_study_that_fits_is_not_refused_and_says_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    text = f"{HEAD}[grid]\nmodel = ['logistic', 'mlp']\npartition = ['iid()', 'classes(2)']\n{METHOD}"
    check_settings(plan(tmp_path, text.replace('model = "logistic"\n', "")))
    check_data(plan(tmp_path, text.replace('model = "logistic"\n', "")), "", said.append)
    assert said == []


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (
            HEAD.replace("digits", "digit") + METHOD,
            3,
            "dataset is 'digit'; no dataset card 'digit' .* there are: .*digits",
        ),
        (
            HEAD.replace("logistic", "logistics") + METHOD,
            4,
            "model is 'logistics'; unknown model .* there are: .*logistic",
        ),
        (HEAD.replace("logistic", "vgg11s") + METHOD, 4, "model is 'vgg11s'; images of 8x8; model .* at least"),
        (f"{HEAD}[grid]\nmodel = [\n'mlp',\n'mpl']\n{METHOD}", 12, "model is 'mpl'; unknown model 'mpl'"),
        (f"{HEAD}{METHOD}uplink = 'ef21()'", 11, "the uplink ef21 and the strategy EF21 belong together"),
        (f"{HEAD}uplink = 'stc()'\n{METHOD}strategy = 'ef21()'", 9, "the uplink ef21 and the strategy EF21"),
        (f"{HEAD}{METHOD}strategy = 'ef21()'", 10, "uplink is 'stc.*the uplink ef21 and the strategy EF21"),
        (f"{HEAD}{METHOD}downlink = 'ef21()'", 11, "downlink is 'ef21.*does not work as downlink"),
        (f"{HEAD}device = 'cuda:99'\n{METHOD}", 9, "device is 'cuda:99'; .*this node"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_their_line(tmp_path: Path, text: str, line: int, says: str) -> None:
    with pytest.raises(StudyError, match=f"study.toml, line {line}: .*{says}"):
        check_settings(plan(tmp_path, text))


def test_data_that_are_not_there_are_refused_with_their_line(tmp_path: Path) -> None:
    mnist = plan(tmp_path, HEAD.replace("digits", "mnist") + METHOD)
    check_settings(mnist)  # needs no data
    with pytest.raises(
        StudyError, match=r"study.toml, line 3: dataset is 'mnist'; mnist: no train-images.* get it from"
    ):
        check_data(mnist, str(tmp_path), print)


def test_a_dataset_that_no_hub_has_needs_a_folder(tmp_path: Path) -> None:
    said: list[str] = []
    speech = plan(tmp_path, HEAD.replace("digits", "speech-commands").replace("logistic", "kws_cnn") + METHOD)
    with pytest.raises(
        StudyError, match="line 3: dataset is 'speech-commands'; .*data-dir with the files from .* is needed"
    ):
        check_data(speech, "", said.append)


def test_a_partition_that_the_data_cannot_meet_is_refused_with_its_line(tmp_path: Path) -> None:
    many = f"{HEAD}[grid]\nclients = [10, 1438]\npartition = ['iid()',\n'classes(11)']\n{METHOD}"
    text = many.replace("clients = 10\n", "")
    with pytest.raises(StudyError, match=r"line 11: partition is 'classes\(11\)'; .*11"):
        check_data(plan(tmp_path, text), "", print)
    with pytest.raises(StudyError, match="partition is 'iid\\(\\)'; .*1437 samples; .*1438, are needed"):
        check_data(plan(tmp_path, text.replace(",\n'classes(11)'", "")), "", print)


def test_a_study_on_a_gpu_is_told_from_one_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
