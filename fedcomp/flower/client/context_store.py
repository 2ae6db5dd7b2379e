"""A node's state in the records of its ``Context.state``, which Flower keeps for as long as the SuperNode runs."""

import json
from collections.abc import Collection

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fedcomp.errors import CORRUPTION_ERRORS
from fedcomp.flower.client.client_state import ANSWER, LOCAL, ClientState, for_training, from_parts, replica_of
from fedcomp.flower.client.stored_array import restored, stored

KEY = "fedcomp"
PLAIN = "fedcomp.plain"


class ContextStore:
    """The state in `records`, a ``Context.state``; other records in it are left alone."""

    def __init__(self, records: RecordDict) -> None:
        self._records = records

    def load(self, training_id: int, places: Collection[tuple[int, int]] = ()) -> ClientState:
        """Return the state of `training_id`, 0 meaning any; an empty one if there is none, or if it is damaged."""
        records = self._records
        if KEY not in records.array_records or PLAIN not in records.config_records:
            return ClientState(training_id=training_id)
        try:
            arrays = {name: restored(array) for name, array in records.array_records[KEY].items()}
            plain = json.loads(str(records.config_records[PLAIN]["json"]))
            state = from_parts(plain, arrays, records, replica_of(plain, arrays))
        except CORRUPTION_ERRORS:
            return ClientState(training_id=training_id)
        return for_training(state, training_id)

    def save(self, state: ClientState) -> None:
        """Write `state` into the records."""
        records = self._records
        for key in [key for key in records if key in (KEY, LOCAL) or key.startswith(ANSWER)]:
            del records[key]
        arrays = state.arrays() | state.model()
        records[KEY] = ArrayRecord({name: stored(array) for name, array in arrays.items()})
        records[PLAIN] = ConfigRecord({"json": json.dumps(state.plain())})
        records.update(state.records())
