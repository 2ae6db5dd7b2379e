"""Dataset cards, their arrays, and the partition of samples among clients."""

from fedcomp.data.card import Card, read_card
from fedcomp.data.dataset import DataError, Dataset, Split
from fedcomp.data.load import load
from fedcomp.data.own import load_own, write_own
from fedcomp.data.partition import partition, partition_train
from fedcomp.data.partition_text import SKEWS, ImageRotation, parse_partition, split_partition
from fedcomp.data.schemes import SCHEMES
from fedcomp.data.spread import Spread, spread

__all__ = [
    "SCHEMES",
    "SKEWS",
    "Card",
    "DataError",
    "Dataset",
    "ImageRotation",
    "Split",
    "Spread",
    "load",
    "load_own",
    "parse_partition",
    "partition",
    "partition_train",
    "read_card",
    "split_partition",
    "spread",
    "write_own",
]
