"""Waiting for nodes, up to a time limit: Flower's own sampling waits without one."""

import time

from flwr.serverapp import Grid

POLL_S = 0.2


def wait_for_nodes(grid: Grid, min_nodes: int, timeout_s: float) -> int:
    """Return the number of connected nodes once it is `min_nodes`; raise `ValueError` after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while (connected := len(list(grid.get_node_ids()))) < min_nodes:
        if time.monotonic() >= deadline:
            raise ValueError(f"{connected} nodes are connected after {timeout_s:g} s; min-nodes is {min_nodes}")
        time.sleep(POLL_S)
    return connected
