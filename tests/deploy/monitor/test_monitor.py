"""Monitoring a run: the view of a run that goes on or has ended, the metrics, and the folders that are refused."""

import io
import json
import math
import os
import pty
import socket
import termios
import threading
import time
import urllib.request
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from flwr.app import Context, RecordDict
from rich.console import Console

from clients.app import app as client_app
from deploy.monitor.__main__ import POLL_S, main, watch
from deploy.monitor.keyboard import keyboard
from deploy.monitor.snapshot import RunSnapshot, read_run
from deploy.monitor.tui import ORDERS, Position, most_above, render
from fedcomp.flower import LocalGrid
from fedcomp.sync import Traffic
from server.app import app as server_app
from server.folder import RunFolder
from server.run_records import NodeStatus, RoundRecord, to_row

SETTINGS = {
    "dataset": "digits",
    "model": "mlp",
    "strategy": "fedavg",
    "num-rounds": 12,
    "uplink": "stc()",
    "downlink": "dense()",
}
NODES = 5
PATIENCE_S = 60.0


TRAFFIC = Traffic(1_000, 20_000, 15_000, 300_000, 330_000, jump_bytes=12_000, delta_bytes=4_500)


def record(number: int, **changes: Any) -> RoundRecord:
    return replace(RoundRecord(number, 0.875, 0.5, TRAFFIC, seconds=2.0), **changes)


