"""The consensus step size of a method on a graph: found by averaging random models of the model's shapes without training."""

import math
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fedcomp.compressor import Compressor
from fedcomp.core import EncodeContext, Shapes, Vector
from fedcomp.gossip.choco import Choco
from fedcomp.gossip.deep_squeeze import DeepSqueeze
from fedcomp.gossip.nodes import moved, named_step_size
from fedcomp.gossip.topology import Topology
from fedcomp.sync import derive_seed

Named = TypeVar("Named")
STEP_SIZES = tuple(2.0**-power for power in range(11))
SHAPES: Shapes = ((2048,),)
MAX_ENTRIES, MAX_SIDE = 1 << 14, 96
"""For a larger model, the search uses its largest tensors, cut to this side."""
ROUNDS = 60
GROWN = 10
"""A distance that has grown by this factor will not shrink again."""
CONVERGED = 1e-6
WINDOW, STEADY = 10, 1.1
"""The floor of Deep-Squeeze is noise.  Its distance is a mean over `WINDOW` rounds, which may grow by the factor `STEADY`."""
MESSAGES = 16
SLOW = 0.5
"""If a compressor sends less than this share of a vector, the search has too few rounds to notice divergence."""


def find_step_size(topology: Topology, method: Choco | DeepSqueeze, shapes: Shapes = SHAPES) -> Choco | DeepSqueeze:
    """Return `method` with the step size among 1, 1/2, ... 1/1024 that brings random models closest together in 60 rounds.

    The theorem of CHOCO gives a step size that always converges, but is far too small: Koloskova et al., ICML 2019, Theorem 2.
    The models here are Gaussian, with the `shapes` of the tensors that nodes exchange; their differences are as hard to
    compress as any.  Of a model of more than 2^14 entries, the largest tensors are used, and cut.  All calls give the same
    result.
    With CHOCO the models become equal.  With Deep-Squeeze they come as close as its floor, which is lower for smaller steps.

    A message sends a share of the squares of a Gaussian vector.  If the share is less than half, the step size is at most the
    share: with twice the share, rand-k comes closer for a hundred rounds and then diverges.

    Raises `ValueError` if no step size brings the models closer.
    """
    share, cut = _sent(method.compressor, shapes), _cut(shapes)
    best, least = None, np.inf
    for size in STEP_SIZES:
        if size > share and share < SLOW:
            continue
        distance = _final_distance(_distances(topology, replace(method, step_size=size), cut), method)
        if distance < least:
            best, least = size, distance
        elif best is not None:
            break  # smaller steps are only slower
    if best is None:
        raise ValueError(
            f"{method} brings random models of {topology.num_nodes} nodes no closer in {ROUNDS} rounds with any step size from "
            f"{STEP_SIZES[-1]:g} to 1; a compressor that leaves out less is needed"
        )
    return replace(method, step_size=best)


def with_step_size(topology: Topology, method: Named, shapes: Shapes) -> Named | Choco | DeepSqueeze:
    """Return `method`; if it is one of fedcomp's and has no step size, find it with `find_step_size`, which may raise."""
    if isinstance(method, Choco | DeepSqueeze) and method.step_size is None:
        return find_step_size(topology, method, shapes)
    return method


def _cut(shapes: Shapes) -> Shapes:
    """Return the shapes to search with: the model's shapes or, if these are too large, some of its largest tensors, cut."""
    if sum(map(math.prod, shapes)) <= MAX_ENTRIES:
        return shapes
    kept: list[tuple[int, ...]] = []
    for shape in sorted(shapes, key=math.prod, reverse=True):
        if len(shape) > 1:
            small: tuple[int, ...] = (min(shape[0], MAX_SIDE), min(math.prod(shape[1:]), MAX_SIDE))
        else:
            small = (min(math.prod(shape), MAX_SIDE * MAX_SIDE),)
        if sum(map(math.prod, kept)) + math.prod(small) <= MAX_ENTRIES:
            kept.append(small)
    return tuple(kept)


def _distances(topology: Topology, method: Choco | DeepSqueeze, shapes: Shapes) -> list[float]:
    """Return the consensus distance before the first and after each of `ROUNDS` rounds of averaging.

    It ends early if numbers exceed float32, or if the distance has grown by the factor `GROWN`.
    """
    compressor, n, rng = method.compressor.contracting(), sum(map(math.prod, shapes)), np.random.default_rng(0)
    models = [rng.standard_normal(n, np.float32) for _ in range(topology.num_nodes)]
    held = [np.zeros(n, np.float32) for _ in models]  # what the neighbours of a node know of its model
    states = [compressor.init(n) for _ in models]
    step, distances = named_step_size(method.step_size), [_distance(models)]
    for number in range(1, ROUNDS + 1):
        if not np.isfinite(distances[-1]) or distances[-1] > GROWN * distances[0]:
            break
        for each, model in enumerate(models):
            known = held[each] if isinstance(method, Choco) else np.zeros(n, np.float32)
            context = EncodeContext(derive_seed(0, number, each), number, shapes)
            try:
                compensated = compressor.memory.compensate(model - known, states[each], context)
                quantized = compressor.quantizer.quantize(compensated)
            except ValueError:  # numbers beyond float32
                return distances
            states[each] = compressor.memory.update(compensated, quantized, states[each])
            held[each] = known + quantized.dense()
        for each, model in enumerate(models):
            weights = topology.weights(each)
            models[each] = moved(model, (step * weights[j] * (np.float64(held[j]) - held[each]) for j in weights))
        distances.append(_distance(models))
    return distances


def _distance(models: list[Vector]) -> float:
    wide = np.array(models, np.float64)
    return float(np.sqrt(np.square(wide - wide.mean(axis=0)).sum(axis=1).mean()))


def _final_distance(distances: list[float], method: Choco | DeepSqueeze) -> float:
    """Return the distance of the last rounds; infinity if it is not below the first distance, or neither falls nor stays.

    With CHOCO the distance falls to zero; with Deep-Squeeze it stays at its floor.
    """
    if len(distances) <= ROUNDS:
        return math.inf
    window, growth = (WINDOW, STEADY) if isinstance(method, DeepSqueeze) else (1, 1.0)
    middle, last = (float(np.mean(distances[end - window + 1 : end + 1])) for end in (ROUNDS // 2, ROUNDS))
    steady = last < growth * middle or last < CONVERGED * distances[0]
    return last if steady and last < distances[0] else math.inf


def _sent(compressor: Compressor, shapes: Shapes) -> float:
    """Return the average share that a message sends of the squares of the remaining part of a Gaussian vector."""
    form, n = compressor.contracting(), sum(map(math.prod, shapes))
    vector = np.random.default_rng(0).standard_normal(n, np.float32)
    left: Vector = vector
    for seed in range(MESSAGES):
        body, _ = form.encode(left, form.init(n), seed, shapes=shapes)
        left = np.subtract(left, form.decode(body, n))
    rest = float(np.square(left, dtype=np.float64).sum() / np.square(vector, dtype=np.float64).sum())
    return float(1 - rest ** (1 / MESSAGES))
