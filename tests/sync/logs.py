"""Publishers with many versions behind them, and nodes that follow them by every route."""

import copy
import random
from dataclasses import dataclass

import numpy as np

import fedcomp
from fedcomp.compressor import Compressor
from fedcomp.sync import Publisher, Replica, apply_frame, start_replica
from fedcomp.wire import layout_of, parse_single_frame

N = 300
STC = fedcomp.stc(density=0.05)


def start() -> Replica:
    """Return a model of which a third is 0 and a third is -0, as pruned ones have them."""
    weights = np.random.default_rng(0).standard_normal(N, np.float32) * (np.arange(N) % 3 == 0)
    arrays = {"w": weights.astype(np.float32), "steps": np.array(0)}
    return start_replica(layout_of(arrays), arrays)


def exact(counter: int) -> bytes:
    return counter.to_bytes(8, "little")


def owned(replica: Replica) -> Replica:
    """Return a copy that shares no array."""
    return copy.deepcopy(replica)


def bits(replica: Replica) -> tuple[object, ...]:
    return *replica.place, replica.vector.tobytes(), replica.exact


class Log:
    """A publisher whose changes hit the same entries again and again, and whose exact tensors change now and then."""

    def __init__(self, seed: int = 0, compressor: Compressor = STC, off_grid: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.publisher = Publisher.begin(start())
        self.compressor, self.off_grid = compressor, off_grid
        self.heat = self.rng.random(N).astype(np.float32) ** 8

    def publish(self) -> None:
        version = self.publisher.replica.version + 1
        size = np.float32(0.01 * 2.0 ** (-version / 30))
        change = self.rng.standard_normal(N, np.float32) * self.heat * size
        off_grid = self.off_grid and version % self.off_grid == 0
        counter = exact(version) if version % 7 == 0 else self.publisher.replica.exact
        self.publisher.publish(change, counter, fedcomp.eden() if off_grid else self.compressor, seed=version)


@dataclass(slots=True)
class Node:
    replica: Replica
    confirmed: tuple[int, int]


def check_routes(seed: int, versions: int, compressor: Compressor, off_grid: int = 0, nodes: int = 8) -> int:
    """Let nodes follow at random, lose answers and return to older states; return how many routes led to the same bits."""
    draw, log = random.Random(seed), Log(seed, compressor, off_grid)
    publisher = log.publisher
    first = publisher.replica.place
    held = [Node(start(), first) for _ in range(nodes)]
    followed = 0
    for _ in range(versions):
        log.publish()
        for place, node in enumerate(held):
            if draw.random() > 1 / (1 + place) ** 1.5:
                continue  # away
            certain = node.confirmed == node.replica.place
            route = publisher.route(*node.confirmed, certain=certain)
            before = owned(node.replica)
            replica = node.replica
            for data in route.frames:
                replica = apply_frame(replica, parse_single_frame(data))
            assert bits(replica) == bits(publisher.replica)
            followed += 1
            lost = draw.random()
            if lost < 0.1:
                node.replica = before  # the device dies before it saves its state
            else:
                node.replica = replica
                node.confirmed = node.confirmed if lost < 0.3 else replica.place  # else the answer is lost
    return followed
