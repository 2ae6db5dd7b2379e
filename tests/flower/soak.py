"""The soak: random federations through random faults, and what must hold at their end.

python -m tests.flower.soak --rounds 100000 --seed 0                    # hours on one core; not part of the test suite
python -m tests.flower.soak --rounds 100000 --seed 0 --first 1200       # continues a run that was stopped
python -m tests.flower.soak --rounds 1 --seed 0 --first 345             # one trial again
python -m tests.flower.soak --rounds 1000 --kinds gossip split          # trials of these kinds alone

Trial i of a seed is the same on every run.  The exit code is 1 if a trial broke a law, which its line names.
"""

import argparse
import copy
import importlib
import logging
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.compressor import Compressor
from fedcomp.errors import NoUpdateError
from fedcomp.flower import (
    EF21,
    AsyncMode,
    CompressedStrategy,
    CompressionMod,
    LocalGrid,
    Speeds,
    records,
    to_record,
)
from fedcomp.flower.client.client_state import ClientState
from fedcomp.flower.client.store import open_store
from fedcomp.flower.local_grid import Fault
from fedcomp.methods import METHODS
from server.strategies import STRATEGIES, parse_strategy
from tests.flower.attacks import copied
from tests.flower.toy import Aggregate, Arrays, Messages, arrays_of, checkpoint_at
from tests.wire import specimens

Books = dict[int, dict[str, np.ndarray[Any, Any]]]
UPLINKS = [text for text in specimens.TEXTS if METHODS.about(fedcomp.parse(text).name).uplink]
DOWNLINKS = [text for text in specimens.TEXTS if METHODS.about(fedcomp.parse(text).name).downlink]
ROBUST = {"krum": "num_malicious_nodes=0", "multikrum": "num_malicious_nodes=0, num_nodes_to_select=2"}
WATCHING = "watching"
"""FedAvg that counts what arrives."""
MEMORIES = ("context", "in memory", "files")
TOLERANCE = 2e-4
"""Of the largest entry, for sums of float32 over a trial."""


class KilledError(Exception):
    """The server was killed."""


# ---- what takes part -------------------------------------------------------------------------------------------------


def draw_model(rng: random.Random) -> ArrayRecord:
    """Return a model of up to six tensors of many dtypes and shapes, one of float32 at least."""
    draws = np.random.default_rng(rng.randrange(2**32))
    arrays: dict[str, Any] = {"layer.weight": draws.standard_normal((rng.randrange(1, 30), rng.randrange(1, 30)))}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    others: dict[str, Any] = {
        "layer.bias": draws.standard_normal(rng.randrange(1, 40)).astype(np.float32),
        "half": draws.standard_normal(rng.randrange(1, 60)).astype(np.float16),
        "double": draws.standard_normal((3, rng.randrange(1, 9))),
        "scale": np.array(0.5, np.float32),
        "empty": np.zeros((0, 4), np.float32),
        "norm.running_var": np.ones(5, np.float32),
        "norm.num_batches_tracked": np.array(3),
        "mask": np.array([True, False]),
    }
    for name in rng.sample(sorted(others), rng.randrange(6)):
        arrays[name] = others[name]
    return to_record(arrays)


def difference(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return what training changed in the compressed tensors."""
    floats = [name for name, array in old.items() if array.dtype.kind == "f" and "running" not in name]
    return {name: new[name].astype(np.float64) - old[name].astype(np.float64) for name in floats}


class Watching(FedAvg):
    """FedAvg that sums what arrives of each node, and its own steps; it overrides `aggregate_train`, so it gets each reply."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.books: Any = None

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Messages:
        self.books.given = arrays_of(arrays)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Messages) -> Aggregate:
        replies = list(replies)
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None:
            for reply in replies:
                if reply.has_content():
                    update = difference(arrays_of(cast(ArrayRecord, reply.content["arrays"])), self.books.given)
                    add(self.books.arrived, reply.metadata.src_node_id, update)
            add(self.books.steps, 0, difference(arrays_of(arrays), self.books.given))
        return arrays, metrics


def add(sums: Books, node: int, update: Mapping[str, Any]) -> None:
    """Add an update to the sums of a node."""
    held = sums.setdefault(node, {})
    for name, array in update.items():
        held[name] = held.get(name, 0.0) + array


@dataclass
class Accounts:
    """What a `Watching` strategy has counted; a copy belongs to each checkpoint."""

    arrived: Books = field(default_factory=dict)
    steps: Books = field(default_factory=dict)
    given: Arrays = field(default_factory=dict)


