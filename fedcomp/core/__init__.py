"""What all rooms share: types, the compensated update, the encode context, checks, call texts and random streams."""

from fedcomp.core.call_text import build, format_call, parse_call, parse_setting, split_sum
from fedcomp.core.checks import check_bool, check_choice, check_int, check_range
from fedcomp.core.compensated_update import (
    BLOCK_ENTRIES,
    MAX_FLOAT32,
    MAX_TENSORS,
    CommitRule,
    CompensatedUpdate,
    block_slices,
    move_into_first,
)
from fedcomp.core.context import EncodeContext, Hint, PreviousRound, RightFactors, Shapes
from fedcomp.core.files import (
    DAMAGE,
    Arrays,
    below,
    from_json,
    make_folder,
    names_aside,
    naming,
    octets,
    read_archive,
    to_json,
    write_archive,
    write_atomically,
)
from fedcomp.core.listing import listed
from fedcomp.core.random_stream import RandomStream
from fedcomp.core.registry import Registry
from fedcomp.core.requirement import required
from fedcomp.core.sizes import ceil_fraction, format_bytes
from fedcomp.core.types import Vector, dtype_name, is_numpy, on_host, to_python, use_python_numbers, writeable

__all__ = [
    "BLOCK_ENTRIES",
    "DAMAGE",
    "MAX_FLOAT32",
    "MAX_TENSORS",
    "Arrays",
    "CommitRule",
    "CompensatedUpdate",
    "EncodeContext",
    "Hint",
    "PreviousRound",
    "RandomStream",
    "Registry",
    "RightFactors",
    "Shapes",
    "Vector",
    "below",
    "block_slices",
    "build",
    "ceil_fraction",
    "check_bool",
    "check_choice",
    "check_int",
    "check_range",
    "dtype_name",
    "format_bytes",
    "format_call",
    "from_json",
    "is_numpy",
    "listed",
    "make_folder",
    "move_into_first",
    "names_aside",
    "naming",
    "octets",
    "on_host",
    "parse_call",
    "parse_setting",
    "read_archive",
    "required",
    "split_sum",
    "to_json",
    "to_python",
    "use_python_numbers",
    "write_archive",
    "write_atomically",
    "writeable",
]
