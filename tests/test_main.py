"""``python -m fedcomp FRAME`` says what a frame holds, and what is wrong with a damaged one."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedcomp.__main__ import describe, main
from fedcomp.sync.replica import start_replica
from fedcomp.wire.frame import Frame, Kind
from fedcomp.wire.layout import layout_of

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"


def said(capsys: pytest.CaptureFixture[str], name: str) -> list[str]:
    assert main([str(GOLDEN / name)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


def test_a_delta_is_told_field_by_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "delta_dense.frame") == [
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


def test_a_key_frame_is_told_with_its_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "key.frame")
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


def test_an_instruction_is_told_with_its_frames_and_the_delta_with_the_layout_of_the_key_frame(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = said(capsys, "message.instruction")
    assert lines[0] == "INSTRUCTION 10, 3268 bytes, 2 frames"
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


def test_a_delta_whose_body_cannot_be_told_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "delta.frame")[-1].startswith("  body         cannot be told from the exact tensors")


@pytest.mark.parametrize(("name", "kind"), [("update", "UPDATE"), ("held", "ACK"), ("lost", "RESYNC")])
def test_a_nodes_frame_names_the_instruction_that_it_answers(
    name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = said(capsys, f"{name}.frame")
    assert lines[0].startswith(f"{kind} frame at byte 0, ")
    assert "  answers      instruction 9" in lines
    assert ("  seconds      0.250000 to encode, 0.500000 to decode" in lines) == (name == "update")


def test_an_unknown_codec_is_named_and_the_rest_is_told() -> None:
    lines = list(describe(Frame(Kind.DELTA, 200, 0, 1, 2, 3, 4, 5, b"body").to_bytes()))
    assert "  codec        200 (not known here)" in lines
    assert lines[-1] == "  payload      4 bytes"


def test_a_name_that_would_paint_the_terminal_is_written_harmlessly() -> None:
    arrays = {"\x1b[31mred\ud800": np.ones(1, np.float32)}
    text = "\n".join(describe(start_replica(layout_of(arrays), arrays).key_frame().to_bytes()))
    assert r"'\x1b[31mred\ud800'" in text
    assert text.isascii()


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = (GOLDEN / "held.frame").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data + data)))
    assert main(["-"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert heads == ["ACK frame at byte 0, 52 bytes", "ACK frame at byte 52, 52 bytes"]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "damaged: 0 bytes; a frame's head needs 52"),
        (b"text" * 20, "not known here: the bytes begin with b'text'; a frame begins with b'FCMP'"),
        (b"FCIN", "damaged: 4 bytes; an instruction's head needs 52"),
        ((GOLDEN / "delta.frame").read_bytes()[:-1], "damaged: 108 bytes of payload; the head promises 109"),
        ((GOLDEN / "lost.frame").read_bytes()[:-1] + b"\0", "damaged: the frame's CRC32 does not fit its bytes"),
        ((GOLDEN / "lost.frame").read_bytes() + b"\n", "damaged: 1 bytes; a frame's head needs 52"),
    ],
)
def test_damage_is_one_sentence_and_exit_code_1(
    data: bytes, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.frame"
    path.write_bytes(data)
    assert main([str(path)]) == 1
    assert capsys.readouterr().err == f"fedcomp: {path}: {sentence}\n"


def test_a_file_that_is_not_there_is_one_sentence_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, sentence in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a directory")):
        assert main([str(path)]) == 1
        assert capsys.readouterr().err == f"fedcomp: {path}: {sentence}\n"


def test_the_module_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "fedcomp"]
    data = (GOLDEN / "held.frame").read_bytes()
    done = subprocess.run([*command, "-"], input=data, capture_output=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"ACK frame at byte 0, 52 bytes")
    done = subprocess.run([*command, "nowhere"], capture_output=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"fedcomp: nowhere: ")
