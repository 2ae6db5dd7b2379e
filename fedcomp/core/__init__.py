"""What all rooms share: types, the compensated update, the encode context, checks, call texts and random streams."""

from fedcomp.core.atomic_file import write_atomically
from fedcomp.core.call import build, format_call, parse_call
from fedcomp.core.checks import check_bool, check_choice, check_int, check_range
from fedcomp.core.compensated_update import BLOCK_ENTRIES, MAX_FLOAT32, CompensatedUpdate
from fedcomp.core.context import NO_CONTEXT, EncodeContext, Shapes
from fedcomp.core.random_stream import RandomStream
from fedcomp.core.types import Stage, Vector, chain, dtype_name

__all__ = [
    "BLOCK_ENTRIES",
    "MAX_FLOAT32",
    "NO_CONTEXT",
    "CompensatedUpdate",
    "EncodeContext",
    "RandomStream",
    "Shapes",
    "Stage",
    "Vector",
    "build",
    "chain",
    "check_bool",
    "check_choice",
    "check_int",
    "check_range",
    "dtype_name",
    "format_call",
    "parse_call",
    "write_atomically",
]
