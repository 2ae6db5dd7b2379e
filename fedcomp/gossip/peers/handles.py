"""The number of connections that a node accepts, so that no stranger can use up its file handles.

A connection takes a handle before a certificate is seen.  Half of the handles of the process are for connections, at most
`MAX_CONNECTIONS`; the other half is for the node's files, its own calls and its task.
"""

import sys

if sys.platform != "win32":
    import resource

PER_NEIGHBOR = 4
"""Connections of a neighbour: one, a replacement for a lost connection, and the same for its tools."""
OTHER_CONNECTIONS = 32
"""For monitors, and for strangers whose handshake is not over: fewer would be easier to fill."""
MAX_CONNECTIONS = 2048
OWN_HANDLES = 128
"""For libraries, logs, the event loops of gRPC, files that are written, and files that a task opens."""
WINDOWS_HANDLES = 2048


def needed_handles(num_neighbors: int) -> int:
    """Return the number of files that a node with `num_neighbors` neighbours may have open at the same time."""
    return OWN_HANDLES + num_neighbors + PER_NEIGHBOR * num_neighbors + OTHER_CONNECTIONS


def max_connections(num_neighbors: int) -> int:
    """Return the number of connections that a node accepts, after raising the limit of open files of this process.

    The soft limit is raised towards the hard limit, so that half of it is enough for `MAX_CONNECTIONS`.  Raises `ValueError`
    if the node's neighbours alone need more.
    """
    limit = _raised_limit(2 * MAX_CONNECTIONS)
    if (needed := needed_handles(num_neighbors)) > limit:
        raise ValueError(
            f"this process may open {limit} files; a node with {num_neighbors} neighbours needs {needed} (ulimit -n, or "
            "LimitNOFILE of its systemd unit)"
        )
    least = PER_NEIGHBOR * num_neighbors + OTHER_CONNECTIONS
    return max(least, min(MAX_CONNECTIONS, limit // 2))


def _raised_limit(wanted: int) -> int:
    if sys.platform == "win32":
        return WINDOWS_HANDLES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
        soft = possible
    return soft
