"""The command `fedcomp`: each subcommand, in one sentence what is wrong, files of frames, and the lists."""

import errno
import io
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

import fedcomp
from fedcomp.__main__ import COMMANDS, IN_FOLDER, main
from fedcomp.commands.show import describe
from fedcomp.flower import LocalGrid, demo
from fedcomp.flower.local_grid import Fault
from fedcomp.sync import start_replica
from fedcomp.training import PLUGINS
from fedcomp.wire import Frame, Kind, layout_of

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"


def described(capsys: pytest.CaptureFixture[str], name: str) -> list[str]:
    assert main([str(GOLDEN / name)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


def test_a_delta_is_described_field_by_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert described(capsys, "delta_dense.frame") == [
        "DELTA frame at byte 0, 2620 bytes",
        "  format       1",
        "  codec        1 (Raw)",
        "  flags        0x0",
        "  layout       c070f447d6c5f53c",
        "  versions     42 -> 43",
        f"  fingerprints 7385d0e2190aaa6a -> {fingerprint_after('delta_dense.frame')}",
        "  payload      2568 bytes",
        "  body         2568 bytes, 32.000000 bits per entry",
        "  n            642",
    ]


def fingerprint_after(name: str) -> str:
    return (GOLDEN / name).read_bytes()[32:40][::-1].hex()


def test_a_replay_is_described_delta_by_delta(capsys: pytest.CaptureFixture[str]) -> None:
    lines = described(capsys, "replay.frame")
    assert "  versions     41 -> 43" in lines
    assert lines[-3:] == [
        "  delta        codec 2 (GolombTernary), 58 bytes",
        "  delta        codec 1 (Raw), 2568 bytes",
        "  exact        51 bytes",
    ]


def test_a_key_frame_is_described_with_its_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    lines = described(capsys, "key.frame")
    assert "  vector       642 entries, 2568 bytes; exact tensors 51 bytes" in lines
    assert lines[-9:] == [
        "  tensor       'norm.num_batches_tracked' int64 () exact",
        "  tensor       'conv.weight' float32 (10, 3, 4, 5) compressed",
        "  tensor       'norm.running_var' float32 (10,) exact",
        "  tensor       'empty' float32 (0, 7) compressed",
        "  tensor       'half' float16 (20,) compressed",
        "  tensor       'double' float64 (3, 7) compressed",
        "  tensor       'scale' float32 () compressed",
        "  tensor       'mask' bool (3,) exact",
        "  tensor       'head.weight' float32 (3, 10) local",
    ]


def test_a_server_message_is_described_with_its_frames_and_the_delta_with_the_layout_of_the_key_frame(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = described(capsys, "plain.message")
    assert lines[0] == "SERVER MESSAGE 10, 3268 bytes, 2 frames"
    assert "  uplink       'stc(density=0.1)'" in lines
    assert "  leads to     version 42 (7385d0e2190aaa6a)" in lines
    assert "KEY frame at byte 68, 3039 bytes" in lines
    assert lines[-6:] == [
        "  body         58 bytes, 0.722741 bits per entry",
        "  n            642",
        "  k            65, 7.138 bits per kept entry",
        "  density      0.101246",
        "  magnitude    0.945282459",
        "  exact        51 bytes",
    ]


def test_a_delta_with_exact_tensors_needs_the_layout_of_a_key_frame(capsys: pytest.CaptureFixture[str]) -> None:
    assert described(capsys, "delta.frame")[-1].startswith("  body         only a key frame")


@pytest.mark.parametrize(("name", "kind"), [("update", "UPDATE"), ("ack", "ACK"), ("resync", "RESYNC")])
def test_a_reply_names_the_server_message_that_it_answers(
    name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = described(capsys, f"{name}.frame")
    assert lines[0].startswith(f"{kind} frame at byte 0, ")
    assert "  answers      server message 9" in lines
    assert ("  seconds      0.250000 to encode, 0.500000 to decode" in lines) == (name == "update")


def test_a_frame_of_an_unknown_codec_is_described_without_its_body() -> None:
    lines = list(describe(Frame(Kind.DELTA, 200, 0, 1, 2, 3, 4, 5, b"body").to_bytes()))
    assert "  codec        200 (unknown here)" in lines
    assert lines[-1] == "  payload      4 bytes"


def test_control_characters_in_a_tensor_name_are_escaped() -> None:
    arrays = {"\x1b[31mred\ud800": np.ones(1, np.float32)}
    text = "\n".join(describe(start_replica(layout_of(arrays), arrays).key_frame().to_bytes()))
    assert r"'\x1b[31mred\ud800'" in text
    assert text.isascii()


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = (GOLDEN / "ack.frame").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data + data)))
    assert main(["-"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert heads == ["ACK frame at byte 0, 52 bytes", "ACK frame at byte 52, 52 bytes"]


@pytest.mark.parametrize(
    ("data", "pattern"),
    [
        (b"", "damaged: .*52"),
        (b"text" * 20, "unknown here: .*FCMP"),
        (b"FCIN", "damaged: 4 bytes.*52"),
        ((GOLDEN / "delta.frame").read_bytes()[:-1], "damaged: 108 bytes.*109"),
        ((GOLDEN / "resync.frame").read_bytes()[:-1] + b"\0", "damaged: .*CRC32"),
        ((GOLDEN / "resync.frame").read_bytes() + b"\n", "damaged: 1 bytes.*52"),
    ],
)
def test_a_damaged_file_gives_one_line_and_exit_code_1(
    data: bytes, pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.frame"
    path.write_bytes(data)
    assert main([str(path)]) == 1
    assert re.fullmatch(f"fedcomp: {re.escape(str(path))}: {pattern}.*\n", capsys.readouterr().err)


def test_a_missing_file_gives_one_line_and_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, sentence in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a directory")):
        assert main([str(path)]) == 1
        assert capsys.readouterr().err == f"fedcomp: {path}: {sentence}\n"


def test_python_m_fedcomp_runs() -> None:
    command = [sys.executable, "-m", "fedcomp"]
    data = (GOLDEN / "ack.frame").read_bytes()
    done = subprocess.run([*command, "-"], input=data, capture_output=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"ACK frame at byte 0, 52 bytes")
    done = subprocess.run([*command, "nowhere"], capture_output=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"fedcomp: nowhere: ")


def test_the_list_of_methods_has_three_lines_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = lines[4::3]
    assert [line.split()[0] for line in heads] == list(fedcomp.METHODS)
    assert all(line.startswith("    ") for line in lines[5::3] + lines[6::3])
    stc = next(line for line in heads if line.startswith("stc "))
    assert stc.split()[1:] == ["0.0175", "0.959", "yes", "yes", "residual"]


def test_the_list_of_training_plug_ins_has_four_lines_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["training"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[0:-2:4]] == sorted(PLUGINS)
    assert [line.removeprefix("    measured: ") for line in lines[3:-2:4]] == [
        PLUGINS.about(name).measured for name in sorted(PLUGINS)
    ]
    start = lines.index("    mu=0.01")
    assert lines[start - 1].split()[0] == "fedprox"
    assert lines[start + 1] == "    Li et al., MLSys 2020"
    assert max(map(len, lines)) <= 120


def test_the_pages_of_training_have_what_was_measured_of_each_plug_in_and_tables_with_its_numbers() -> None:
    page = "\n".join(path.read_text() for path in sorted((ROOT / "docs" / "how-to" / "training").glob("*.md")))
    for name in PLUGINS:
        measured = PLUGINS.about(name).measured
        line = f"| `{name}` | {measured} |\n"
        assert line in page
        others = set(re.findall(r"\d+\.\d+", page.replace(line, "")))
        assert set(re.findall(r"\d+\.\d+", measured)) - others == set()


def test_the_page_of_methods_is_what_the_program_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "--markdown"]) == 0
    page = (ROOT / "docs" / "reference" / "methods.md").read_text()
    assert capsys.readouterr().out == page, "fedcomp methods --markdown > docs/reference/methods.md"


def test_the_demo_compares_runs_of_plain_flower_and_of_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "dense()", "eden(bits=1)", "--rounds", "2"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    plain, dense, eden = (line.split() for line in captured.out.splitlines()[4:7])
    assert plain[:6] == ["plain", "Flower", "1.56", "MB", "1.0x", "1.56"]  # 2 rounds of 20 models of 38,952 bytes
    assert (dense[0], eden[0]) == ("dense()", "eden(bits=1)")
    assert dense[7:9] == plain[8:10], "the same accuracy"
    assert float(eden[3].rstrip("x")) > 20
    assert float(eden[6].rstrip("x")) > 20, "nodes make the first model themselves"
    assert max(map(len, captured.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["stcc"], "unknown method 'stcc'; there are: .*stc"),
        (["ef21"], "ef21.* does not work as downlink"),
        (["--rounds", "0"], "rounds is 0; .* 1 to 100000"),
    ],
)
def test_a_demo_that_cannot_run_is_one_sentence(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(f"fedcomp: demo: .*{says}.*\n", captured.err)


def test_a_demo_whose_nodes_fail_shows_no_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lossy(LocalGrid):
        def get_node_ids(self) -> Iterable[int]:
            for node in self.contexts:
                self.order(node, Fault.LOSE_REPLY)
            return super().get_node_ids()

    monkeypatch.setattr(demo, "LocalGrid", Lossy)
    with pytest.raises(RuntimeError, match="only 0 of 1 rounds"):
        demo.run(None, rounds=1)


def test_without_flower_the_demo_says_what_installs_it() -> None:
    program = "import sys; sys.modules['flwr'] = None; from fedcomp.__main__ import main; sys.exit(main(['demo']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"fedcomp: demo: .*pip install '\.\[flower\]' installs it\n", done.stderr)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_subcommand_has_a_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(f"usage: fedcomp {name} [-h]")
    assert re.search(f"^ *fedcomp {name}\\b", text, re.MULTILINE), "an example"


def test_the_help_names_every_subcommand_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if re.match("  [a-z]", line)][-len(COMMANDS) :] == list(COMMANDS)
    assert sum(line.startswith(" " * 15 + "fedcomp ") for line in lines) == len(COMMANDS)
    assert max(map(len, lines)) <= 100


def test_without_a_subcommand_one_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert capsys.readouterr().err.endswith("the following arguments are required: COMMAND, ...\n")


def test_a_name_that_is_nearly_a_subcommand_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["mehtods"])
    assert capsys.readouterr().err.endswith("'mehtods' is neither a command nor a file; did you mean 'methods'?\n")


