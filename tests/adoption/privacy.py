"""Differential privacy: nodes clip their updates, and the server adds noise, as in Flower's guide."""

from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg

from tests.adoption import pytorch
from tests.adoption.quickstart import NODES, Quickstart

QUICKSTART = Quickstart(
    initial=pytorch.QUICKSTART.initial,
    train=pytorch.train,
    score=pytorch.QUICKSTART.score,
    mods=(fixedclipping_mod,),
    strategy=lambda: DifferentialPrivacyClientSideFixedClipping(
        FedAvg(fraction_evaluate=0.0), noise_multiplier=0.001, clipping_norm=3.0, num_sampled_clients=NODES
    ),
    rounds=12,
)
