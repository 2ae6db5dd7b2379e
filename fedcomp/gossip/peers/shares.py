"""Shares of calls: no caller takes the places of another caller."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NoReturn

import grpc


class Shares:
    """At most `each` calls at a time of one caller, and at most `total` of all."""

    def __init__(self, each: int, total: int) -> None:
        self._each, self._total, self._lock = each, total, Lock()
        self._taken: Counter[object] = Counter()

    @contextmanager
    def of(self, caller: object, context: Any) -> Generator[None]:
        """Hold a place for a call of `caller`; end the call with RESOURCE_EXHAUSTED if there is none."""
        with self._lock:
            is_free = self._taken[caller] < self._each and self._taken.total() < self._total
            self._taken[caller] += is_free
        if not is_free:
            text = f"too many calls wait for an answer: {self._each} of one caller and {self._total} of all may"
            refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        try:
            yield
        finally:
            with self._lock:
                self._taken[caller] -= 1
                self._taken += Counter()  # drops callers without a call


def names_in(context: Any) -> list[bytes]:
    """Return the common names in the caller's certificate; an empty list in plain text."""
    names: list[bytes] = context.auth_context().get("x509_common_name", [])
    return names


def refuse(context: Any, code: Any, text: str) -> NoReturn:
    """End a call with a status."""
    context.abort(code, text)  # raises
    raise AssertionError(text)