VIEW = RunSnapshot(
    "mine",
    SETTINGS,
    (RoundRecord(0, 0.875, 0.5, seconds=2.0), *map(record, range(1, 5))),
    (),
    "running",
    12,
    4,
    3.0,
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run that has begun."""
    folder = RunFolder(tmp_path / "mine")
    folder.path.mkdir()
    folder.write_json("settings.json", SETTINGS)
    return folder


def write_status(folder: RunFolder, state: str, *nodes: NodeStatus) -> None:
    value = {"state": state, "num_rounds": 12, "version": 4, "nodes": [to_row(row) for row in nodes]}
    folder.write_json("nodes.json", value)


def text_of(view: RunSnapshot, width: int = 100, height: int | None = None) -> list[str]:
    """Return the lines of the screen, without the blanks at their ends."""
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(render(view, height))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_the_view_shows_progress_bytes_and_the_status_of_each_node() -> None:
    nodes = (
        NodeStatus(11, 0, 3, 4, traffic=Traffic(2_000, 9_000, 7_500)),
        NodeStatus(12, 1, None, None, True, Traffic(0, 5_000, 5_000, missing=2)),
        NodeStatus(13, None, 4, 5, traffic=Traffic(refused=1, failed=1)),
    )
    rounds = (*VIEW.rounds[:4], record(4, accuracy=None, loss=None, seconds=61.0, traffic=replace(TRAFFIC, missing=1)))
    assert text_of(replace(VIEW, nodes=nodes, rounds=rounds)) == [
        "mine  digits, mlp, fedavg",
        "up stc(), down dense()",
        "running: round 4 of 12, version 4, 16 s left, last news 3 s ago",
        "sent: up 4.0 kB, down 80.0 kB (first models 0 B, catch-up 60.0 kB); dense 2.5 MB, ratio 30.0",
        "down in key frames 0 B, jumps 48.0 kB, single deltas 18.0 kB, replays 0 B",
        "accuracy ████ 87.5%, best 87.5%",
        "",
        "round  accuracy   loss      up     down  catch-up  ratio        time  lost replies",
        "    0     87.5%  0.500     0 B      0 B       0 B      -       2.0 s",
        "    1     87.5%  0.500  1.0 kB  20.0 kB   15.0 kB   30.0       2.0 s",
        "    2     87.5%  0.500  1.0 kB  20.0 kB   15.0 kB   30.0       2.0 s",
        "    3     87.5%  0.500  1.0 kB  20.0 kB   15.0 kB   30.0       2.0 s",
        "    4         -      -  1.0 kB  20.0 kB   15.0 kB   30.0  1 min 01 s  1 missing",
        "",
        "node      part      up    down  catch-up   version     seen  lost replies",
        "12           1     0 B  5.0 kB    5.0 kB  none yet        -  2 missing; absent",
        "13           -     0 B     0 B       0 B         4  round 5  1 failed, 1 refused",
        "11           0  2.0 kB  9.0 kB    7.5 kB    3 (-1)  round 4",
    ]


def fetch(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as reply:
        text: str = reply.read().decode()
    return text


def test_the_compressors_that_were_chosen_are_shown() -> None:
    rounds = (record(1, uplink="eden(bits=0.5)", downlink="stc(density=0.01)"), record(2))
    settings = SETTINGS | {"uplink": "auto", "downlink": "balanced(stc(density=0.05))"}
    line = text_of(replace(VIEW, settings=settings, rounds=rounds[:1]))[1]
    assert line == "up auto: eden(bits=0.5), down balanced(stc(density=0.05)): stc(density=0.01)"
    assert text_of(replace(VIEW, settings=settings, rounds=rounds))[1] == "up auto, down balanced(stc(density=0.05))"


def test_lines_fit_a_narrow_screen_and_rows_a_low_one() -> None:
    nodes = tuple(
        NodeStatus(10**19 + number, number, 3, 4, traffic=Traffic(missing=int(number % 10 == 9)))
        for number in range(1000)
    )
    rounds = tuple(record(number, traffic=replace(TRAFFIC, failed=number % 2)) for number in range(100))
    lines = text_of(replace(VIEW, nodes=nodes, rounds=rounds), width=80, height=24)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "994 more nodes, 94 of them with lost replies"
    assert any(line.startswith("   99     87.5%") for line in lines)
    assert sum("1 missing" in line for line in lines) == 6


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ("completed", "completed: round 4 of 12, version 4"),
        ("failed", "failed after round 4 of 12, version 4: its log has the reason"),
        ("stopped", "stopped after round 4 of 12, version 4; it kept no checkpoint to continue from"),
    ],
)
def test_a_run_that_has_ended_says_how(state: str, line: str) -> None:
    assert text_of(replace(VIEW, state=state))[2] == line


def test_a_run_that_has_failed_says_why_and_one_that_was_stopped_how_to_continue() -> None:
    failed = text_of(replace(VIEW, state="failed", reason="no node answers"))
    assert failed[2] == "failed after round 4 of 12, version 4: no node answers"
    kept = replace(VIEW, state="stopped", settings=VIEW.settings | {"checkpoint-every": 1})
    assert text_of(kept)[2] == f"stopped after round 4 of 12, version 4; resume=true run-name={VIEW.name} continues it"
    gossip = replace(VIEW, state="stopped", settings={"neighbors": {"1": "127.0.0.1:9101"}})
    assert text_of(gossip)[2] == "stopped after round 4 of 12, version 4; the same command continues it"
    begun = replace(VIEW, state="stopped", rounds=(), version=None)
    assert text_of(begun)[2] == f"stopped after round 0 of 12; resume=true run-name={VIEW.name} continues it"
    split = replace(begun, settings=VIEW.settings | {"split": "split()"})
    assert text_of(split)[2] == "stopped after round 0 of 12; it kept no checkpoint to continue from"


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([math.nan, 0.5, math.inf], "accuracy █ 50.0%, best 50.0%"),
        ([-90.0, 0.5, 1.0], "accuracy ▁▅█ 100.0%, best 100.0%"),
        ([-4.0, -2.0], "accuracy ▁▁ -200.0%, best -200.0%"),
        ([0.0, 0.0], "accuracy ▁▁ 0.0%, best 0.0%"),
    ],
)
def test_an_accuracy_that_is_no_share_is_shown(values: list[float], line: str) -> None:
    rounds = tuple(record(number, accuracy=value) for number, value in enumerate(values))
    assert text_of(replace(VIEW, rounds=rounds))[5] == line


def test_a_run_that_has_just_started_is_shown() -> None:
    lines = text_of(RunSnapshot("new", {}, (), (), "running", 12, None, 0.0))
    assert lines[2] == "running: round 0 of 12, last news 0 s ago"
    assert lines[-1] == "nothing is known of the nodes yet"


def test_only_whole_lines_are_read_as_they_come(folder: RunFolder) -> None:
    assert read_run(folder.path).rounds == ()
    folder.append(record(0))
    folder.append(record(1))
    assert read_run(folder.path).rounds == (record(0), record(1))
    line = json.dumps(to_row(record(2)))
    with folder.rounds.open("a") as file:
        file.write(line[:30])
        file.flush()
        assert read_run(folder.path).rounds == (record(0), record(1))
        file.write(line[30:] + "\n")
    assert read_run(folder.path).rounds == (record(0), record(1), record(2))


def test_only_new_lines_are_parsed_and_a_resumed_run_is_read_again(folder: RunFolder) -> None:
    for number in range(5):
        folder.append(record(number))
    before = read_run(folder.path)
    folder.append(record(5))
    assert read_run(folder.path, replace(before, rounds=(record(7),))).rounds == (record(7), record(5))
    folder.keep_rounds(2)
    for number in range(3, 9):
        folder.append(record(number, loss=0.25))
    assert [one.loss for one in read_run(folder.path, before).rounds] == 3 * [0.5] + 6 * [0.25]


def test_missing_fields_have_defaults_and_unknown_ones_are_ignored(folder: RunFolder) -> None:
    line = {key: value for key, value in to_row(record(1)).items() if key not in ("failed", "missing")}
    folder.rounds.write_text(json.dumps(line | {"something": "new"}) + "\n")
    assert read_run(folder.path).rounds == (record(1),)
    assert read_run(folder.path).state == "running"
    folder.write_json("summary.json", {})
    assert read_run(folder.path).state == "completed"


@pytest.mark.system
def test_the_view_is_updated_until_the_run_ends(folder: RunFolder) -> None:
    write_status(folder, "running")
    screen = io.StringIO()
    console = Console(file=screen, width=100, height=30, force_terminal=True, color_system=None)
    watching = threading.Thread(target=watch, args=(folder.path, console), kwargs={"once": False})
    watching.start()
    shown = threading.Event()
    for number in range(5):
        folder.append(record(number))
    while "round 4 of 12" not in screen.getvalue():
        assert watching.is_alive()
        shown.wait(0.05)
    write_status(folder, "completed", NodeStatus(7, 0, 4, 4))
    watching.join(PATIENCE_S)
    assert not watching.is_alive()
    last = screen.getvalue().rpartition("completed: round 4 of 12")[2]
    assert "7            0" in last


@pytest.mark.usefixtures("undrawn")
def test_a_real_run_is_shown(config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = {"num-rounds": 3, "min-nodes": NODES, "fraction-train": 1.0, "model": "logistic", "run-name": "run"}
    config |= run | {"runs-dir": str(tmp_path)}
    grid = LocalGrid(client_app, NODES, config)
    server_app(grid, Context(1, 0, {}, RecordDict(), config))
    assert main([str(tmp_path / "run")]) == 0
    output = capsys.readouterr().out
    assert "completed: round 3 of 3, version 3" in output
    view = read_run(tmp_path / "run")
    assert [(row.node, row.partition, row.version, row.heard) for row in view.nodes] == [
        (node, node - 1, 2, 3) for node in range(1, NODES + 1)
    ]
    assert (
        sum(row.traffic.uplink_bytes for row in view.nodes) == sum(one.traffic.uplink_bytes for one in view.rounds) > 0
    )
    assert (
        sum(row.traffic.downlink_bytes for row in view.nodes)
        == sum(one.traffic.downlink_bytes for one in view.rounds)
        > 0
    )


def test_a_folder_without_a_run_is_refused_in_one_sentence(
    folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for path, reason in (
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path / "empty", "no settings.json"),
        (tmp_path, f"1 run; name one of them, such as {folder.path}"),
    ):
        assert main([str(path)]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"error: {path} ")
        assert reason in error
        assert error.count("\n") == 1


def test_of_several_runs_the_newest_is_named(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    older = RunFolder(folder.path.parent / "older")
    older.path.mkdir()
    older.write_json("settings.json", SETTINGS)
    for place, newest in enumerate((folder, older, folder)):
        os.utime(newest.path, (2**31 + place, 2**31 + place))
        assert main([str(folder.path.parent)]) == 1
        assert f"2 runs; name one of them, such as {newest.path}" in capsys.readouterr().err


def test_a_run_is_idle_since_the_newest_of_its_files(folder: RunFolder) -> None:
    write_status(folder, "running")
    os.utime(folder.settings, (0, 0))
    assert 0 <= read_run(folder.path).idle_s < PATIENCE_S


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("settings.json", "{"),
        ("settings.json", "[]"),
        ("nodes.json", "3"),
        ("nodes.json", '{"nodes": 3}'),
        ("nodes.json", '{"nodes": [3]}'),
        ("nodes.json", '{"nodes": [{"partition": 3}]}'),
        ("nodes.json", '{"nodes": [], "num_rounds": "many"}'),
        ("rounds.jsonl", "not a round\n"),
        ("rounds.jsonl", '{"round": 3}\n'),
    ],
)
def test_damaged_files_are_refused_in_one_sentence(
    folder: RunFolder, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.path / name).write_text(text)
    assert main([str(folder.path), "--once"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {folder.path / name}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("order", "first"), [("lost replies", 3), ("up", 2), ("down", 1), ("catch-up", 1), ("version", 3), ("node", 1)]
)
def test_the_nodes_are_sorted_by_the_column_that_is_chosen(order: str, first: int) -> None:
    nodes = (
        NodeStatus(1, version=4, traffic=Traffic(10, 30, 5)),
        NodeStatus(2, version=3, traffic=Traffic(20, 20)),
        NodeStatus(3, version=2, absent=True, traffic=Traffic(5, 10)),
    )
    console = Console(file=io.StringIO(), width=100)
    console.print(render(replace(VIEW, nodes=nodes), position=Position(order)))
    lines = cast(io.StringIO, console.file).getvalue().splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("node"))
    assert lines[head + 1].split()[0] == str(first)


def test_keys_sort_and_scroll_a_thousand_nodes_and_others_do_nothing() -> None:
    position = Position()
    for key, above in (("j", 1), (" ", 21), ("x", 21), ("", 21), ("k", 20), ("b", 0), ("k", 0), ("G", 990), ("g", 0)):
        position = position.after(key, 990)
        assert position.above == above, key
    orders = []
    for _ in ORDERS:
        position = position.after("j", 1000).after("s", 1000)
        orders.append(position)
    assert orders[-1] == Position()
    assert {each.order for each in orders} == set(ORDERS)
    view = replace(VIEW, nodes=tuple(NodeStatus(node) for node in range(1000)))
    console = Console(file=io.StringIO(), width=100)
    console.print(render(view, 40, Position("node", 999)))
    text = cast(io.StringIO, console.file).getvalue()
    lines = text.splitlines()
    above = most_above(view, 40)
    assert [line.split()[0] for line in lines[-1001 + above : -1]] == [str(node) for node in range(above, 1000)]
    assert lines[-1] == f"{above} more nodes, none with lost replies; {above} of them above; sorted by node"
    console.print(render(view, 40, Position("node", above).after("k", above)))
    assert cast(io.StringIO, console.file).getvalue().splitlines()[-2].split()[0] == "998", (
        "one key back is one node back"
    )


def test_keys_are_read_from_a_terminal_without_a_newline_and_its_mode_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far, near = pty.openpty()
    with os.fdopen(near) as terminal:
        before = termios.tcgetattr(terminal)
        monkeypatch.setattr("sys.stdin", terminal)
        with keyboard() as wait:
            assert wait(0.0) == ""
            os.write(far, b"s")
            assert wait(PATIENCE_S) == "s"
        assert termios.tcgetattr(terminal) == before
    os.close(far)


@pytest.mark.parametrize("stdin", [io.StringIO("sss"), None])
def test_without_a_terminal_no_key_is_read(stdin: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    with keyboard() as wait:
        assert wait(0.0) == ""


def test_in_the_background_the_terminal_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system would stop a background process that changes the terminal's mode."""
    far, near = pty.openpty()
    with os.fdopen(near) as terminal:
        before = termios.tcgetattr(terminal)
        monkeypatch.setattr("sys.stdin", terminal)
        monkeypatch.setattr("os.tcgetpgrp", lambda _: os.getpgrp() + 1)
        with keyboard() as wait:
            assert termios.tcgetattr(terminal) == before
            os.write(far, b"s")
            assert wait(0.0) == ""
    os.close(far)


def test_q_ends_the_monitor_while_the_run_goes_on(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    write_status(folder, "running", NodeStatus(11))
    far, near = pty.openpty()
    with os.fdopen(near) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)

        def press() -> None:
            while termios.tcgetattr(terminal)[3] & termios.ICANON:  # a key before the change of mode is discarded
                time.sleep(0.01)
            os.write(far, b"q")

        thread = threading.Thread(target=press)
        thread.start()
        watch(folder.path, Console(file=io.StringIO(), width=100, height=30, force_terminal=True), once=False)
        thread.join(PATIENCE_S)
    os.close(far)


def test_the_command_serves_each_node_on_request_and_goes_on_after_the_run_has_failed(folder: RunFolder) -> None:
    pytest.importorskip("prometheus_client")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder.append(record(1))
    write_status(folder, "running", NodeStatus(11, traffic=Traffic(1234)))
    statuses: list[int] = []
    arguments = [str(folder.path), "--prometheus", str(port), "--per-node"]
    thread = threading.Thread(target=lambda: statuses.append(main(arguments)))
    thread.start()
    try:
        lines = list[str]()
        while not lines and thread.is_alive():
            with suppress(OSError):  # until it listens
                lines = fetch(port).splitlines()
            thread.join(0.05)
        assert 'fedcomp_node_uplink_bytes_total{node="11"} 1234.0' in lines
        folder.append(record(2))
        assert "fedcomp_round 2.0" in fetch(port).splitlines()
        write_status(folder, "failed", NodeStatus(11))
        thread.join(3 * POLL_S)
        assert thread.is_alive(), "the alert of a failed run needs a scrape after its end"
        assert 'fedcomp_state{state="failed"} 1.0' in fetch(port).splitlines()
    finally:
        folder.settings.unlink()  # ends it in a thread, where Ctrl-C does not arrive
        thread.join(PATIENCE_S)
    assert statuses == [1]


def test_a_port_that_is_taken_is_one_sentence(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("prometheus_client")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([str(folder.path), "--prometheus", str(port)]) == 1
    assert capsys.readouterr().err.startswith(f"error: cannot listen on 127.0.0.1:{port}: ")
