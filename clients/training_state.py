"""What a node keeps of its training between rounds, in its ``Context.state``: momentum, and the state of plug-ins.

With ``state-dir`` it survives a restart of the node, as everything that a ClientApp keeps in ``Context.state`` does.
"""

from logging import INFO, getLogger

import torch
from flwr.app import ConfigRecord, RecordDict

from clients.local import LocalPlan
from clients.optimizers import OPTIMIZERS
from fedcomp.flower import to_record
from fedcomp.training import State

KEY, METADATA = "training", "training.metadata"
OPTIMIZER_PARTS = frozenset(kind.part for kind in OPTIMIZERS.values())


def load(records: RecordDict, plan: LocalPlan, client_momentum: str, server_round: int) -> State:
    """Return what this node's last round left for `plan`: nothing in its first one.

    Under ``reset``, the optimizer starts from zero in each round.  Under ``keep`` it goes on from the last one, and under
    ``decay`` its momentum is multiplied by the momentum factor for each round that the node has missed since.  The state of
    plug-ins that are not in the plan, or had other settings, is left out, and a line in the log says so.
    """
    if KEY not in records.array_records or METADATA not in records.config_records:
        return {}
    state: dict[str, dict[str, torch.Tensor]] = {}
    for name, array in records.array_records[KEY].items():
        part, _, key = name.rpartition("/")
        state.setdefault(part, {})[key] = torch.tensor(array.numpy())
    known = {str(plugin) for plugin in plan.training.plugins}
    if client_momentum != "reset":
        known.add(plan.optimizer_class.part)
    if unknown := sorted(set(state) - known):
        getLogger("flwr").log(INFO, "the state of %s is left out: this run does not use it", " and ".join(unknown))
    missed = server_round - int(str(records.config_records[METADATA]["round"])) - 1
    kind = plan.optimizer_class
    if client_momentum == "decay" and missed > 0 and kind.part in state:
        state[kind.part] = kind.decayed(state[kind.part], plan.rates, missed)
    return {part: tensors for part, tensors in state.items() if part in known}


def save(records: RecordDict, state: State, client_momentum: str, server_round: int) -> None:
    """Keep `state` for the node's next round; under ``reset`` without that of the optimizer."""
    arrays = {
        f"{part}/{key}": tensor.detach().cpu().numpy()
        for part, tensors in state.items()
        if part not in OPTIMIZER_PARTS or client_momentum != "reset"
        for key, tensor in tensors.items()
    }
    if arrays:
        records[KEY] = to_record(arrays)
        records[METADATA] = ConfigRecord({"round": server_round})
    elif KEY in records:
        del records[KEY], records[METADATA]
