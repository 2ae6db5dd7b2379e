"""A program and its descendants are found, signalled and ended, by its mark, process id and start time."""

import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.environment import PORTS, free_ports
from deploy.program import Program, end, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="orphans are found by /proc alone")

Start = Callable[[str], Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a shell script as a program; after the test, none is left."""
    programs: list[Program] = []

    def run(script: str) -> Program:
        mark = f"{secrets.token_hex(16)}/part-{len(programs)}/"
        program = Program("script", mark, tmp_path / f"{len(programs)}.log")
        programs.append(program)
        program.start(["sh", "-c", script], tmp_path, dict(os.environ))
        return program

    yield run
    for program in programs:
        program.signal(signal.SIGKILL)
        program.collect()


def says(program: Program, line: str) -> bool:
    """Whether this becomes the last line of its log."""
    return wait_until(lambda: program.last_line() == line, 10)


def test_a_program_is_found_by_its_id_and_writes_its_log(start: Start) -> None:
    program = start("echo hello; exec sleep 1000")
    assert says(program, "hello")
    assert program.running()
    assert [process.pid for process in program.processes()] == [program.pid]


def test_descendants_that_left_their_parent_and_session_are_found(start: Start) -> None:
    program = start("setsid sleep 1000 & setsid sleep 1000 & exit 0")
    assert wait_until(lambda: not program.running(), 10)
    assert wait_until(lambda: len(program.processes()) == 2, 10)  # one that starts has no environment for a moment
    program.signal(signal.SIGKILL)
    assert wait_until(lambda: not program.processes(), 10)


def test_a_child_that_hides_its_environment_is_found_as_a_descendant(start: Start) -> None:
    program = start("env -i sleep 1000 & echo ready; wait")
    assert says(program, "ready")
    assert wait_until(lambda: len(program.processes()) == 2, 10)
    end([program], grace_s=0.5)
    assert not program.processes()


def test_a_program_with_a_similar_mark_is_not_ended(start: Start, tmp_path: Path) -> None:
    one = start("exec sleep 1000")
    tenth = Program("tenth", one.mark.removesuffix("/") + "0/", tmp_path / "tenth.log")
    tenth.start(["sleep", "1000"], tmp_path, dict(os.environ))
    end([one], grace_s=10)
    assert not one.processes()
    assert tenth.running()
    end([tenth], grace_s=10)
    assert not tenth.running()


def test_programs_that_ignore_sigterm_or_are_stopped_are_ended(start: Start) -> None:
    deaf = start("trap '' TERM; echo ready; while :; do sleep 1; done")
    stopped = start("echo ready; exec sleep 1000")
    for program in (deaf, stopped):
        assert says(program, "ready")
    stopped.signal(signal.SIGSTOP)
    end([deaf, stopped], grace_s=0.5)
    assert not deaf.processes() | stopped.processes()
    end([deaf, stopped], grace_s=0.5)  # again, it does nothing


def test_a_later_process_with_the_same_id_is_another_program(start: Start) -> None:
    program = start("exec sleep 1000")
    earlier = Program("earlier", f"{secrets.token_hex(16)}/", program.log, program.pid, program.start_time - 60)
    assert not earlier.running()
    end([earlier], grace_s=0.5)
    assert program.running()


def test_free_ports_are_different_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert all(port in PORTS for port in ports)


def test_more_ports_than_exist_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.environment.PORTS", range(20000, 20003))
    with pytest.raises(RuntimeError, match="3 free .*20000 to 20003; 4"):
        free_ports(4)


def test_the_last_line_of_a_box_is_all_that_is_in_it(start: Start) -> None:
    box = "before\\n╭─ Error ─╮\\n│ num-rounds  │\\n│ is too large. │\\n╰─────────╯\\n\\n"
    assert says(start(f"printf '{box}'"), "num-rounds is too large.")
    assert says(start(f"printf '{box}after\\n'"), "after")
    assert says(start("printf 'before\\n╭────╮\\n╰────╯\\n'"), "before")
