"""Split learning in Flower: `SplitTraining` on the server, and `SplitClient` in the ClientApp."""

from fedcomp.flower.split.client import SplitClient, Start
from fedcomp.flower.split.training import ACTION, LowerParts, SplitTraining

__all__ = ["ACTION", "LowerParts", "SplitClient", "SplitTraining", "Start"]