def test_a_file_is_shown_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demos").write_bytes((GOLDEN / "ack.frame").read_bytes())
    assert main(["demos"]) == main(["show", "demos"]) == 0
    assert capsys.readouterr().out.count("ACK frame") == 2


def test_without_the_app_its_subcommands_say_where_they_belong() -> None:
    """The wheel has neither `experiments` nor `deploy`."""
    program = f"""import sys
sys.modules.update(dict.fromkeys(("experiments", "deploy")))
from fedcomp.__main__ import main
print([main([name, "--help"]) for name in {list(IN_FOLDER)!r}])"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout == f"{[1] * len(IN_FOLDER)}\n"
    for name, line in zip(IN_FOLDER, done.stderr.splitlines(), strict=True):
        assert re.fullmatch(f"fedcomp: {name}: it belongs to fedcomp's app, .*`make install` .*", line)


def test_a_library_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "experiments.compare", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["compare", "runs/a", "runs/b"]) == 1
    assert re.fullmatch("fedcomp: compare: it needs matplotlib.*; `make install` in .*\n", capsys.readouterr().err)
    monkeypatch.delitem(sys.modules, "fedcomp.commands.export", raising=False)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    assert main(["export", "a.npz", "b"]) == 1
    assert capsys.readouterr().err.endswith(
        "it needs safetensors, which is not installed; pip install safetensors installs it\n"
    )


def test_ctrl_c_ends_a_subcommand_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> Iterator[str]:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedcomp.commands.demo.report", interrupted)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == ""


def test_a_closed_pipe_ends_a_list_without_a_traceback() -> None:
    lister = [sys.executable, "-m", "fedcomp", "methods"]
    with subprocess.Popen(lister, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_full_disk_is_one_sentence() -> None:
    """/dev/full takes nothing, as a full disk does."""
    for name in ("methods", "doctor"):
        with Path("/dev/full").open("w") as full:
            command = [sys.executable, "-m", "fedcomp", name]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=ROOT, check=False)
        assert (done.returncode, done.stderr) == (
            1,
            f"fedcomp: {name}: No space left on device\n".encode(),
        )


def test_a_full_disk_of_a_file_keeps_what_was_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> Iterator[str]:
        print("half", end="")
        raise OSError(errno.ENOSPC, "No space left on device", "/data/model.npz")
        yield

    monkeypatch.setattr("fedcomp.commands.demo.report", full)
    assert main(["demo"]) == 1
    print("the caller")
    assert capsys.readouterr() == ("halfthe caller\n", "fedcomp: demo: /data/model.npz: No space left on device\n")


@pytest.mark.parametrize("redirection", [">&-", "| cat"])
def test_a_list_needs_neither_an_output_nor_unicode(redirection: str) -> None:
    """The papers have authors such as Horváth."""
    command = f"set -o pipefail; PYTHONIOENCODING=ascii '{sys.executable}' -m fedcomp methods {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("Horv\\xe1th" in done.stdout) == ("cat" in redirection)
