"""RigL: the server moves the few weights of a sparse model to where the nodes' gradients are large.

Evci, Gale, Menick, Castro and Elsen, ICML 2020, section 3.  Each masked tensor ``w`` of the model has a mask ``w_mask``, uint8
with a bit for each entry, as the training plug-in `rigl` makes it.
"""

import math
from collections.abc import Mapping, Sequence
from logging import WARNING
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from fedcomp.core import check_int, check_range
from fedcomp.flower import records
from fedcomp.flower.compat import log, to_record
from fedcomp.flower.records import Messages
from fedcomp.flower.strategies.reply_use import ReplyDeclaration
from fedcomp.wire import MASK, layout_of, unpack_mask

GROWTH = "growth"
"""In the config of a training message: whether nodes report; in a reply: the ArrayRecord of what they report."""
MAX_ROUNDS = 1_000_000_000

Array = NDArray[Any]


class RigL(FedAvg, ReplyDeclaration):
    """FedAvg that moves weights every `interval` rounds: it drops the smallest, and adds those with the largest gradients.

    In round t a tensor with m entries in its mask has ``fraction / 2 (1 + cos(pi t / until)) m`` of them moved, none from
    round `until`.  New weights begin at zero.  Nodes report gradients outside the masks, in the ArrayRecord ``growth`` of a
    reply, when the config of the message has ``growth``.
    """

    further_records = frozenset({GROWTH})

    def __init__(self, *, interval: int = 10, fraction: float = 0.3, until: int = 100, **fedavg: Any) -> None:
        """Make the strategy with the settings of FedAvg; `interval` and `until` count rounds, and `fraction` is 0 to 1."""
        super().__init__(**fedavg)
        check_int("interval", interval, 1, MAX_ROUNDS)
        check_range("fraction", fraction, least=0, most=1)
        check_int("until", until, 1, MAX_ROUNDS)
        self.interval, self.fraction, self.until = int(interval), float(fraction), int(until)

    def moves_in(self, server_round: int) -> bool:
        """Return whether weights move in this round."""
        return server_round % self.interval == 0 and server_round < self.until

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """Return the messages of FedAvg; in rounds that move weights, they ask for gradients."""
        if self.moves_in(server_round):
            config = ConfigRecord(dict(config) | {GROWTH: True})
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Messages) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the mean model, its masks moved if this round moves them, and the metrics."""
        replies = list(replies)
        contents = [reply.content for reply in replies if reply.has_content()]
        reports = [(self._weight(content), content.array_records[GROWTH]) for content in contents if GROWTH in content]
        for content in contents:
            if GROWTH in content:
                del content[GROWTH]
        models = [model for content in contents for model in content.array_records.values()]
        masks = mask_names(records.to_arrays(models[0])) if models else frozenset[str]()
        record, metrics = super().aggregate_train(server_round, replies)
        if record is None:
            return None, metrics
        # A mean of masks that are all the same differs from them by rounding.
        arrays = {
            name: _rounded(array) if name in masks else array for name, array in records.to_arrays(record).items()
        }
        if self.moves_in(server_round):
            share = self.fraction / 2 * (1 + math.cos(math.pi * server_round / self.until))
            arrays = moved(arrays, total_growth(reports, arrays), share)
        return to_record(arrays), metrics

    def _weight(self, content: RecordDict) -> float:
        (metrics,) = content.metric_records.values()
        return float(cast(float, metrics[self.weighted_by_key]))


def mask_names(model: Mapping[str, Array]) -> frozenset[str]:
    """Return the names of the masks in a model; another tensor whose name ends in ``_mask`` is none."""
    return frozenset(mask.name for mask in layout_of(model).masks)


def _rounded(mask: Array) -> Array:
    return np.rint(mask).astype(np.uint8) if mask.dtype.kind == "f" else mask


def total_growth(
    reports: Sequence[tuple[float, ArrayRecord]], model: Mapping[str, Array]
) -> dict[str, NDArray[np.float64]]:
    """Return the weighted sum of the nodes' gradients, by tensor; a gradient that a node does not report counts as zero.

    An array that does not fit a masked tensor of the `model`, or holds NaN or infinity, is left out, and a line in the log says
    so.
    """
    total: dict[str, NDArray[np.float64]] = {}
    masks = mask_names(model)
    for weight, record in reports:
        for name, array in records.to_arrays(record).items():
            fits = name + MASK in masks and array.shape == model[name].shape and array.dtype.kind == "f"
            if not fits or not np.isfinite(array).all():
                log(WARNING, "fedcomp: a node reports a gradient %r that cannot be used; it is left out", name)
                continue
            term = weight * np.asarray(array, np.float64)
            total[name] = total[name] + term if name in total else term
    return total


def moved(arrays: Mapping[str, Array], growth: Mapping[str, NDArray[np.float64]], share: float) -> dict[str, Array]:
    """Return the model with floor(share m) of the m entries in each mask moved, or as many as have a gradient outside.

    The entries of smallest magnitude leave, those with the largest gradients enter; of equal ones, the lower index does.
    Both become zero.  An entry that leaves may have a gradient too: if it is among the largest, the entry stays as it is, and
    so many fewer enter.  A tensor without `growth` stays as it is.
    """
    result = dict(arrays)
    for name, gradients in growth.items():
        weight = arrays[name]
        mask = unpack_mask(arrays[name + MASK], weight.size)
        has_gradient = gradients.ravel() != 0
        inside = np.flatnonzero(mask)
        count = min(int(share * inside.size), np.count_nonzero(has_gradient & ~mask))
        leaving = inside[np.argsort(np.abs(weight.ravel()[inside]), kind="stable")[:count]]
        outside = ~mask
        outside[leaving] = True
        candidates = np.flatnonzero(outside & has_gradient)
        chosen = candidates[np.argsort(-np.abs(gradients.ravel()[candidates]), kind="stable")[:count]]
        leaving, entering = np.setdiff1d(leaving, chosen), np.setdiff1d(chosen, leaving)
        values = weight.ravel().copy()
        mask[leaving], mask[entering] = False, True
        values[leaving] = values[entering] = 0
        result[name], result[name + MASK] = values.reshape(weight.shape), np.packbits(mask)
    return result
