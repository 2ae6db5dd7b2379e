from typing import Any, ClassVar

import pytest
from flwr.app import MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    Krum,
    Strategy,
)

from fedcomp.flower import EF21, DynamicSampling, FedAMS, MajorityVote, QcmdAdagrad, QrdaAdagrad
from fedcomp.flower.strategies.reply_use import (
    ReplyDeclaration,
    ReplyUse,
    reply_use_of,
    restart,
    starts_from_published,
)


class LoggingFedAMS(FedAMS):
    """Looks at each reply, and does not say so."""

    def aggregate_train(self, *args: Any) -> Any:
        return super().aggregate_train(*args)


class DeclaredFedAMS(LoggingFedAMS):
    """Declares that its own `aggregate_train` needs the mean alone."""

    reply_use: ClassVar[ReplyUse] = ReplyUse.MEAN


class LoggingFedAvg(FedAvg):
    """Looks at each reply, and does not say so."""

    def aggregate_train(self, *args: Any) -> Any:
        return super().aggregate_train(*args)


class Differences(Krum, ReplyDeclaration):
    """A foreign strategy that declares its use."""

    reply_use: ClassVar[ReplyUse] = ReplyUse.DIFFERENCES


def _first(replies: list[RecordDict], key: str) -> MetricRecord:
    return next(iter(replies[0].metric_records.values()))


@pytest.mark.parametrize(
    ("strategy", "use"),
    [
        (FedAvg(), ReplyUse.MEAN),
        (FedAvgM(), ReplyUse.MEAN),
        (FedAdam(), ReplyUse.MEAN),
        (FedAMS(), ReplyUse.MEAN),
        (QcmdAdagrad(), ReplyUse.MEAN),
        (QrdaAdagrad(), ReplyUse.MEAN),
        (DeclaredFedAMS(), ReplyUse.MEAN),
        (Krum(), ReplyUse.EACH_REPLY),
        (FedMedian(), ReplyUse.EACH_REPLY),
        (LoggingFedAvg(), ReplyUse.EACH_REPLY),
        (LoggingFedAMS(), ReplyUse.EACH_REPLY),
        (FedAvg(train_metrics_aggr_fn=_first), ReplyUse.EACH_REPLY),
        (FedAMS(train_metrics_aggr_fn=_first), ReplyUse.EACH_REPLY),
        (MajorityVote(), ReplyUse.DIFFERENCES),
        (Differences(), ReplyUse.DIFFERENCES),
        (EF21(), ReplyUse.INCREMENTS),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Strategy) else value.name,
)
def test_a_strategy_uses_replies_as_it_declares_also_inside_dynamic_sampling(strategy: FedAvg, use: ReplyUse) -> None:
    assert reply_use_of(strategy) is use
    assert reply_use_of(DynamicSampling(strategy, beta=0.1)) is use


def test_only_dual_averaging_does_not_start_from_the_published_model() -> None:
    for strategy in (FedAvg(), Krum(), FedAMS(), MajorityVote(), EF21(), QcmdAdagrad()):
        assert starts_from_published(strategy)
    assert not starts_from_published(QrdaAdagrad())
    assert not starts_from_published(DynamicSampling(QrdaAdagrad(), beta=0.1))


@pytest.mark.parametrize(
    "kind", [DifferentialPrivacyClientSideFixedClipping, DifferentialPrivacyServerSideFixedClipping]
)
def test_what_a_strategy_declares_of_its_models_holds_inside_flowers_wrappers(kind: Any) -> None:
    assert not starts_from_published(kind(QrdaAdagrad(), 0.0, 1.0, 2))
    assert not starts_from_published(kind(DynamicSampling(QrdaAdagrad(), beta=0.1), 0.0, 1.0, 2))
    assert starts_from_published(kind(FedAMS(), 0.0, 1.0, 2))


def test_only_strategies_that_sum_increments_can_restart_the_sum() -> None:
    restart(DynamicSampling(EF21(), beta=0.1))
    with pytest.raises(NotImplementedError, match="FedAMS"):
        restart(FedAMS())
    with pytest.raises(TypeError, match="Krum"):
        restart(Krum())
