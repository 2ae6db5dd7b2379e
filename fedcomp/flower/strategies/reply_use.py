"""How a strategy uses the replies of a training round: `CompressedStrategy` decodes as little as the strategy allows."""

from enum import Enum, auto
from typing import ClassVar

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg, Strategy

from fedcomp.flower.compat import (
    AVERAGING,
    aggregate_metricrecords,
    attributes,
    code_of,
    is_library_code,
    leaves_replies_out,
)
from fedcomp.flower.strategies.dynamic_sampling import DynamicSampling, aggregating


class ReplyUse(Enum):
    """How a strategy uses the replies of a training round."""

    MEAN = auto()
    """It reads only the weighted mean of the models, so it may get one merged reply, which is summed sparsely."""
    EACH_REPLY = auto()
    """It reads the model of each reply (Krum, medians).  This is assumed of strategies that declare nothing."""
    DIFFERENCES = auto()
    """It reads each reply's difference to the published model.

    `CompressedStrategy` hands it `DifferenceRecord`s, the decoded updates themselves: added to a weight, an update below 1e-16
    of it would vanish, even in float64.  Under plain Flower its replies are models, and it subtracts the published one.
    """
    INCREMENTS = auto()
    """As DIFFERENCES, and it sums them over rounds: its uplink sends increments, and `restart` starts the sum from zero."""


class DifferenceRecord(ArrayRecord):
    """A reply whose parameters are differences to the published model, in float64; its exact tensors are the node's own."""


class ReplyDeclaration:
    """Base class of strategies that declare how they use replies: ``class Mine(FedAvg, ReplyDeclaration)``."""

    reply_use: ClassVar[ReplyUse] = ReplyUse.EACH_REPLY
    """How `aggregate_train` uses the replies."""
    further_records: ClassVar[frozenset[str]] = frozenset()
    """The names of ArrayRecords that `aggregate_train` reads in addition to the model; a reply with another one is refused."""
    starts_from_published: ClassVar[bool] = True
    """Whether the next model is a step from the published one.  If not, the difference to the published model already includes
    the residual of a lossy downlink, which then must not be sent again.
    """

    def restart(self) -> None:
        """Start the sum of the increments from zero; only strategies of `ReplyUse.INCREMENTS` have one."""
        raise NotImplementedError(f"{type(self).__name__} sums no increments")


def reply_use_of(strategy: Strategy) -> ReplyUse:
    """Return how `strategy`, or the one inside a `DynamicSampling`, uses replies.

    MEAN holds only while `aggregate_train` is the one that it was declared for and the metrics are averaged: a subclass that
    overrides `aggregate_train` must declare its use again; one that is set on the object, a metrics function of the user's own,
    and an own choice of the replies see each of them.
    """
    inner = aggregating(strategy)
    kind = type(inner)
    declared = ReplyUse.MEAN if code_of(inner, "aggregate_train") in AVERAGING else ReplyUse.EACH_REPLY
    overridden = False
    if isinstance(inner, ReplyDeclaration):
        declared = inner.reply_use
        definer = next(base for base in kind.__mro__ if {"aggregate_train", "reply_use"} & vars(base).keys())
        overridden = "reply_use" not in vars(definer) or "aggregate_train" in attributes(inner)
    if declared is ReplyUse.MEAN and (
        overridden
        or not isinstance(inner, FedAvg)
        or inner.train_metrics_aggr_fn is not aggregate_metricrecords
        or leaves_replies_out(inner)
    ):
        return ReplyUse.EACH_REPLY
    return declared


def innermost(strategy: Strategy) -> Strategy:
    """Return the strategy inside the wrappers of fedcomp and Flower, such as those of differential privacy.

    They pass all replies on to it, and what it declares of its models holds for theirs.
    """
    while not isinstance(strategy, FedAvg) and (
        isinstance(strategy, DynamicSampling) or is_library_code(type(strategy))
    ):
        inner = [value for value in attributes(strategy).values() if isinstance(value, Strategy)]
        if len(inner) != 1:
            break
        strategy = inner[0]
    return strategy


def starts_from_published(strategy: Strategy) -> bool:
    """Return whether the next model is a step from the published one; looks inside wrappers."""
    inner = innermost(strategy)
    return inner.starts_from_published if isinstance(inner, ReplyDeclaration) else True


def restart(strategy: Strategy) -> None:
    """Start the sum of a strategy of `ReplyUse.INCREMENTS`, or of the one inside a `DynamicSampling`, from zero."""
    inner = aggregating(strategy)
    if not isinstance(inner, ReplyDeclaration):
        raise TypeError(f"{type(inner).__name__} sums no increments; a strategy of ReplyUse.INCREMENTS is needed")
    inner.restart()
