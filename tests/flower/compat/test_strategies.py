"""What the classes and attributes of Flower's strategies tell."""

import ast
import inspect
import textwrap
from types import FunctionType
from typing import Any, cast

import flwr.server.strategy as old_api
import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, FedAvgM, Result, Strategy

from fedcomp.flower.compat import (
    AVERAGING,
    SQUARING,
    ErrorCode,
    attributes,
    callers,
    code_of,
    content_replies,
    is_library_code,
    is_of_old_api,
    leaves_replies_out,
    nested_strategies,
    overrides_start,
    set_task_identity,
    step_from,
    with_steps_of,
)
from fedcomp.flower.compat.strategies import STEPS

CLASSES = [kind for kind in vars(flower).values() if inspect.isclass(kind) and issubclass(kind, Strategy)]


class Mine(FedAvg):
    """A user's strategy with a `start` of its own."""

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *args: Any, **settings: Any) -> Result:
        """Call two steps, and keep a number."""
        self.summary()
        self.kept = self.configure_evaluate(1, initial_arrays, cast(Any, None), grid)
        return Result()


def _reply(weight: float, value: float) -> Message:
    set_task_identity(1)
    arrays = ArrayRecord({"w": Array(np.full(2, value))})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": weight})})
    return Message(content, reply_to=Message(RecordDict(), dst_node_id=1, message_type="train"))


def test_the_state_of_every_strategy_is_in_its_attributes() -> None:
    assert len(CLASSES) > 15
    assert not [kind for kind in CLASSES if any("__slots__" in vars(base) for base in kind.__mro__[:-2])]
    strategy = FedAvg()
    attributes(strategy)["fraction_train"] = 0.25
    assert strategy.fraction_train == 0.25


def test_a_wrapper_holds_the_strategy_in_an_attribute() -> None:
    inner = FedAvg()
    wrapped = DifferentialPrivacyServerSideFixedClipping(inner, 1.0, 1.0, 2)
    assert list(nested_strategies(wrapped)) == [("inner", wrapped), ("inner/strategy", inner)]
    inner.parent = wrapped  # type: ignore[attr-defined]
    assert list(nested_strategies(wrapped)) == [("inner", wrapped), ("inner/strategy", inner)]


def test_start_calls_the_steps_and_no_other_method_of_the_strategy() -> None:
    tree = ast.parse(textwrap.dedent(inspect.getsource(Strategy.start)))
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    own = {call.attr for call in calls if isinstance(call, ast.Attribute) and getattr(call.value, "id", "") == "self"}
    assert own == set(STEPS)


def test_an_object_with_other_steps_shares_the_attributes_and_leaves_the_strategy_as_it_is() -> None:
    class Outer(FedAvg):
        """Its steps say that they ran."""

        def summary(self) -> None:
            """Log nothing."""

        def configure_evaluate(self, *_: Any, **__: Any) -> Any:
            """Return a text."""
            return "outer"

    inner = Mine()
    double = with_steps_of(Outer(), inner)
    assert isinstance(double, Mine)
    double.start(cast(Grid, None), ArrayRecord())
    assert cast(object, inner.kept) == "outer"
    inner.fraction_train = 0.5
    assert double.fraction_train == 0.5
    assert inner.configure_evaluate.__func__ is FedAvg.configure_evaluate  # type: ignore[attr-defined]
    assert overrides_start(inner)
    assert not [kind for kind in CLASSES if kind.start is not Strategy.start]


def test_momentum_steps_from_the_model_that_it_is_given() -> None:
    strategy = FedAvgM(server_learning_rate=0.5, server_momentum=0.0)
    strategy.current_arrays = ArrayRecord({"w": Array(np.zeros(2))})
    step_from(DifferentialPrivacyServerSideFixedClipping(strategy, 1.0, 1.0, 2), ArrayRecord({"w": Array(np.ones(2))}))
    arrays, _ = strategy.aggregate_train(1, [_reply(1, 3.0)])
    assert arrays is not None
    assert arrays["w"].numpy().tolist() == [2.0, 2.0]
    fresh = FedAvgM()
    step_from(fresh, ArrayRecord())
    assert fresh.current_arrays is None


def test_callers_are_the_objects_whose_methods_run_from_the_inside_out() -> None:
    class Asking(FedAvg):
        """Finds who calls it."""

        def configure_evaluate(self, *_: Any, **__: Any) -> Any:
            """Keep the callers."""
            self.found = list(callers((FedAvg, DifferentialPrivacyServerSideFixedClipping)))

    inner = Asking()
    outer = DifferentialPrivacyServerSideFixedClipping(inner, 1.0, 1.0, 2)
    outer.configure_evaluate(1, ArrayRecord(), cast(Any, None), cast(Grid, None))
    assert inner.found == [inner, outer]


def test_replies_with_errors_are_left_out() -> None:
    set_task_identity(1)
    message = Message(RecordDict(), dst_node_id=2, message_type="train")
    failed = Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)
    replies = [_reply(1, 0.0), failed, _reply(2, 1.0)]
    assert content_replies(FedAvg(), replies) == [replies[0], replies[2]]


@pytest.mark.parametrize("strategy", [old_api.FedAvg(), old_api.Krum()])
def test_a_strategy_of_the_old_api_is_known_by_its_package(strategy: object) -> None:
    assert is_of_old_api(strategy)
    assert not is_of_old_api(FedAvg())


def test_code_of_libraries_is_known_by_its_module() -> None:
    assert is_library_code(FedAvg.aggregate_train)
    assert is_library_code(FedAvg)
    assert not is_library_code(Mine)
    assert not is_library_code(Mine.start)
    made = FunctionType(compile("0", "", "eval"), {})
    assert made.__module__ is None
    assert not is_library_code(made)


def test_subclasses_that_only_average_share_the_methods_that_do() -> None:
    """`tests/flower/strategies/test_flower_strategies.py` shows that one merged reply gives them the same model."""
    assert SQUARING < AVERAGING
    assert type("Derived", (FedAvgM,), {}).aggregate_train in AVERAGING  # type: ignore[attr-defined]
    assert Mine.aggregate_train in AVERAGING
    assert cast(Any, flower.FedMedian.aggregate_train) not in AVERAGING


def test_code_of_users_is_found_in_the_class_and_on_the_object() -> None:
    class Filtering(FedAvg):
        """Leaves replies out."""

        def _check_and_log_replies(self, *_: Any, **__: Any) -> Any:
            """Return none."""
            return [], []

    def replaced(server_round: int, replies: Any) -> Any:
        """Aggregate nothing."""

    strategy = FedAvg()
    strategy.aggregate_train = replaced  # type: ignore[method-assign]
    assert code_of(strategy, "aggregate_train") is replaced
    assert code_of(FedAvg(), "aggregate_train") is FedAvg.aggregate_train
    assert leaves_replies_out(Filtering())
    assert not leaves_replies_out(Mine())
    assert not leaves_replies_out(flower.FedMedian())
