"""What a node does while there is no room: it waits, says so once, and loses nothing."""

import errno
import logging
from pathlib import Path

import pytest

from fedcomp.gossip.peers.patience import NO_ROOM, WAIT_S, patiently


@pytest.mark.parametrize("number", NO_ROOM)
def test_an_action_without_room_is_tried_until_there_is_some(number: int, caplog: pytest.LogCaptureFixture) -> None:
    waits: list[float] = []
    caplog.set_level(logging.INFO)

    def action() -> str:
        if len(waits) < 3:
            raise OSError(number, "no room")
        return "done"

    assert patiently(action, Path("folder/state"), waits.append) == "done"
    assert waits == [WAIT_S] * 3
    first, last = (record.getMessage() for record in caplog.records)
    assert first.startswith("folder/state: no room; nothing is lost")
    assert last == "folder/state: there is room again"


def test_the_path_that_the_error_names_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    errors = [OSError(errno.ENOSPC, "full", "other/file")]

    def action() -> None:
        if errors:
            raise errors.pop()

    patiently(action, Path("folder"), lambda _: None)
    assert caplog.records[0].getMessage().startswith("other/file: full")


def test_other_errors_are_raised() -> None:
    def action() -> None:
        raise PermissionError(errno.EACCES, "denied", "file")

    with pytest.raises(PermissionError):
        patiently(action, Path("folder"))
