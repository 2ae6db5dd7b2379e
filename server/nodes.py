"""Waiting for nodes, for as long as asked and no longer: Flower's own sampling would wait for ever."""

import time

from flwr.serverapp import Grid

POLL_S = 0.2


def wait_for_nodes(grid: Grid, least: int, timeout_s: float) -> int:
    """Return the number of connected nodes once it is `least`; raise `ValueError` if it is not after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while (connected := len(list(grid.get_node_ids()))) < least:
        if time.monotonic() >= deadline:
            raise ValueError(f"{connected} nodes are connected after {timeout_s:g} s; min-nodes asks for {least}")
        time.sleep(POLL_S)
    return connected
