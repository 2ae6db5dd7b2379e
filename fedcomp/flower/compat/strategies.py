"""What follows from the classes and attributes of Flower's strategies, and of those that users derive from them."""

import inspect
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast

from flwr.app import ArrayRecord, Message
from flwr.serverapp.strategy import (
    Bulyan,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Strategy,
)

OLD_API = ("flwr.server.", "flwr.compat.")
"""The packages of strategies before Flower's Message API."""
AVERAGING = frozenset(kind.aggregate_train for kind in (FedAvg, FedAvgM, FedProx, FedAdagrad, FedAdam, FedYogi))
"""The `aggregate_train` methods of Flower that read only the weighted mean of the valid replies."""
SQUARING = frozenset(kind.aggregate_train for kind in (FedAdagrad, FedAdam, FedYogi))
"""The `aggregate_train` methods of Flower that square a complex number as it is: the root of the sum has no use as a scale."""
BY_ENTRY = frozenset(kind.aggregate_train for kind in (Bulyan, FedMedian, FedTrimmedAvg))
"""The `aggregate_train` methods of Flower that take a median of each entry, or a mean without the largest and the smallest."""
STEPS = ("summary", "configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")
"""The methods that `Strategy.start` calls."""
Kind = TypeVar("Kind")


def content_replies(strategy: FedAvg, replies: Iterable[Message]) -> list[Message]:
    """Return the training replies that carry no error, after Flower's own log lines and consistency checks."""
    replies = list(replies)
    valid, _ = strategy._check_and_log_replies(replies, is_train=True)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return valid


def is_of_old_api(strategy: object) -> bool:
    """Return whether `strategy` is one of Flower's old API, or derived from one."""
    return any(kind.__name__ == "Strategy" and kind.__module__.startswith(OLD_API) for kind in type(strategy).__mro__)


def is_library_code(code: object) -> bool:
    """Return whether the class or function `code` is of Flower or fedcomp, and not a user's."""
    return (getattr(code, "__module__", "") or "").startswith(("flwr.", "fedcomp."))


def attributes(strategy: Strategy) -> dict[str, Any]:
    """Return name -> value of the attributes of `strategy`, in which all of its state is; writing to it changes them."""
    return vars(strategy)


def code_of(strategy: Strategy, method: str) -> object:
    """Return the function that `strategy` calls as `method`: that of its class, or one that was set on the object."""
    bound = getattr(strategy, method)
    return getattr(bound, "__func__", bound)


def leaves_replies_out(strategy: FedAvg) -> bool:
    """Return whether a user's code decides which replies `strategy` aggregates."""
    checks = FedAvg._check_and_log_replies  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return code_of(strategy, checks.__name__) is not checks


def nested_strategies(
    strategy: Strategy, path: str = "inner", around: tuple[Strategy, ...] = ()
) -> Iterator[tuple[str, Strategy]]:
    """Yield `strategy` and those that it wraps, each with its path: a wrapper holds them in attributes.

    `around` are those that wrap `strategy`: if it refers to one of them, as a child to its parent, that is not inside it.
    """
    yield path, strategy
    around = (*around, strategy)
    for name, value in attributes(strategy).items():
        if isinstance(value, Strategy) and not any(value is each for each in around):
            yield from nested_strategies(value, f"{path}/{name}", around)


def step_from(strategy: Strategy, arrays: ArrayRecord) -> None:
    """Let FedAvgM, alone or wrapped, make its next step from `arrays`: it would continue from the model that it made."""
    for _, each in nested_strategies(strategy):
        if isinstance(each, FedAvgM) and each.current_arrays is not None:
            each.current_arrays = arrays


def callers(kinds: tuple[type[Kind], ...]) -> Iterator[Kind]:
    """Yield the objects of `kinds` whose methods are being called, the innermost first.

    A strategy that wraps another one passes nothing on that names it, so its call is looked up in the stack.
    """
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, kinds):
            yield caller
        frame = frame.f_back


def overrides_start(strategy: Strategy) -> bool:
    """Return whether `strategy` has a `start` of its own."""
    return code_of(strategy, "start") is not Strategy.start


def with_steps_of(outer: Strategy, inner: Strategy) -> Strategy:
    """Return an object of the class of `inner`, which shares all its attributes, with the `STEPS` of `outer`.

    So the `start` of `inner` runs as it is, on the attributes of `inner`, and calls the steps of `outer`; these call those of
    `inner`, which is itself unchanged.

    Raises `ValueError` if one of these methods was set on the object `inner`, but for `summary`, which sends nothing.
    """
    kind = type(inner)
    if fixed := sorted(({"start", *STEPS} - {"summary"}) & attributes(inner).keys()):
        raise ValueError(
            f"{', '.join(fixed)} of the {kind.__name__} is set on the object, where compression cannot take its place beside a "
            "start of its own; override it in a class"
        )
    steps = {name: staticmethod(getattr(outer, name)) for name in STEPS}
    double: Any = object.__new__(type(kind.__name__, (kind,), steps))
    object.__setattr__(double, "__dict__", attributes(inner))
    return cast(Strategy, double)
