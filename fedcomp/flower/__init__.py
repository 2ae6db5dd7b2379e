"""The only door to Flower: a strategy that wraps any strategy, a mod for any ClientApp, and a grid without Ray."""

from fedcomp.flower.ledger import Ledger
from fedcomp.flower.local_grid import LocalGrid
from fedcomp.flower.mod import CompressionMod
from fedcomp.flower.strategy import CompressedStrategy

__all__ = ["CompressedStrategy", "CompressionMod", "Ledger", "LocalGrid"]
