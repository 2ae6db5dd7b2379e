"""A server's step from the published model: what those strategies share that do more with the replies than average them.

A step starts from the arrays that the round's nodes started from: under a lossy downlink they are not the ones that the last
step ended in, so no strategy here goes on from a model of its own.  It moves the parameters alone; counters and BatchNorm
statistics are no direction to go in, they follow the plain weighted mean, as in FedAvg.

The strategies' sums and moments are float64, whatever the model is: the square of a float32 neither overflows nor vanishes
there, and what is added over thousands of rounds is not swallowed by what is there already.  They are on the server alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from logging import WARNING
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from fedcomp.flower import records
from fedcomp.flower._compat import AggregationError, aggregate_arrayrecords, content_replies, log
from fedcomp.flower.lazy_array import to_record
from fedcomp.flower.strategies.reply_use import DifferenceRecord, ReplyDeclaration
from fedcomp.flower.strategies.state import StatefulStrategy, StateValue, StrategyState
from fedcomp.wire import Layout, layout_of

Sums = dict[str, NDArray[np.float64]]
"""An array a parameter tensor: moments, sums of gradients."""


@dataclass(frozen=True)
class RoundResult:
    """The published model, what came back from its nodes, and the weighted mean of that."""

    published: Mapping[str, NDArray[Any]]
    replies: tuple[ArrayRecord, ...]
    mean: Mapping[str, NDArray[Any]]
    metrics: MetricRecord

    @cached_property
    def layout(self) -> Layout:
        """What becomes of each tensor."""
        return layout_of(self.published)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The tensors that a step moves, by name."""
        return tuple(tensor.name for tensor in self.layout.tensors if tensor.policy == "compressed")

    def zeros(self) -> Sums:
        """Return sums of nothing."""
        return {name: np.zeros(self.published[name].shape) for name in self.parameters}

    def begin(self, name: str) -> NDArray[np.float64]:
        """Return a parameter as it was published, float64."""
        return np.array(self.published[name], np.float64)

    def gradient(self, name: str) -> NDArray[np.float64]:
        """Return what the papers' servers call the gradient: published minus mean, for an update goes downhill."""
        gradient = self.begin(name)
        gradient -= self.mean[name]
        return gradient

    def differences(self, name: str) -> Iterator[NDArray[np.float64]]:
        """Yield the difference of each reply's parameter `name` to the published one, float64, exactly as the node sent it."""
        published = self.begin(name)
        for reply in self.replies:
            array = reply[name].numpy()
            yield array if isinstance(reply, DifferenceRecord) else array - published

    def end(self, moved: Mapping[str, NDArray[Any]]) -> ArrayRecord:
        """Return the next model, in the published one's dtypes: the parameters as `moved`, the rest as the mean, rounded.

        A counter that came out of here as a float would be taken for a parameter in the next round.
        """
        rest = Layout(tuple(tensor for tensor in self.layout.tensors if tensor.policy == "exact"))
        _, exact = rest.flatten({tensor.name: self.mean[tensor.name] for tensor in rest.tensors})
        model = rest.unflatten_exact(exact)
        for name in self.parameters:
            model[name] = np.asarray(moved[name]).astype(self.published[name].dtype)
        return to_record({name: model[name] for name in self.published})


class ServerOptimizer(FedAvg, ReplyDeclaration, StatefulStrategy):
    """FedAvg that knows, from a round's messages to its replies, which model its nodes started from.

    Which model comes next, `moved` says: by itself it is the weighted mean.
    """

    def __init__(self, **fedavg: Any) -> None:
        """Make it with the settings of Flower's FedAvg."""
        super().__init__(**fedavg)
        self.published: ArrayRecord | None = None

    def state(self) -> StrategyState:
        """Return the sums and moments that this optimizer keeps between rounds; by itself it keeps none."""
        return {}

    def restore(self, state: Mapping[str, StateValue]) -> None:
        """Continue from what `state` returned."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return FedAvg's messages."""
        self.published = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next model and the metrics; neither if none trained, or nothing that has a weight."""
        step = self.round_result(replies)
        return (None, None) if step is None else (step.end(self.moved(step)), step.metrics)

    def moved(self, step: RoundResult) -> Sums:
        """Return the parameters of the next model."""
        return {name: np.array(step.mean[name], np.float64) for name in step.parameters}

    def round_result(self, replies: Iterable[Message]) -> RoundResult | None:
        """Return what the replies give to step with; None if none trained, or nothing that has a weight.

        Raises `AggregationError` where the replies do not fit the published model, or nothing was published.
        """
        begun, self.published = self.published, None
        contents = [message.content for message in content_replies(self, replies)]
        metrics = [next(iter(content.metric_records.values())) for content in contents]
        if not sum(cast(float, record[self.weighted_by_key]) for record in metrics):
            if contents:
                log(WARNING, "all weights %r are 0; nothing is aggregated", self.weighted_by_key)
            return None
        if begun is None:
            raise AggregationError("replies to a round that configure_train did not begin")
        published = records.to_arrays(begun)
        mean = records.to_arrays(aggregate_arrayrecords(contents, self.weighted_by_key))
        shapes = {name: array.shape for name, array in published.items()}
        if {name: array.shape for name, array in mean.items()} != shapes:
            raise AggregationError("the replies' tensors are not those of the published model")
        models = tuple(next(iter(content.array_records.values())) for content in contents)
        if models and isinstance(models[0], DifferenceRecord):
            for tensor in layout_of(published).tensors:
                if tensor.policy == "compressed":
                    mean[tensor.name] = published[tensor.name] + mean[tensor.name]
        return RoundResult(published, models, mean, self.train_metrics_aggr_fn(contents, self.weighted_by_key))
