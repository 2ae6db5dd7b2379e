"""Fuzzing: gives mutants of frames, server messages and bodies to their receivers and counts the results.

python -m tests.wire.fuzz --count 1000000 --seed 0              # up to an hour on one core; not part of the test suite
python -m tests.wire.fuzz --count 600000 --seed 0 --first 400000     # continues a run that was stopped
python -m tests.wire.fuzz --count 1 --seed 0 --first 12345           # one mutant again
python -m tests.wire.fuzz --count 1000000 --kinds JUMP REPLAY        # frames of these kinds alone

Mutant i of a seed is the same on every run of the same kinds.  The exit code is 1 if a mutant broke the law of `doors.py`.
"""

import argparse
import multiprocessing
import resource
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

from tests.wire.doors import Outcome, bound, pass_through
from tests.wire.mutants import KINDS, Mutant, mutant

BATCH = 2_000
"""Mutants that a worker gets at a time."""
ADDRESS_SPACE = 8 << 30
"""Bytes that a worker may map: a mutant that takes more breaks the law, and does not harm the machine."""
MAX_FAILURES = 50
Failures = list[tuple[int, str]]
"""The number of a mutant, and its traceback."""


@dataclass(slots=True)
class Row:
    """The results of mutants of one kind: how many `passed`, how many each error `refused`, and the worst of them."""

    passed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    peak: float = 0.0
    peak_of: int = -1
    seconds: float = 0.0
    slowest: int = -1

    def add(self, number: int, one: Mutant, outcome: Outcome) -> None:
        """Count one mutant."""
        share = outcome.peak / bound(one)
        if outcome.refused:
            self.refused[outcome.refused] += 1
        else:
            self.passed += 1
        self._worst(share, number, outcome.seconds, number)

    def join(self, other: "Row") -> None:
        """Count the mutants of another row as well."""
        self.passed += other.passed
        self.refused += other.refused
        self._worst(other.peak, other.peak_of, other.seconds, other.slowest)

    def _worst(self, peak: float, peak_of: int, seconds: float, slowest: int) -> None:
        if peak > self.peak:
            self.peak, self.peak_of = peak, peak_of
        if seconds > self.seconds:
            self.seconds, self.slowest = seconds, slowest


Tally = dict[tuple[str, int], Row]
"""Kind (with the codec) and entries of the model -> results."""


def work(seed: int, numbers: range, kinds: Collection[str]) -> tuple[Tally, Failures]:
    """Return the results of these mutants, and those that broke the law."""
    tally: defaultdict[tuple[str, int], Row] = defaultdict(Row)
    failures: Failures = []
    for number in numbers:
        try:
            one = mutant(seed, number, kinds)
            tally[one.label, one.n].add(number, one, pass_through(one))
        except Exception:  # noqa: BLE001 - every error is reported, and the run continues
            failures.append((number, traceback.format_exc(limit=-6)))
    return dict(tally), failures


def batches(first: int, count: int) -> Iterator[range]:
    """Yield the numbers from `first` on, a batch at a time."""
    for start in range(first, first + count, BATCH):
        yield range(start, min(start + BATCH, first + count))


@dataclass(slots=True)
class Run:
    """A run over the mutants from `first` on: the results of the `done` ones, and those that broke the law."""

    seed: int
    first: int
    count: int
    kinds: Collection[str] = KINDS
    tally: Tally = field(default_factory=dict)
    failures: Failures = field(default_factory=list)
    done: int = 0
    reached: int = 0

    def go(self, workers: int) -> None:
        """Run all mutants, or stop at `MAX_FAILURES`; print the progress."""
        begin, waiting, self.reached = time.monotonic(), batches(self.first, self.count), self.first
        running: dict[Future[tuple[Tally, Failures]], range] = {}
        context = multiprocessing.get_context("spawn")  # a fork waits forever for OpenMP's threads
        with ProcessPoolExecutor(workers, context, initializer=_confine) as pool:
            while len(self.failures) < MAX_FAILURES:
                while len(running) <= workers and (numbers := next(waiting, None)) is not None:
                    running[pool.submit(work, self.seed, numbers, self.kinds)] = numbers
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    self._count(running.pop(future), *future.result())
                self.reached = min((numbers.start for numbers in running.values()), default=self.first + self.count)
                rate = self.done / (time.monotonic() - begin)
                print(f"{self.done} of {self.count} mutants, {rate:.0f} a second, {self._where()}", flush=True)

    def _count(self, numbers: range, part: Tally, broken: Failures) -> None:
        self.done += len(numbers)
        for key, row in part.items():
            self.tally.setdefault(key, Row()).join(row)
        for number, what in broken:
            print(f"mutant {number} of seed {self.seed} broke the law:\n{what}", flush=True)
        self.failures += broken

    def _where(self) -> str:
        return f"{len(self.failures)} broke the law; continue with --first {self.reached}"


def lines(tally: Tally) -> Iterator[str]:
    """Yield the tally as a table, then the sums."""
    yield f"{'arrived as':<14}{'entries':>9}{'mutants':>9}{'refused':>9}{'passed':>8}{'peak':>7}{'slowest':>9}  refused with"
    for (label, n), row in sorted(tally.items(), key=lambda item: (item[0][1], item[0][0])):
        refused = row.refused.total()
        reasons = ", ".join(f"{name.removesuffix('Error')} {count}" for name, count in row.refused.most_common())
        counts = f"{refused + row.passed:>9}{refused:>9}{row.passed:>8}"
        yield f"{label:<14}{n:>9}{counts}{row.peak:>7.2f}{row.seconds:>8.3f}s  {reasons}"
    every = Row()
    for row in tally.values():
        every.join(row)
    refused = every.refused.total()
    reasons = ", ".join(f"{name} {count}" for name, count in every.refused.most_common())
    yield f"{refused + every.passed} mutants: {refused} refused ({reasons}), {every.passed} passed"
    yield f"largest peak {every.peak:.2f} of the bound (mutant {every.peak_of})"
    yield f"slowest {every.seconds:.3f} s (mutant {every.slowest})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if a mutant broke the law, 130 if the run was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.wire.fuzz", description="Fuzz what arrives over the wire.")
    parser.add_argument("--count", type=int, default=1_000_000, help="mutants")
    parser.add_argument("--seed", type=int, default=0, help="seed of the mutants")
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=", ".join(KINDS))
    options = parser.parse_args(arguments)
    if options.count < 1 or options.first < 0 or options.workers < 1:
        parser.error("--count and --workers are at least 1, --first is at least 0")
    run = Run(options.seed, options.first, options.count, options.kinds)
    stopped = False
    try:
        run.go(options.workers)
    except KeyboardInterrupt:  # the results so far count
        stopped = True
        print(f"stopped; continue with --first {run.reached}")
    for line in lines(run.tally):
        print(line)
    if run.failures:
        print(f"{len(run.failures)} mutants broke the law: {', '.join(str(number) for number, _ in run.failures)}")
    return 1 if run.failures else 130 if stopped else 0


def _confine() -> None:
    """Bound the memory of this worker process, and leave interrupts to its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


if __name__ == "__main__":
    sys.exit(main())
