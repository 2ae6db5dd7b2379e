"""fedcomp: federated learning that is cheap to send."""

from fedcomp.compressor import Compressor
from fedcomp.errors import FedcompError
from fedcomp.methods import METHODS, dense, parse, stc

__all__ = ["METHODS", "Compressor", "FedcompError", "dense", "parse", "stc"]
