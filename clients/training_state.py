"""What a node of this app keeps of its training: the momentum, as the run config says, and the state of plug-ins."""

from logging import INFO, getLogger

from flwr.app import RecordDict

from clients.local import LocalPlan
from clients.optimizers import OPTIMIZERS
from fedcomp.flower import load_training_state, save_training_state
from fedcomp.training import State

OPTIMIZER_PARTS = frozenset(kind.part for kind in OPTIMIZERS.values())


def load(records: RecordDict, plan: LocalPlan, client_momentum: str, server_round: int) -> State:
    """Return what this node's last round left for `plan`: nothing in its first one.

    Under ``reset``, the optimizer starts from zero in each round.  Under ``keep`` it goes on from the last one, and under
    ``decay`` its momentum is multiplied by the momentum factor for each round that the node has missed since.  The state of
    plug-ins that are not in the plan, or had other settings, is left out, and a line in the log says so.
    """
    state, last_round = load_training_state(records)
    known = {str(plugin) for plugin in plan.training.plugins}
    if client_momentum != "reset":
        known.add(plan.optimizer_class.part)
    if unknown := sorted(set(state) - known):
        getLogger("flwr").log(INFO, "the state of %s is left out: this run does not use it", " and ".join(unknown))
    missed = server_round - last_round - 1
    kind = plan.optimizer_class
    if client_momentum == "decay" and missed > 0 and kind.part in state:
        state[kind.part] = kind.decayed(state[kind.part], plan.rates, missed)
    return {part: tensors for part, tensors in state.items() if part in known}


def save(records: RecordDict, state: State, client_momentum: str, server_round: int) -> None:
    """Keep `state` for the node's next round; under ``reset`` without that of the optimizer."""
    wanted = {
        part: tensors for part, tensors in state.items() if part not in OPTIMIZER_PARTS or client_momentum != "reset"
    }
    save_training_state(records, wanted, server_round)
