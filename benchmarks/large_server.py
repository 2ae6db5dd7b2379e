"""Time and memory of a server's rounds at scale: many nodes, a large model, one core.

    python -m benchmarks.large_server [--nodes 10000] [--per-round 1000] [--entries 11200000] [--link 'stc(density=0.0025)']
    python -m benchmarks.large_server --nodes 50000 --rounds 110 --last 3  # nodes that missed a hundred versions

The server is `CompressedStrategy` around FedAvg with all that it does in a round: messages, checks, decoding, mean and
publication.  The nodes train nothing: each answers with one of a few updates that the compressor made of normally distributed
changes, sealed for the message at hand; that takes no part of the seconds.  Nearly all nodes are new in the first rounds.
`starts` counts the different versions that the nodes of a round hold.  A resident size is the peak of the process so far.
"""

import argparse
import itertools
import logging
import resource
import time
from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedcomp
from benchmarks.measurement import print_table
from fedcomp.flower import CompressedStrategy, LocalGrid, Round, records, to_record
from fedcomp.wire import SECONDS, Frame, Kind, codec_id

DIFFERENT = 8
"""The number of different updates."""
TENSORS = 56


def model(entries: int) -> ArrayRecord:
    """Return a model of `entries` normally distributed weights."""
    weights = np.random.default_rng(1).standard_normal(entries, np.float32)
    return to_record({f"layer{number}": part for number, part in enumerate(np.array_split(weights, TENSORS))})


class Fleet(LocalGrid):
    """Nodes that answer each message of `strategy` with a valid update, in no time; `outside_s` is what they took after all.

    `starts` has the versions that the nodes of the last round held.
    """

    def __init__(self, nodes: int, link: fedcomp.Compressor, entries: int) -> None:
        super().__init__(ClientApp(), nodes)
        rng = np.random.default_rng(0)
        changes = (rng.standard_normal(entries, np.float32) * np.float32(1e-3) for _ in range(DIFFERENT))
        bodies = [link.encode(change, link.init(entries), 0)[0] for change in changes]
        self._payloads = itertools.cycle([SECONDS.pack(0, 0) + body for body in bodies])
        self._codec = codec_id(link.entropy)
        self.strategy: CompressedStrategy
        self.outside_s = 0.0
        self.starts = set[int]()

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Return the reply to each message."""
        begin = time.perf_counter()
        messages = list(messages)
        if messages:  # evaluation has none here
            self.starts = {self.strategy.publisher.nodes[each.metadata.dst_node_id].version for each in messages}
        replies = [self._reply(message) for message in messages]
        self.outside_s += time.perf_counter() - begin
        return replies

    def _reply(self, message: Message) -> Message:
        publisher = self.strategy.publisher
        version, number = publisher.replica, publisher.nodes[message.metadata.dst_node_id].number
        place = (version.version, version.version, version.layout.digest, version.fingerprint, number)
        update = Frame(Kind.UPDATE, self._codec, 0, *place, next(self._payloads))
        arrays, metrics = records.pack(update.to_bytes()), MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--per-round", type=int, default=1_000)
    parser.add_argument("--entries", type=int, default=11_200_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--last", type=int, help="show this number of rounds, the last ones (default: all)")
    parser.add_argument("--link", default="stc(density=0.0025)", help="the compressor of both directions")
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    link = fedcomp.parse(options.link)
    grid = Fleet(options.nodes, link, options.entries)
    rows: list[dict[str, object]] = []
    before, last = resident(), time.perf_counter()

    def add(done: Round) -> None:
        nonlocal last
        now = time.perf_counter()
        seconds, last, grid.outside_s = now - last - grid.outside_s, now, 0.0
        traffic = done.traffic
        sizes = {"down MB": traffic.downlink_bytes / 1e6, "up MB": traffic.uplink_bytes / 1e6}
        rows.append(
            {"round": done.number, "s": seconds, "starts": len(grid.starts), **sizes, "resident MiB": resident()}
        )

    inner = FedAvg(fraction_train=options.per_round / options.nodes + 1e-9, fraction_evaluate=0.0)
    grid.strategy = CompressedStrategy(inner, uplink=link, downlink=link, on_round=add)
    grid.strategy.start(grid, model(options.entries), num_rounds=options.rounds)
    size = f"{options.entries:,} entries, {options.per_round:,} of {options.nodes:,} nodes"
    shown = rows if options.last is None else rows[-options.last :]
    print_table(f"{link}, {size}; the nodes' updates and the libraries take {before} MiB", shown)


def resident() -> int:
    """Return the peak of the process's memory, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
