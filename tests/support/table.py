"""The pairs of features, and which of them are refused."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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

import fedcomp
from fedcomp.flower import EF21, AsyncMode, Clipping, DynamicSampling, FedAMS, MajorityVote, QcmdAdagrad, QrdaAdagrad
from tests.support.federation import NODES, TRAITS, Federation, SeesRecords, Trait

UPLINKS = {
    "nothing": "eden(bits=2)",
    "nothing, signs": "signsgd(step=0.2)",
    "residual": "stc(density=0.3)",
    "decaying residual": "sparseloco(density=0.3)",
    "accumulated error": "ecqsgd(levels=8, norm='max')",
    "residual and factors": "powersgd(rank=4)",
    "residual and last message": "regtopk(density=0.3)",
    "momentum": "dgc(density=0.3, momentum=0.5, warmup=0)",
    "estimate": "ef21(density=0.5)",
    "chosen in each round": "auto()",
    "lossless": "dense()",
}
"""What a sender remembers, and a compressor that does."""


def _private(kind: Callable[..., Strategy], **settings: Any) -> Strategy:
    """Return FedAvg with Flower's differential privacy, with hardly any noise, so that the target is learned."""
    return kind(FedAvg(**settings), noise_multiplier=1e-6, clipping_norm=100.0, num_sampled_clients=NODES)


def _sampled(**settings: Any) -> Strategy:
    return DynamicSampling(FedAvg(**settings), beta=0.01)


def _documented(row: str, column: str, trait: Trait) -> Trait:
    """Return the trait with what holds of it under a feature that changes it."""
    if row == "privacy on the nodes" and column == "frozen tensors":
        return replace(trait, check=lambda first, last: True)
    if row == "privacy on the nodes" and column == "integers and bools":
        return replace(trait, check=lambda first, last: bool(first["steps"] == last["steps"]))
    if row == "privacy on the nodes" and column == "BatchNorm statistics":
        return replace(trait, check=lambda first, last: int(last["norm.num_batches_tracked"]) == 0)
    return trait


Change = Mapping[str, Any]
"""Fields of a `Federation`."""
FEATURES: dict[str, Change] = {
    "rounds": {},
    "async mode": {"settings": {"mode": AsyncMode(buffer=NODES - 1)}},
    "compressed downlink": {"downlink": "stc(density=0.3)"},
    "chosen downlink": {"downlink": "balanced(stc(density=0.3))"},
    "FedAvgM": {"strategy": partial(FedAvgM, server_momentum=0.1)},
    "FedAdam": {"strategy": partial(FedAdam, eta=0.2)},
    "FedMedian": {"strategy": FedMedian},
    "Krum": {"strategy": partial(Krum, num_malicious_nodes=1)},
    "EF21": {"strategy": partial(EF21, eta=0.3)},
    "FedAMS": {"strategy": partial(FedAMS, eta=0.1, beta_1=0.5, beta_2=0.9)},
    "MajorityVote": {"strategy": partial(MajorityVote, step=0.2)},
    "QcmdAdagrad": {"strategy": partial(QcmdAdagrad, eta=0.5)},
    "QrdaAdagrad": {"strategy": partial(QrdaAdagrad, eta=0.5)},
    "DynamicSampling": {"strategy": _sampled},
    "clipping": {"settings": {"clipping": Clipping(100, 10)}},
    "privacy on the server": {"strategy": partial(_private, DifferentialPrivacyServerSideFixedClipping)},
    "privacy on the nodes": {"strategy": partial(_private, DifferentialPrivacyClientSideFixedClipping)},
    "checkpoint and resume": {"resumed": True},
    "further records": {
        "strategy": SeesRecords,
        "settings": {"records": {"control": fedcomp.eden(bits=4)}},
        "record": True,
    },
}
"""Each feature of a run, as it changes a `Federation`."""
NOTES = {
    (
        "privacy on the nodes",
        "frozen tensors",
    ): "the noise moves them, as in Flower",
    (
        "privacy on the nodes",
        "integers and bools",
    ): "they stay as published: one step of a counter is longer than most norms",
    ("privacy on the nodes", "BatchNorm statistics"): "counters of batches stay as published",
}
"""What a feature changes of a trait."""
INCREMENTAL, WHOLE = "estimate", "EF21"
REFUSED = {
    *(
        (row, WHOLE)
        for row in (*UPLINKS, "async mode", "compressed downlink", "checkpoint and resume")
        if row != INCREMENTAL
    ),
    *((INCREMENTAL, column) for column, change in FEATURES.items() if change.get("strategy") and column != WHOLE),
    *((INCREMENTAL, column) for column in ("async mode", "clipping")),
    *(
        (row, "masked tensors")
        for row in ("residual and factors", "residual and last message", "momentum", INCREMENTAL)
    ),
    ("nothing, signs", "privacy on the nodes"),
    ("async mode", "privacy on the nodes"),
    ("async mode", "privacy on the server"),
    ("privacy on the nodes", "async mode"),
}
"""The pairs (row, column) that a sentence refuses; all others work."""


@dataclass(frozen=True)
class Pair:
    """Two features, and the federation that has both."""

    row: str
    column: str
    federation: Federation


def pairs() -> dict[str, list[Pair]]:
    """Return the pairs of each table by its title."""
    tables: dict[str, list[Pair]] = {
        "What the uplink remembers": [],
        "Traits of the model": [],
        "Pairs of run features": [],
    }
    for row, text in UPLINKS.items():
        base = Federation(uplink=text)
        if text.startswith("ef21"):
            base = replace(base, strategy=partial(EF21, eta=0.3))
        for column, change in FEATURES.items():
            tables["What the uplink remembers"].append(Pair(row, column, _joined(base, change)))
        for column, trait in TRAITS.items():
            tables["Traits of the model"].append(Pair(row, column, replace(base, trait=trait)))
    for row in ("async mode", "compressed downlink", "privacy on the nodes", "checkpoint and resume", "FedMedian"):
        for column, trait in TRAITS.items():
            found = replace(_joined(Federation(), FEATURES[row]), trait=_documented(row, column, trait))
            tables["Traits of the model"].append(Pair(row, column, found))
        for column, change in FEATURES.items():
            if column != row and not ("strategy" in change and "strategy" in FEATURES[row]):
                tables["Pairs of run features"].append(
                    Pair(row, column, _joined(_joined(Federation(), FEATURES[row]), change))
                )
    return tables


def _joined(base: Federation, change: Change) -> Federation:
    settings = {**base.settings, **change.get("settings", {})}
    return replace(base, **{**change, "settings": settings})
