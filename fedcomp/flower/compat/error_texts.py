"""Texts and codes of errors from which something follows: Flower passes no other sign of what went wrong on a node."""

import re

from flwr.app import Error
from flwr.common.constant import ErrorCode

UNAVAILABLE = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
"""The error codes that Flower gives for a node that does not answer."""
RAISED = (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, ErrorCode.LOAD_CLIENT_APP_EXCEPTION)
"""The error codes that Flower gives for an exception of a ClientApp."""


def error_of_app(error: Exception) -> Error:
    """Return the error of a reply whose ClientApp has raised `error`, as a SuperNode makes it."""
    return Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(error)}:<'{error}'>")


def raised_text(error: Error) -> str | None:
    """Return the text of the exception of a ClientApp in a reply's `error`; None for an error of another kind."""
    if error.code not in RAISED:
        return None
    text = error.reason or ""
    wrapped = re.fullmatch(r"<class '[\w.]+'>:<'(.*)'>", text, re.DOTALL)
    return wrapped[1] if wrapped else text


def is_about_array_type(error: Error, stype: str) -> bool:
    """Return whether an app raised `error` because it read an Array of the type `stype`: ``Array.numpy`` names the type."""
    return f"'{stype}'" in str(error.reason)


def is_of_old_client(error: Error) -> bool:
    """Return whether an app raised `error` because its clients are of the API before the Message API, as NumPyClient is."""
    return any(f"'{name}.parameters'" in str(error.reason) for name in ("fitins", "evaluateins"))


def is_about_bfloat16(error: TypeError) -> bool:
    """Return whether ``ArrayRecord(...)`` raised `error` because a torch tensor is of bfloat16, which numpy lacks."""
    return "BFloat16" in str(error)
