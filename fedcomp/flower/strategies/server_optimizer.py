"""Server optimizers: strategies whose next model is a step from the model that the round's nodes started from.

Under a lossy downlink that is not the model that the last step ended in.  An optimizer moves parameters only; counters and
BatchNorm statistics follow the weighted mean, as in FedAvg.  Sums and moments are float64 whatever the dtype of the model: the
square of a float32 neither overflows nor underflows there, and small terms still count after thousands of rounds.  A complex
tensor is two real numbers an entry, as on the wire.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from logging import INFO, WARNING
from typing import Any, ClassVar, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from fedcomp.flower import records
from fedcomp.flower.compat import AggregationError, aggregate_arrayrecords, content_replies, log, to_record
from fedcomp.flower.records import Messages
from fedcomp.flower.strategies.reply_use import DifferenceRecord, ReplyDeclaration
from fedcomp.flower.strategies.state import StatefulStrategy
from fedcomp.wire import Layout, Tensor, layout_of

Sums = dict[str, NDArray[np.float64]]
"""One array for each parameter tensor: moments, sums of gradients."""


@dataclass(frozen=True)
class RoundResult:
    """The published model, the replies of its nodes, and their weighted means.

    The mean of `DifferenceRecord`s is a difference in its parameters, and the nodes' own in its exact tensors, among them those
    that `exact` names.
    """

    published: Mapping[str, NDArray[Any]]
    replies: tuple[ArrayRecord, ...]
    mean: Mapping[str, NDArray[Any]]
    metrics: MetricRecord
    exact: frozenset[str] = frozenset()

    @cached_property
    def layout(self) -> Layout:
        """The policy of each tensor."""
        return layout_of(self.published, exact=self.exact)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors that an optimizer moves, by name."""
        return {tensor.name: tensor for tensor in self.layout.tensors if tensor.policy == "compressed"}

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the tensors that an optimizer moves."""
        return tuple(self.tensors)

    @property
    def has_differences(self) -> bool:
        """Whether the replies are differences to the published model."""
        return isinstance(self.replies[0], DifferenceRecord)

    def zeros(self) -> Sums:
        """Return a zero for each parameter, in its tensor's shape as real numbers."""
        return {name: np.zeros(tensor.number_shape) for name, tensor in self.tensors.items()}

    def numbers(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """Return `array`, of the tensor `name`, as real numbers: those of a complex one in pairs."""
        return self.tensors[name].values_of(array)

    def start(self, name: str) -> NDArray[np.float64]:
        """Return a copy of the published tensor `name` in float64."""
        return np.array(self.numbers(name, self.published[name]), np.float64)

    def gradient(self, name: str) -> NDArray[np.float64]:
        """Return the pseudo-gradient of the tensor `name`, published minus mean: updates point downhill."""
        if self.has_differences:
            return -np.asarray(self.numbers(name, self.mean[name]), np.float64)
        gradient = self.start(name)
        gradient -= self.numbers(name, self.mean[name])
        return gradient

    def differences(self, name: str) -> Iterator[NDArray[np.float64]]:
        """Yield each reply's difference to the published tensor `name`, float64 and not rounded."""
        for reply in self.replies:
            array = self.numbers(name, reply[name].numpy())
            yield array if self.has_differences else array - self.start(name)

    def next_model(self, parameters: Mapping[str, NDArray[Any]]) -> ArrayRecord:
        """Return the next model: `parameters` in the dtypes of the mean, and the means of the exact tensors, rounded.

        Means are float64, so that no step is lost to the rounding of a narrow model.  A counter that became a float here would
        count as a parameter in the next round.
        """
        rest = Layout(tuple(tensor for tensor in self.layout.tensors if tensor.policy == "exact"))
        _, exact = rest.flatten({tensor.name: self.mean[tensor.name] for tensor in rest.tensors})
        model = rest.unflatten_exact(exact)
        for name, tensor in self.tensors.items():
            model[name] = tensor.shaped(np.asarray(parameters[name])).astype(self.mean[name].dtype)
        return to_record({name: model[name] for name in self.published})


class ServerOptimizer(FedAvg, ReplyDeclaration, StatefulStrategy):
    """FedAvg whose next parameters are those that `apply` returns; by itself it averages.

    From a round's messages to its replies it keeps the model that the nodes start from.  `settings` names the attributes that
    the log shows.
    """

    settings: ClassVar[tuple[str, ...]] = ()
    saved: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **fedavg: Any) -> None:
        super().__init__(**fedavg)
        self.published: ArrayRecord | None = None
        self.exact = frozenset[str]()  # `CompressedStrategy` sets the names of the tensors that no step moves

    def apply(self, result: RoundResult) -> Sums:
        """Return the parameters of the next model, by name."""
        means = {name: np.array(result.numbers(name, result.mean[name]), np.float64) for name in result.parameters}
        return {name: result.start(name) + means[name] for name in means} if result.has_differences else means

    def summary(self) -> None:
        """Log the settings, then the summary of FedAvg."""
        settings = " | ".join(f"{name} {getattr(self, name)}" for name in self.settings)
        log(INFO, "\t├──> %s: %s", type(self).__name__, settings)
        super().summary()

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Messages:
        """Return the messages of FedAvg."""
        self.published = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Messages) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next model and the metrics; (None, None) if no reply has a weight.

        Raises `AggregationError` if the replies' tensors are not those of the published model, or no model was published.
        """
        result = self.round_result(replies)
        return (result.next_model(self.apply(result)), result.metrics) if result is not None else (None, None)

    def round_result(self, replies: Messages) -> RoundResult | None:
        """Return the replies with their published model and means; None if no reply has a weight."""
        published, self.published = self.published, None
        contents = [message.content for message in content_replies(self, replies)]
        metrics = [next(iter(content.metric_records.values())) for content in contents]
        if not sum(cast(float, record[self.weighted_by_key]) for record in metrics):
            if contents:
                log(WARNING, "all weights %r are 0; nothing is aggregated", self.weighted_by_key)
            return None
        if published is None:
            raise AggregationError("aggregate_train needs configure_train first; no model is published in this round")
        arrays = records.to_arrays(published)
        mean = records.to_arrays(aggregate_arrayrecords(contents, self.weighted_by_key))
        if {name: array.shape for name, array in mean.items()} != {name: array.shape for name, array in arrays.items()}:
            raise AggregationError("the replies' tensors are not those of the published model")
        models = tuple(next(iter(content.array_records.values())) for content in contents)
        aggregated = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        return RoundResult(arrays, models, mean, aggregated, self.exact)