class SoakGrid(LocalGrid):
    """A grid that also damages replies, delivers old ones, and kills the server at the `deadly`-th message from now."""

    def __init__(self, rng: random.Random, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.rng, self.old, self.deadly, self.damage = rng, list[Message](), 0, 0.0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids: list[str] = []
        for message in messages:
            self.deadly -= 1
            if self.deadly == 0:
                raise KilledError
            ids += super().push_messages([message])
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(super().pull_messages(message_ids))
        late = [reply for reply in self.old if self.rng.random() < 0.5] if self.rng.random() < self.damage else []
        self.old = [copied(reply) for reply in replies if reply.has_content()]
        arrived = [reply for reply in (self._damaged(reply) for reply in replies) if reply is not None]
        return late + arrived

    def _damaged(self, reply: Message) -> Message | None:
        if not reply.has_content() or self.rng.random() >= self.damage:
            return reply
        found = records.packed(reply.content)
        if found is None:
            return reply
        data = bytearray(found[1])
        data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        twin = copied(reply)
        twin.content[found[0]] = records.pack(bytes(data))
        return twin


# ---- a trial ---------------------------------------------------------------------------------------------------------


class Trial:
    """One federation: everything about it follows from the seed and the number."""

    def __init__(self, seed: int, number: int, folder: Path) -> None:
        self.rng = rng = random.Random(f"{seed}/{number}")
        self.folder, self.checkpoint = folder, folder / "checkpoint"
        self.num_nodes, self.rounds = rng.randrange(2, 8), rng.randrange(8, 40)
        self.name = rng.choice([*[WATCHING] * 5, *["ef21"] * 3, *STRATEGIES])
        self.memory = rng.choice(MEMORIES)
        self.uplink, self.downlink = self._links()
        self.model = draw_model(rng)
        self.shared_start = rng.random() < 0.5
        self.fractions = rng.choice((0.5, 1.0)), rng.choice((0.0, 0.5))
        self.rate = rng.choice((0.0, 0.1, 0.3, 0.5))
        # Late updates count whole, so that their sum can be checked.
        mode = AsyncMode(rng.randrange(1, self.num_nodes + 1), rng.randrange(1, 6), exponent=0.0)
        self.mode = mode if rng.random() < 0.4 and self.name not in ("ef21", "rigl") else None
        self.learned: Books = {}
        self.forgotten: Books = {}
        self.accounts = Accounts()
        self.exact = True
        self.faults: Counter[str] = Counter()
        self.done = 0
        in_files = self.memory == "files"
        self.grid = SoakGrid(
            rng,
            self._app(),
            self.num_nodes,
            node_config=self._node_config if in_files else None,
            in_memory=self.memory == "in memory",
            speeds=Speeds(slow=0.3, slowdown=5.0, spread=0.5, seed=number) if self.mode else None,
        )
        self.fails_to_save = False
        self.saved = copy.deepcopy(self.accounts)
        self.violations: list[str] = []
        self.strategy = self._build()

    def seen(self) -> Iterable[str]:
        """Return what took part."""
        mode = ("async",) if self.mode is not None else ()
        exact = ("exact mass",) if self.exact and self.name == WATCHING else ()
        return ("flower", self.name, self.memory, f"up {self.uplink.name}", f"down {self.downlink.name}", *mode, *exact)

    def __str__(self) -> str:
        return (
            f"{self.name}, up {self.uplink}, down {self.downlink}, {self.memory}, {self.num_nodes} nodes, {list(self.model)}"
            + (", shared start" if self.shared_start else "")
            + (f", {self.mode}" if self.mode else "")
        )

    def _node_config(self, node: int) -> UserConfig:
        return {"state-dir": str(self.folder / f"node-{node}")}

    def _links(self) -> tuple[Compressor, Compressor]:
        if self.name == "ef21":
            return fedcomp.ef21(density=0.2), fedcomp.parse(self.rng.choice(DOWNLINKS))
        uplinks = [text for text in UPLINKS if not text.startswith("ef21")]
        return fedcomp.parse(self.rng.choice(uplinks)), fedcomp.parse(self.rng.choice(DOWNLINKS))

    def _build(self) -> CompressedStrategy:
        settings = {
            "fraction_train": self.fractions[0], "fraction_evaluate": self.fractions[1],
            "min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1,
        }  # fmt: skip
        inner: FedAvg
        if self.name == WATCHING:
            inner = Watching(**settings)
            inner.books = self.accounts
        else:
            inner = parse_strategy(f"{self.name}({ROBUST.get(self.name, '')})")(**settings)
        strategy = CompressedStrategy(
            inner,
            uplink=self.uplink,
            downlink=self.downlink,
            seed=self.rng.randrange(2**32),
            checkpoint=checkpoint_at(self.checkpoint),
            shared_start=self.shared_start,
            mode=self.mode,
        )
        save = strategy.save

        def save_with_accounts(path: str | Path) -> None:
            if self.fails_to_save:
                self.fails_to_save = False
                raise KilledError
            save(path)
            self.saved = copy.deepcopy(self.accounts)

        strategy.save = save_with_accounts  # type: ignore[method-assign]
        return strategy

    def _start(self, context: Context) -> ArrayRecord | Arrays:
        """Return the first model; every fourth node makes another one, and every fourth cannot make any."""
        kind = context.node_id % 4
        if kind == 3:
            raise ValueError("there is no model here")
        arrays = arrays_of(self.model)
        return (
            {name: -array if array.dtype.kind == "f" else array for name, array in arrays.items()}
            if kind == 2
            else self.model
        )

    def _app(self) -> ClientApp:
        """Return an app that checks that it gets the published model, and learns noise."""
        client_app = ClientApp(mods=[CompressionMod(self._start)])

        @client_app.train()
        def train(message: Message, context: Context) -> Message:
            given = self._given(message)
            draws = np.random.default_rng([context.node_id, self.done])
            trained: Arrays = {}
            for name, array in given.items():
                if array.dtype.kind == "f":
                    trained[name] = np.asarray(array + 0.01 * draws.standard_normal(array.shape)).astype(array.dtype)
                else:
                    trained[name] = np.asarray(array + 1).astype(array.dtype)
            add(self.learned, context.node_id, difference(trained, given))
            metrics = MetricRecord({"num-examples": 1 + context.node_id % 3})
            record = ArrayRecord({name: Array(array) for name, array in trained.items()})
            return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

        @client_app.evaluate()
        def evaluate(message: Message, context: Context) -> Message:
            self._given(message)
            return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

        return client_app

    def _given(self, message: Message) -> Arrays:
        given, published = arrays_of(cast(ArrayRecord, message.content["arrays"])), arrays_of(self.strategy.arrays)
        if given.keys() != published.keys():
            self.violations.append("an app got other tensors than the published ones")
        for name, array in given.items():
            if (array.dtype, array.tobytes()) != (published[name].dtype, published[name].tobytes()):
                self.violations.append(f"an app got another {name} than the published one")
        return given

    # ---- faults

    def run(self) -> None:
        """Run the rounds with faults, then some without, and check the laws."""
        for _ in range(self.rounds):
            self._inject()
            self._round()
        for queue in self.grid.faults.values():
            queue.clear()
        self.grid.damage, self.grid.deadly, self.fails_to_save = 0, 0, False
        self.grid.old = []
        inner = cast(FedAvg, self.strategy.inner)
        inner.fraction_train = inner.fraction_evaluate = 1.0
        self.strategy.mode = None  # rounds, which reach all nodes
        for _ in range(3):
            self._round()
        self._check()

    def _inject(self) -> None:
        for node in self.grid.contexts:
            if not self.grid.faults[node] and self.rng.random() < self.rate:
                fault = self.rng.choice(list(Fault))
                if self.memory == "files" and fault in (Fault.FORGET, Fault.CRASH):
                    continue  # a crash leaves the files as they are: that is LOSE_REPLY
                self.grid.order(node, fault)
                self.faults[fault.name] += 1
        if self.rng.random() < 0.1 * self.rate:
            self.fails_to_save = True
        self.grid.damage = self.rate / 3
        self.grid.deadly = self.rng.randrange(1, 2 * self.num_nodes) if self.rng.random() < self.rate / 2 else 0

    def _round(self) -> None:
        pending = {node: list(queue) for node, queue in self.grid.faults.items()}
        before = {node: copy.deepcopy(self._counted(node)) for node in self.grid.contexts}
        learned = copy.deepcopy(self.learned)
        try:
            self.strategy.start(self.grid, self.model, num_rounds=4 if self.strategy.mode else 1, timeout=20.0)
        except KilledError:
            self.faults["server killed"] += 1
            self._restart()
        except NoUpdateError:  # all of the first replies are lost; the next rounds bring others
            pass
        else:
            if self.rng.random() < 0.2:
                shutil.copy(self.checkpoint, self.folder / "old")
        self.done += 1
        for node, queue in pending.items():
            happened = queue[: len(queue) - len(self.grid.faults[node])]
            if self.strategy.mode and {Fault.FORGET, Fault.CRASH} & set(happened):
                self.exact = False  # in which of the versions is not known here
            if Fault.FORGET in happened:  # what had not arrived is lost with the state
                self.forgotten[node] = _minus(learned.get(node, {}), before[node])
                self.exact &= Fault.CRASH not in happened
            if Fault.CRASH in happened:
                self.learned[node] = learned.get(node, {})  # the app's work is lost, and will be done again
            if Fault.DELIVER_TWICE in happened:
                self.faults["repeated"] += 1

    def _counted(self, node: int) -> dict[str, Any]:
        return self.accounts.arrived.get(node, {})

    def _restart(self) -> None:
        """Begin again from the last checkpoint, or from an old one, perhaps with other compressors."""
        self.accounts = copy.deepcopy(self.saved)
        path, old = self.checkpoint, self.folder / "old"
        if old.exists() and self.rng.random() < 0.3:
            path, self.exact = old, False
            self.faults["old checkpoint"] += 1
        if self.rng.random() < 0.3:
            self.uplink, self.downlink = self._links()
            self.exact = False  # the residuals of several memories
        self.strategy = self._build()
        if path.exists():
            self.strategy.load(path)
        else:
            self.exact = False

    # ---- laws

    def state(self, node: int) -> ClientState:
        """Return the state of a node."""
        context = self.grid.contexts[node]
        with open_store(context) as store:
            return store.load(0, {(self.strategy.version, self.strategy.publisher.replica.fingerprint)})

    def _check(self) -> None:
        published = self.strategy.publisher.replica
        need(not self.violations, "; ".join(self.violations[:3]))
        need(not self.strategy.failed_rounds, "a round failed")
        need(self.strategy.version > 0 or self.name == "bulyan", "no round had a result")  # which needs many nodes
        for node in self.grid.contexts:
            replica = self.state(node).subscriber.held
            need(replica.version == published.version, f"node {node} is at version {replica.version}")
            need(replica.vector.tobytes() == published.vector.tobytes(), f"the replica of node {node} differs")
            need(replica.exact == published.exact, f"the exact tensors of node {node} differ")
        if self.name == "ef21":
            self._check_estimates()
        if self.name == WATCHING and self.exact:
            self._check_mass()

    def _check_estimates(self) -> None:
        inner, publisher = cast(EF21, self.strategy.inner), self.strategy.publisher
        total = np.zeros(publisher.replica.layout.n)
        for node in self.grid.contexts:
            memory = self.state(node).subscriber.memory
            if publisher.nodes[node].summed and not publisher.may_restart(node):
                return  # if it has lost its estimate again, the sum holds what it had until its updates count again
            if "estimate" in memory and int(memory["estimate_epoch"][0]) == publisher.epoch:
                total += memory["estimate"]
        parts = [inner.estimate[tensor.name].ravel() for tensor, _ in publisher.replica.layout.parts]
        error = np.abs(np.concatenate(parts) - total).max()
        need(error <= TOLERANCE * max(1.0, np.abs(total).max()), f"the sum of the estimates is off by {error:g}")

    def _check_mass(self) -> None:
        layout = self.strategy.publisher.replica.layout
        if "residual" in self.uplink.memory.vectors:
            for node in self.grid.contexts:
                state = self.state(node).subscriber
                lost, arrived = self.forgotten.get(node, {}), self._counted(node)
                for tensor, part in layout.parts:
                    target = self.learned.get(node, {}).get(tensor.name, np.zeros(tensor.shape))
                    found = arrived.get(tensor.name, 0.0) + lost.get(tensor.name, 0.0)
                    found = found + state.memory["residual"][part].reshape(tensor.shape)
                    _close(found, target, f"the mass of node {node} in {tensor.name}", tensor.dtype)
        if "residual" in self.downlink.memory.vectors:
            memory, start = self.strategy.publisher.memory["residual"], arrays_of(self.model)
            for tensor, part in layout.parts:
                moved = self.strategy.publisher.replica.vector[part].reshape(tensor.shape) - start[tensor.name]
                found = moved.astype(np.float64) + memory[part].reshape(tensor.shape)
                target = self.accounts.steps.get(0, {}).get(tensor.name, np.zeros(tensor.shape))
                _close(found, target, f"the mass of the server in {tensor.name}", tensor.dtype)


def _minus(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    return {name: array - second.get(name, 0.0) for name, array in first.items()}


def _close(found: Any, target: Any, what: str, dtype: str) -> None:
    if not np.size(target):
        return
    tolerance = 0.05 if dtype == "float16" else TOLERANCE  # a float16 weight rounds what the app sees
    error = float(np.abs(found - target).max())
    need(error <= tolerance * max(1.0, float(np.abs(target).max())), f"{what} is off by {error:g}")


def need(holds: bool, text: str) -> None:
    """Raise `AssertionError` unless a law holds."""
    if not holds:
        raise AssertionError(text)


# ---- kinds of trials -------------------------------------------------------------------------------------------------


class SoakTrial(Protocol):
    """A federation whose faults follow from a seed and a number; its text names what took part."""

    done: int
    faults: Counter[str]

    def run(self) -> None:
        """Run the rounds; raise an error if a law is broken."""
        ...

    def seen(self) -> Iterable[str]:
        """Return what took part."""
        ...


SHARES = {"flower": 0.6, "gossip": 0.2, "split": 0.2}
"""The kinds of trials, and their shares."""
MODULES = {
    "flower": (__name__, "Trial"),
    "gossip": ("tests.gossip.soak", "GossipTrial"),
    "split": ("tests.split.soak", "SplitTrial"),
}
"""Where they are: a kind is imported once it is drawn, as split learning needs torch and gossip needs gRPC."""
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - for temporary folders with random names


def drawn_kind(seed: int, number: int, kinds: Collection[str]) -> str:
    """Return the kind of trial `number` of `seed`, one of these."""
    names = [name for name in SHARES if name in kinds]
    return random.Random(f"{seed}/{number}/kind").choices(names, [SHARES[name] for name in names])[0]


def make_trial(seed: int, number: int, folder: Path, kinds: Collection[str] = tuple(SHARES)) -> SoakTrial:
    """Return trial `number` of `seed`, of one of these kinds."""
    module, name = MODULES[drawn_kind(seed, number, kinds)]
    make: Callable[..., SoakTrial] = getattr(sys.modules.get(module) or importlib.import_module(module), name)
    return make(seed, number, folder)


# ---- the command line ------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """Sums over trials: rounds, faults, strategies, and the numbers and tracebacks of those that broke a law."""

    trials: int = 0
    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    broken: dict[int, str] = field(default_factory=dict)

    def add(self, seed: int, number: int, kinds: Collection[str]) -> None:
        """Run a trial."""
        memory = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None  # nothing waits for a disk
        with tempfile.TemporaryDirectory(prefix="fedcomp-soak-", dir=memory) as folder:
            trial = make_trial(seed, number, Path(folder), kinds)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)
                    random.seed(f"{seed}/{number}")
                    trial.run()
            except Exception:  # noqa: BLE001 - every error is reported, and the run continues
                self.broken[number] = f"{trial}\n{traceback.format_exc(limit=-6)}"
        self.trials += 1
        self.rounds += trial.done
        self.faults += trial.faults
        self.seen.update(trial.seen())

    def lines(self) -> Iterable[str]:
        """Yield the sums as lines."""
        yield f"{self.trials} trials, {self.rounds} rounds, {self.seen['exact mass']} trials with exact mass"
        for what in (self.faults, self.seen):
            yield ", ".join(f"{name} {count}" for name, count in sorted(what.items()))
        yield f"{len(self.broken)} broke a law" + "".join(f", {number}" for number in self.broken)


def soak(seed: int, first: int, enough: Callable[[Result], bool], kinds: Collection[str] = tuple(SHARES)) -> Result:
    """Return the result of trials of these kinds from `first` on, until there are enough."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    result, begin = Result(), time.monotonic()
    while not enough(result):
        number = first + result.trials
        result.add(seed, number, kinds)
        if number in result.broken:
            print(f"trial {number} of seed {seed} broke a law: {result.broken[number]}", flush=True)
        if result.trials % 100 == 0:
            rate = result.rounds / (time.monotonic() - begin)
            print(f"{result.rounds} rounds, {rate:.0f} a second; continue with --first {number + 1}", flush=True)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if a trial broke a law."""
    parser = argparse.ArgumentParser(prog="python -m tests.flower.soak", description="Random federations and faults.")
    parser.add_argument("--rounds", type=int, default=100_000, help="run trials until they have this number of rounds")
    parser.add_argument("--seed", type=int, default=0, help="seed of the trials")
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--kinds", nargs="+", choices=SHARES, default=tuple(SHARES), help="kinds of trials")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.first < 0:
        parser.error("--rounds is at least 1, --first at least 0")
    result = soak(options.seed, options.first, lambda result: result.rounds >= options.rounds, options.kinds)
    for line in result.lines():
        print(line)
    return 1 if result.broken else 0


if __name__ == "__main__":
    sys.exit(main())
