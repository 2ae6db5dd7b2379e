"""Waits for room: a full disk or too many open files does not end a node; its state is valid, and its neighbours continue."""

import errno
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

log = logging.getLogger("fedcomp.gossip")
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
"""Too many open files of this process or of this machine, a full disk, a file beyond its limit, and a full quota."""
WAIT_S = 1.0
REPEAT_S = 60.0
T = TypeVar("T")


def patiently(action: Callable[[], T], path: Path, wait: Callable[[float], object] = time.sleep) -> T:
    """Return the result of `action`; while there is no room for `path`, log this and try again.

    If `action` raises `OSError`, it must have changed nothing.  `wait` waits for a number of seconds.  Other errors are raised.
    """
    logged = -math.inf
    while True:
        try:
            result = action()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if time.monotonic() - logged >= REPEAT_S:
                text = "%s: %s; nothing is lost, and this node goes on when there is room again"
                log.warning(text, error.filename or path, error.strerror)
                logged = time.monotonic()
            wait(WAIT_S)
        else:
            if logged > -math.inf:
                log.info("%s: there is room again", path)
            return result
