"""A trial of the soak in which a model is trained split: one node and its server in this process, or several on a grid.

Messages and answers get lost, come late or twice, and are damaged, most often with a checksum that is right; nodes are killed,
lose their state or get an older one back; servers begin again from saved weights.  `tests/flower/soak.py` runs trials.
"""

import copy
import random
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import numpy as np
from flwr.app import UserConfig

import fedcomp
from fedcomp.errors import FedcompError, StaleError
from fedcomp.flower.local_grid import Fault
from fedcomp.flower.split import LowerParts
from fedcomp.split import SplitSettings, SplitState
from tests.flower.soak import SoakGrid
from tests.flower.split.app import Run, client_app
from tests.split.pair import Pair
from tests.wire.mutations import disturb, seal_frame

MAX_MESSAGES = 2000
CALM_ROUNDS = 3
HARMLESS = tuple(each for each in Fault if each is not Fault.FORGET)
IN_FULL = 1
"""The node number of a `Pair`."""


class SplitTrial:
    """One training: everything about it follows from the seed and the number."""

    def __init__(self, seed: int, number: int, folder: Path) -> None:
        self.rng = rng = random.Random(f"{seed}/{number}")
        self.folder = folder
        self.settings = SplitSettings(
            fedcomp.cgx(bits=rng.choice((1, 2, 4, 8))),
            fedcomp.cgx(bits=rng.choice((2, 4, 8))),
            direct=rng.random() < 0.2,
            batch_size=rng.choice((4, 8, 20)),
            steps=rng.randrange(3, 9),
            momentum=rng.choice((0.0, 0.5)),
        )
        self.rounds, self.rate = rng.randrange(2, 8), rng.choice((0.1, 0.3, 0.5))
        self.is_harmful = rng.random() < 0.6
        """Whether states get lost, and messages are damaged: the bits of a quiet run are out of reach then."""
        self.num_nodes = rng.choice((0, 0, 1, 3))
        """Of a grid; 0 is the exchange alone."""
        self.mode: LowerParts = rng.choice(("averaged", "in-turn"))
        self.in_files = rng.random() < 0.5
        self.done, self.faults = 0, Counter[str]()
        self.replies, self.states = list[bytes](), list[SplitState]()

    def __str__(self) -> str:
        where = f"{self.num_nodes} nodes on a grid, {self.mode}" if self.num_nodes else "an exchange"
        harm = "with" if self.is_harmful else "without"
        return f"split: {self.settings}, {where}, {harm} harm, rate {self.rate}"

    def seen(self) -> Collection[str]:
        """Return what took part."""
        direct = ("split direct",) if self.settings.direct else ()
        files = ("split in files",) if self.in_files and self.num_nodes else ()
        return ("split", "split on a grid" if self.num_nodes else "split exchange", *direct, *files)

    def run(self) -> None:
        """Run the rounds with faults, then some without, and check the laws."""
        if self.num_nodes:
            self._run_grid()
        else:
            self._run_exchange()

    def _fails(self, fault: str, share: float) -> bool:
        happens = self.rng.random() < share * self.rate
        self.faults[fault] += happens
        return happens

    # ---- one node and its server

    def _run_exchange(self) -> None:
        pair, quiet = Pair(self.settings), Pair(self.settings)
        for _ in range(self.rounds):
            self._round(pair)
            if self.is_harmful and self._fails("server began again", 0.3):
                again = Pair(self.settings, pair.model)  # which has the weights that the server saved
                again.state = pair.state
                pair = again
        for _ in range(CALM_ROUNDS):
            self._calm_round(pair)
        need_finite(pair.bits())
        if not self.settings.direct:
            _, here, there = pair.rows()
            need(here == there, "both ends hold different activations")
        if not self.is_harmful:
            quiet.run(self.rounds + CALM_ROUNDS)
            need(pair.bits() == quiet.bits(), "other bits than those of a quiet run")
            need(pair.rows() == quiet.rows(), "other activations than those of a quiet run")

    def _calm_round(self, pair: Pair) -> None:
        """Train without faults; memories that differ cost a refused batch and a full one."""
        pair.begin()
        for _ in range(MAX_MESSAGES):
            try:
                weights = pair.server.take(IN_FULL, pair.answer(pair.server.message(IN_FULL)))
            except FedcompError:
                continue
            if weights is not None:
                pair.finish(weights)
                self.done += 1
                return
        raise AssertionError(f"{MAX_MESSAGES} messages are not enough for a quiet round")

    def _round(self, pair: Pair) -> None:
        pair.begin()
        for _ in range(MAX_MESSAGES):
            for reply in self._replies(pair, pair.server.message(IN_FULL)):
                before = bits_of(pair)
                try:
                    weights = pair.server.take(IN_FULL, reply)
                except FedcompError:
                    self.faults["refused"] += 1
                    need(bits_of(pair) == before, "an answer that was refused has changed the server")
                    continue
                if weights is not None:
                    pair.finish(weights)
                    self.done += 1
                    return
        raise AssertionError(f"{MAX_MESSAGES} messages are not enough for a round")

    def _replies(self, pair: Pair, message: bytes) -> list[bytes]:
        """Deliver a message; return what arrives at the server."""
        if self._fails("message lost", 0.3):
            return []
        if self.is_harmful and self._fails("state lost", 0.1):
            pair.state = None
        if self.is_harmful and self.states and self._fails("older state", 0.1):
            pair.state = copy.deepcopy(self.rng.choice(self.states))
        before = copy.deepcopy(pair.state)
        if self.is_harmful and self._fails("message damaged", 0.2):
            try:
                self.replies.append(pair.answer(disturb(self.rng, message)))
            except FedcompError:
                need(
                    pair.state is before or same_state(pair.state, before), "a message that was refused changed a node"
                )
        try:
            reply = pair.answer(message)
        except StaleError:  # a damaged message named a later number, and was answered: its server begins again
            pair.state = None
            return []
        if self._fails("message twice", 0.3):
            need(pair.answer(message) == reply, "a message that came twice got another answer")
        if self._fails("killed", 0.3):  # before its state is saved
            pair.state = before
            return []
        if before is not None:
            self.states = [*self.states[-5:], before]
        self.replies = [*self.replies[-9:], reply]
        arrived = [] if self._fails("reply lost", 0.3) else [reply]
        if self._fails("reply twice", 0.3):
            arrived *= 2
        if self._fails("reply late", 0.3):
            arrived.insert(0, self.rng.choice(self.replies))
        if self.is_harmful and self._fails("reply damaged", 0.3):
            damaged = disturb(self.rng, reply)
            self.faults["reply with a checksum made right"] += (sealed := self.rng.random() < 0.5)
            arrived.insert(0, seal_frame(damaged) if sealed else damaged)
        return arrived

    # ---- several nodes on a grid

    def _run_grid(self) -> None:
        run, grid = Run(self.settings, self.mode), self._grid("trial")
        for _ in range(self.rounds):
            for node in grid.contexts:
                self._order(grid, node)
            grid.damage = self.rate / 5 if self.is_harmful else 0.0
            run.training.run(grid, num_rounds=1)
            self.done += 1
            if self.is_harmful and self._fails("server began again", 0.3):
                again = Run(self.settings, self.mode)
                again.model.load_state_dict(run.model.state_dict())
                run = again
        rounds = self.rounds
        while any(grid.faults.values()):  # as they come, or the bits of a quiet run are out of reach
            run.training.run(grid, num_rounds=1)
            rounds, self.done = rounds + 1, self.done + 1
        grid.damage, grid.old = 0.0, []
        run.training.run(grid, num_rounds=CALM_ROUNDS + 20 // (self.settings.batch_size * self.settings.steps))
        before = run.training.traffic.first_bytes
        run.training.run(grid, num_rounds=CALM_ROUNDS)
        self.done += 2 * CALM_ROUNDS
        need_finite(run.bits())
        if not self.settings.direct:
            need(run.training.traffic.first_bytes == before, "both ends hold different activations")
        if not self.is_harmful and self.num_nodes == 1:
            quiet = Run(self.settings, self.mode)
            extra = 2 * CALM_ROUNDS + 20 // (self.settings.batch_size * self.settings.steps)
            quiet.training.run(self._grid("quiet"), num_rounds=rounds + extra)
            need(run.bits() == quiet.bits(), "other bits than those of a quiet run")

    def _grid(self, name: str) -> SoakGrid:
        def config(node: int) -> UserConfig:
            return {"state-dir": str(self.folder / name / str(node))}

        return SoakGrid(self.rng, client_app(), self.num_nodes, node_config=config if self.in_files else None)

    def _order(self, grid: SoakGrid, node: int) -> None:
        """Order faults for the messages of a round, each followed by an answer, so that no node is left out."""
        for _ in range(self.settings.steps):
            if self.rng.random() >= self.rate:
                grid.order(node, Fault.DOUBLE_REPLY)
                continue
            fault = self.rng.choice(tuple(Fault) if self.is_harmful else HARMLESS)
            if self.in_files and fault in (Fault.FORGET, Fault.CRASH):
                fault = Fault.LOSE_REPLY  # the files stay as they are
            self.faults[fault.name] += 1
            grid.order(node, fault, Fault.DOUBLE_REPLY)


def bits_of(pair: Pair) -> tuple[bytes, ...]:
    """Return what a refused answer leaves as it was: the upper part, and what the server holds of the node."""
    record = pair.server.nodes[IN_FULL]
    upper = b"".join(tensor.numpy().tobytes() for tensor in pair.server.upper.state_dict().values())
    return (
        upper,
        record.memory.ids.tobytes(),
        record.memory.rows(record.memory.ids).tobytes(),
        repr(record.labels).encode(),
    )


def same_state(first: SplitState | None, second: SplitState | None) -> bool:
    """Return whether two states of a node hold the same."""
    if first is None or second is None:
        return first is second
    ids = first.memory.ids
    return (
        (first.number, first.round_number, first.visits, first.pending)
        == (second.number, second.round_number, second.visits, second.pending)
        and ids.tolist() == second.memory.ids.tolist()
        and first.memory.rows(ids).tobytes() == second.memory.rows(ids).tobytes()
        and all(array.tobytes() == second.weights[name].tobytes() for name, array in first.weights.items())
    )


def need_finite(bits: bytes) -> None:
    """Raise `AssertionError` unless these float32 are finite."""
    need(bool(np.isfinite(np.frombuffer(bits, np.float32)).all()), "the model is not finite")


def need(holds: bool, text: str) -> None:
    """Raise `AssertionError` unless a law holds."""
    if not holds:
        raise AssertionError(text)
