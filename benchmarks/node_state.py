"""The cost of a node's state per round, in files (``state-dir``) and in ``Context.state``, relative to a dense message.

    python -m benchmarks.node_state [--entries 11200000]

A node reads its state when a message arrives and writes it before it answers.  The dense message is a plain model on
Flower's path without sockets: built from numpy arrays, split into objects, checked, reassembled and read as arrays.  It and
each way to keep the state alternate in this process, and the ratios are medians.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

import fedcomp
from benchmarks.measurement import paired_seconds, print_table
from fedcomp.flower.client.client_state import ClientState
from fedcomp.flower.client.context_store import ContextStore
from fedcomp.flower.client.state_folder import MAX_REPLAYED_FRAMES, StateFolder
from fedcomp.flower.compat import (
    check_object,
    record_from_bytes,
    record_from_objects,
    record_to_bytes,
    record_to_objects,
)
from fedcomp.sync import Publisher, Subscriber, start_replica
from fedcomp.wire import SECONDS, Frame, Kind, codec_id, layout_of

TENSORS = 60
"""The number of parameters of a ResNet-18."""


def node(entries: int) -> ClientState:
    """Return the state of a node between two rounds of STC 1/400 in both directions."""
    rng = np.random.default_rng(0)
    arrays = {f"layer.{i}": rng.standard_normal(entries // TENSORS, np.float32) for i in range(TENSORS)}
    publisher, stc = Publisher.begin(start_replica(layout_of(arrays), arrays)), fedcomp.stc(density=1 / 400)
    publisher.publish(publisher.replica.vector * np.float32(0.01), publisher.replica.exact, stc, seed=0)
    replica = publisher.replica  # as a node holds it: the origin of its steps, and their counts
    body, memory = stc.encode(replica.vector, stc.init(replica.layout.n), seed=0)
    here = (1, 1, replica.layout.digest, replica.fingerprint, 1)
    payload = SECONDS.pack(0, 0) + body
    pending = Frame(Kind.UPDATE, codec_id(stc.entropy), 0, *here, payload).to_bytes()
    return ClientState(Subscriber(replica, dict(memory), 1, pending, 1, str(stc), node=1), training_id=1)


def in_files(folder: Path) -> Callable[[ClientState], None]:
    """Return a function that writes a state to `folder` and reads it back."""

    def keep(state: ClientState) -> None:
        with StateFolder(folder, RecordDict()) as home:
            known = home.load(1)
            home.save(known if known.subscriber.replica else state)

    return keep


def in_context(state: ClientState) -> None:
    """Write a state to a ``Context.state``, send that to the SuperNode and back as Flower does, and read it."""
    records = RecordDict()
    ContextStore(records).save(state)
    ContextStore(record_from_bytes(record_to_bytes(records))).load(0)


def dense_message(state: ClientState) -> None:
    """Send the plain model of a state as Flower does, without sockets, and read it."""
    arrays = state.subscriber.held.arrays()
    content = RecordDict({"arrays": ArrayRecord({name: Array(array) for name, array in arrays.items()})})
    objects = record_to_objects(content)
    for object_id, data in objects.items():
        check_object(object_id, data)
    back = record_from_objects(content.object_id, objects)
    for array in back.array_records["arrays"].values():
        array.numpy()


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=11_200_000, help="of the model (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument(
        "--dir", default=None, help="the folder of the files (default: the system's folder for temporary files)"
    )
    options = parser.parse_args()
    state = node(options.entries)
    rows: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        ways = {
            "state-dir: read, written, flushed to the disk": in_files(Path(folder)),
            "Context.state: to the SuperNode and back": in_context,
        }
        for name, keep in ways.items():
            keep(state)  # a first round also writes the whole model
            pairs = paired_seconds(partial(dense_message, state), partial(keep, state), options.turns)
            ratio, mine = median(mine / dense for dense, mine in pairs), median(mine for _, mine in pairs)
            rows.append({"": name, "of a dense message": f"{ratio:.2f}", "seconds": f"{mine:.2f}"})
        model, written = (path.stat().st_size / 1e6 for path in sorted(Path(folder).glob("*/*")))
    print_table(f"a round of a node, {options.entries:,} entries, STC 1/400", rows)
    print(f"{written:.1f} MB written a round; {model:.1f} MB more each {MAX_REPLAYED_FRAMES} versions")


if __name__ == "__main__":
    main()
