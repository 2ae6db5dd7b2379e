"""Run one node of a graph, without a server.

fedcomp gossip node.toml
"""

import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcomp.commands import new_parser, path_of
from fedcomp.errors import CorruptError
from fedcomp.gossip.peers import RefusedError, read_settings, run

REFUSED, INTERRUPTED, TERMINATED = 2, 130, 143


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 2 after one sentence if the node cannot run, or 130 for Ctrl-C."""
    parser = new_parser("fedcomp gossip", __doc__)
    text = (
        "the TOML file of the node; the module of its task may be next to it; docs/how-to/gossip.md lists the settings"
    )
    parser.add_argument("settings", type=path_of, help=text)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(TERMINATED))
    path: Path = parser.parse_args(arguments).settings
    sys.path.append(str(path.parent.absolute()))  # for the module of the task
    try:
        run(read_settings(path), _print)
    except (ValueError, OSError, CorruptError, RefusedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _print(row: Mapping[str, Any]) -> None:
    used = ", ".join(map(str, row["used"])) or "nobody"
    accuracy = "" if row["accuracy"] is None else f", accuracy {100 * row['accuracy']:.1f} %"
    sent, received = (row.get(name, 0) for name in ("uplink_bytes", "downlink_bytes"))
    print(f"round {row['round']}: mixed with {used}; sent {sent} bytes, received {received}{accuracy}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
