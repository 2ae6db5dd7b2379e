"""What a node keeps of its training between rounds, in its ``Context.state``: momentum, and the state of training plug-ins.

With ``state-dir`` it survives a restart of the node, as everything that a ClientApp keeps in ``Context.state`` does.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, RecordDict

from fedcomp.flower.compat import to_record, to_torch
from fedcomp.wire import to_numpy

if TYPE_CHECKING:
    from torch import Tensor  # the server does without it

KEY, METADATA = "training", "training.metadata"


def save_training_state(records: RecordDict, state: "Mapping[str, Mapping[str, Tensor]]", server_round: int) -> None:
    """Keep `state` in `records`, the ``Context.state`` of a node, in place of what is there; an empty one removes it.

    Args:
        records: Those of the node; what others keep in them stays.
        state: Tensors by name, by the part that they belong to: what `fedcomp.training.LocalRound.end` returns, and parts of
            your own, such as ``"momentum"``.
        server_round: The round that the state is from.

    Raises:
        ValueError: The name of a part has a slash; that of a tensor may have some.  Or numpy has no array for a tensor, such as
            one of float8, or a value is no tensor.  Sparse tensors are kept dense.

    """
    for part in state:
        if "/" in part:
            raise ValueError(f"a part of the training state is {part!r}; a name without a slash is needed")
    arrays = {
        f"{part}/{name}": _to_array(f"{part}/{name}", tensor)
        for part, tensors in state.items()
        for name, tensor in tensors.items()
    }
    if arrays:
        records[KEY] = to_record(arrays)
        records[METADATA] = ConfigRecord({"round": server_round})
    elif KEY in records:
        del records[KEY], records[METADATA]


def _to_array(name: str, tensor: "Tensor") -> Any:
    if not hasattr(tensor, "layout"):
        raise ValueError(f"{name!r} of the training state has the type {type(tensor).__name__}; a tensor is needed")
    try:
        return to_numpy(tensor if str(tensor.layout) == "torch.strided" else tensor.to_dense())
    except TypeError as error:
        raise ValueError(
            f"the tensor {name!r} of the training state is {tensor.dtype}, which numpy lacks: {error}"
        ) from None


def load_training_state(records: RecordDict) -> "tuple[dict[str, dict[str, Tensor]], int]":
    """Return a copy of the state that `save_training_state` kept, on the CPU, and its round; ``{}`` and 0 if there is none.

    Examples:
        >>> import torch
        >>> from flwr.app import RecordDict
        >>> from fedcomp.flower import load_training_state, save_training_state
        >>> records = RecordDict()
        >>> load_training_state(records)
        ({}, 0)
        >>> save_training_state(records, {"momentum": {"weight": torch.tensor([0.5, -1.0])}}, server_round=3)
        >>> load_training_state(records)
        ({'momentum': {'weight': tensor([ 0.5000, -1.0000])}}, 3)

    """
    if KEY not in records.array_records or METADATA not in records.config_records:
        return {}, 0
    state: dict[str, dict[str, Tensor]] = {}
    for key, tensor in to_torch(records.array_records[KEY]).items():
        part, _, name = key.partition("/")
        state.setdefault(part, {})[name] = tensor
    return state, int(str(records.config_records[METADATA]["round"]))
