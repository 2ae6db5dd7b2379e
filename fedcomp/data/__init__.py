"""Dataset cards, the arrays behind them, and how clients share them."""

from fedcomp.data.card import Card, read_card
from fedcomp.data.dataset import DataError, Dataset, Split
from fedcomp.data.load import load
from fedcomp.data.own import load_own, write_own
from fedcomp.data.partition import parse_partition, parse_scheme, partition, partition_train
from fedcomp.data.schemes import SCHEMES

__all__ = [
    "SCHEMES",
    "Card",
    "DataError",
    "Dataset",
    "Split",
    "load",
    "load_own",
    "parse_partition",
    "parse_scheme",
    "partition",
    "partition_train",
    "read_card",
    "write_own",
]
