"""Whether a strategy fits the compressors of its two links, and the dtypes of its model."""

from logging import WARNING

from flwr.serverapp.strategy import Strategy

from fedcomp.compressor import Compressor
from fedcomp.flower.compat import BY_ENTRY, SQUARING, code_of, is_of_old_api, log, nested_strategies
from fedcomp.flower.server.dp_strategies import check_bound
from fedcomp.flower.strategies.dynamic_sampling import aggregating
from fedcomp.flower.strategies.reply_use import ReplyDeclaration, ReplyUse, reply_use_of
from fedcomp.methods import METHODS
from fedcomp.sync import Clipping
from fedcomp.wire import COMPLEX, Layout, codec_id

LEAST_DENSITY = 0.5
"""With a smaller share of the entries in each update, the median of an entry is 0, unless the updates hold the same entries."""


def check_links(inner: Strategy, uplink: Compressor, downlink: Compressor, clipping: Clipping | None = None) -> None:
    """Raise `ValueError` for a compressor on a link that it is not made for, and for increments clipped or not summed."""
    if is_of_old_api(inner):
        raise ValueError(
            f"the inner strategy is the {type(inner).__name__} of {type(inner).__module__}, Flower's old API; "
            "use one of flwr.serverapp.strategy"
        )
    if not isinstance(inner, Strategy):
        raise ValueError(f"the inner strategy is {inner!r}; an instance of a flwr Strategy is needed")
    for compressor, link in ((uplink, "uplink"), (downlink, "downlink")):
        if not isinstance(compressor, Compressor):
            raise ValueError(f"{compressor!r} is no compressor; fedcomp.parse makes one from text")
        codec_id(compressor.entropy)  # raises for a code without a number
        if compressor.name in METHODS and not getattr(METHODS.about(compressor.name), link):
            raise ValueError(f"{compressor} does not work as {link}; `fedcomp methods` lists those that do")
    sums = reply_use_of(inner) is ReplyUse.INCREMENTS
    inside = [each for _, each in nested_strategies(inner) if isinstance(each, ReplyDeclaration)]
    if not sums and (summing := [each for each in inside if each.reply_use is ReplyUse.INCREMENTS]):
        raise ValueError(
            f"{type(summing[0]).__name__} inside {type(aggregating(inner)).__name__} would get models, and it sums the "
            "increments that nodes send; it cannot be wrapped"
        )
    if uplink.memory.incremental != sums:
        sends, needs = ("whole updates", "increments") if sums else ("increments of an estimate", "whole updates")
        raise ValueError(
            f"uplink {uplink} sends {sends}, and {type(aggregating(inner)).__name__} needs {needs}; "
            "the uplink ef21 and the strategy EF21 belong together"
        )
    if sums and clipping:
        raise ValueError("clipping does not go with EF21: its sum would no longer hold what the nodes have sent")
    check_bound(inner, uplink)


def warn_of_sparse(inner: Strategy, uplink: Compressor) -> None:
    """Log that a strategy which compares the updates entry by entry gets sparse ones: of most entries, most updates say 0."""
    found = next((each for _, each in nested_strategies(inner) if code_of(each, "aggregate_train") in BY_ENTRY), None)
    density = dict(uplink.settings).get("density")
    if found is not None and isinstance(density, int | float) and density < LEAST_DENSITY:
        text = (
            "fedcomp: %s compares the updates of each entry, and with the uplink %s most are 0; eden(bits=2) sends all"
        )
        log(WARNING, text, type(found).__name__, uplink)


def check_dtypes(inner: Strategy, layout: Layout) -> None:
    """Raise `ValueError` for a strategy of Flower that does not train the complex tensors of the model."""
    found = next((tensor for tensor in layout.tensors if tensor.dtype in COMPLEX), None)
    squaring = next((each for _, each in nested_strategies(inner) if type(each).aggregate_train in SQUARING), None)
    if found is not None and squaring is not None:
        raise ValueError(
            f"tensor {found.name!r} is {found.dtype}, and {type(squaring).__name__} squares complex numbers instead of their "
            "parts, so it does not learn; fedcomp.flower.FedAMS or FedAvg is needed"
        )
