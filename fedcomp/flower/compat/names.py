"""The names of Flower that fedcomp imports and that Flower does not export: other files import them from here."""

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

__all__ = [
    "KEY_CLIPPING_NORM",
    "AggregationError",
    "ClientAppCallable",
    "ErrorCode",
    "NodeInfo",
    "Run",
    "SType",
    "aggregate_arrayrecords",
    "aggregate_metricrecords",
    "log",
    "make_message",
    "parse_config_args",
    "validate_message_reply_consistency",
]
