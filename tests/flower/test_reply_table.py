"""Each row of the table of replies: it works as in plain Flower, or is refused in one sentence; there is no third case."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.errors import NoUpdateError
from fedcomp.flower import CompressedStrategy, CompressionMod, LocalGrid, to_record
from tests.flower.replies import MODEL, REPLIES, ReplyCase, record, reply
from tests.flower.toy import arrays_of

ROUNDS = 3


def _app(case: ReplyCase, *mods: object) -> ClientApp:
    client_app = ClientApp(mods=[CompressionMod(), *mods])  # type: ignore[list-item]

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = message.content["arrays"]
        assert isinstance(arrays, ArrayRecord)
        return Message(case.content(arrays_of(arrays), message, context), reply_to=message)

    return client_app


def _strategy(*records: str) -> CompressedStrategy:
    dense = fedcomp.dense()
    chosen = dict.fromkeys(records, dense)
    return CompressedStrategy(FedAvg(fraction_evaluate=0.0), uplink=dense, downlink=dense, records=chosen)


@pytest.mark.sample(32)
@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("case", REPLIES, ids=lambda case: case.title)
def test_a_reply_counts_or_the_run_ends_with_the_reason(case: ReplyCase, in_memory: bool) -> None:
    strategy, grid = _strategy(), LocalGrid(_app(case), 2, in_memory=in_memory)
    if not case.counts:
        with pytest.raises((NoUpdateError, ValueError)) as caught:
            strategy.start(grid, to_record(MODEL), num_rounds=ROUNDS)
        assert case.says in str(caught.value)
        assert strategy.version == 0
        return
    strategy.start(grid, to_record(MODEL), num_rounds=ROUNDS)
    for name, array in arrays_of(strategy.arrays).items():
        np.testing.assert_array_equal(array, MODEL[name] + ROUNDS)
        assert array.dtype == MODEL[name].dtype
    assert strategy.ledger.failed == strategy.ledger.refused == 0


def test_a_record_with_a_compressor_of_its_own_is_never_taken_for_the_model() -> None:
    control = ReplyCase(
        "control alone", lambda given, *_: reply(record({n: a * 0 for n, a in given.items()}), "control")
    )
    strategy = _strategy("control")
    with pytest.raises((NoUpdateError, ValueError), match="none of its ArrayRecords"):
        strategy.start(LocalGrid(_app(control), 2), to_record(MODEL), num_rounds=ROUNDS)


def test_a_mod_behind_may_rename_and_replace_records_and_state() -> None:
    def renames(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        answer = call_next(message, context)
        held = answer.content.array_records["arrays"]
        answer.content["arrays"] = ArrayRecord({f"dp.{name}": held[name] for name in sorted(held)})
        context.state = type(context.state)()
        return answer

    strategy = _strategy()
    strategy.start(LocalGrid(_app(REPLIES[0], renames), 2), to_record(MODEL), num_rounds=ROUNDS)
    for name, array in arrays_of(strategy.arrays).items():
        np.testing.assert_array_equal(array, MODEL[name] + ROUNDS)
