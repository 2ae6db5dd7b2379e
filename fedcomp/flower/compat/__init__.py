"""Everything that fedcomp uses of Flower and that Flower does not promise to keep, checked against flwr 1.40 to 1.42.

Flower promises what ``flwr.app``, ``flwr.clientapp``, ``flwr.serverapp`` and ``flwr.serverapp.strategy`` export.  Everything
else is imported, or worked around, in this room and nowhere else.  Each function has a test that fails when Flower changes
what the function depends on.  `README.md` in this folder says how to raise Flower to the next version.
"""

from flwr.app.message.message import make_message
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.config import parse_config_args
from flwr.common.constant import ErrorCode, SType
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp.exception import AggregationError
from flwr.serverapp.strategy.strategy_utils import (
    aggregate_arrayrecords,
    aggregate_metricrecords,
    validate_message_reply_consistency,
)
from flwr.supercore import log
from flwr.supercore.differential_privacy import KEY_CLIPPING_NORM
from flwr.supercore.run import Run

from fedcomp.flower.compat.error_texts import (
    UNAVAILABLE,
    error_of_app,
    is_about_array_type,
    is_about_bfloat16,
    is_of_old_client,
    raised_text,
)
from fedcomp.flower.compat.grid_wrapper import GridWrapper, clock_of
from fedcomp.flower.compat.lazy_array import JoinedArray, LazyArray, record_of, to_record, to_torch, view_record
from fedcomp.flower.compat.messages import (
    check_object,
    record_from_bytes,
    record_from_objects,
    record_to_bytes,
    record_to_objects,
    set_message_id,
    set_task_identity,
)
from fedcomp.flower.compat.random_state import IsolatedRandom, RngPreservingGrid
from fedcomp.flower.compat.strategies import (
    AVERAGING,
    BY_ENTRY,
    SQUARING,
    attributes,
    callers,
    code_of,
    content_replies,
    is_library_code,
    is_of_old_api,
    leaves_replies_out,
    nested_strategies,
    overrides_start,
    step_from,
    with_steps_of,
)
from fedcomp.flower.compat.virtual_time import Clock, NodeSpeed, Speeds, WallClock

__all__ = [
    "AVERAGING",
    "BY_ENTRY",
    "KEY_CLIPPING_NORM",
    "SQUARING",
    "UNAVAILABLE",
    "AggregationError",
    "ClientAppCallable",
    "Clock",
    "ErrorCode",
    "GridWrapper",
    "IsolatedRandom",
    "JoinedArray",
    "LazyArray",
    "NodeInfo",
    "NodeSpeed",
    "RngPreservingGrid",
    "Run",
    "SType",
    "Speeds",
    "WallClock",
    "aggregate_arrayrecords",
    "aggregate_metricrecords",
    "attributes",
    "callers",
    "check_object",
    "clock_of",
    "code_of",
    "content_replies",
    "error_of_app",
    "is_about_array_type",
    "is_about_bfloat16",
    "is_library_code",
    "is_of_old_api",
    "is_of_old_client",
    "leaves_replies_out",
    "log",
    "make_message",
    "nested_strategies",
    "overrides_start",
    "parse_config_args",
    "raised_text",
    "record_from_bytes",
    "record_from_objects",
    "record_of",
    "record_to_bytes",
    "record_to_objects",
    "set_message_id",
    "set_task_identity",
    "step_from",
    "to_record",
    "to_torch",
    "validate_message_reply_consistency",
    "view_record",
    "with_steps_of",
]
