"""The ledger adds up what was sent, by round and by node, and comes back from its rows."""

import pickle
from dataclasses import fields

import numpy as np
import pytest

from fedcomp.sync.ledger import MAX_PARTS, MAX_ROUNDS, ROW, SERVER_NODE, Ledger, Traffic


def test_the_ledger_adds_up_by_round_by_node_and_in_total() -> None:
    ledger = Ledger()
    ledger.add(1, 7, uplink_bytes=10, dense_uplink_bytes=1000)
    ledger.add(1, 8, uplink_bytes=5, downlink_bytes=20, catch_up_bytes=15, dense_downlink_bytes=500)
    ledger.add(2, 7, uplink_bytes=1, encode_seconds=0.5)
    ledger.add(2, SERVER_NODE, encode_seconds=0.25)
    assert (ledger.uplink_bytes, ledger.downlink_bytes, ledger.catch_up_bytes) == (16, 20, 15)
    assert (ledger.sent_bytes, ledger.dense_bytes) == (36, 1500)
    assert ledger.ratio == pytest.approx(1500 / 36)
    assert [ledger.of_round(number).uplink_bytes for number in (1, 2, 3)] == [15, 1, 0]
    assert {number: part.uplink_bytes for number, part in ledger.by_round().items()} == {1: 15, 2: 1}
    assert {node: part.uplink_bytes for node, part in ledger.by_node().items()} == {7: 11, 8: 5, SERVER_NODE: 0}
    assert ledger.by_round_and_node()[2, 7].encode_seconds == 0.5
    assert ledger.total() == Traffic(16, 20, 15, 1000, 500, encode_seconds=0.75)


def test_every_field_of_traffic_has_a_column() -> None:
    assert ROW.names == ("round", "node", *(field.name for field in fields(Traffic)))
    assert {ROW[field.name].str for field in fields(Traffic)} == {"<i8", "<f8"}


def test_random_amounts_come_back_from_the_rows() -> None:
    rng = np.random.default_rng(0)
    ledger = Ledger()
    for _ in range(200):
        amounts = {"uplink_bytes": int(rng.integers(1000)), "decode_seconds": float(rng.integers(9)) / 8}
        ledger.add(int(rng.integers(5)), int(rng.integers(2**63)), **amounts)
    again = Ledger.from_array(ledger.to_array())
    assert again.by_round_and_node() == ledger.by_round_and_node()
    assert all(again.of_round(number) == ledger.of_round(number) for number in range(5))
    assert again.total() == ledger.total()


def test_the_rows_of_a_run_hold_all_that_was_counted() -> None:
    ledger = Ledger()
    ledger.add(1, 2, uplink_bytes=3, failed=2, missing=1, encode_seconds=0.25)
    again = Ledger.from_array(ledger.to_array())
    assert again.by_node() == ledger.by_node()
    assert again.total() == Traffic(uplink_bytes=3, failed=2, missing=1, encode_seconds=0.25)


def test_an_amount_that_the_ledger_does_not_know_is_an_error() -> None:
    with pytest.raises(AttributeError, match="bits"):
        Ledger().add(1, 1, bits=3)


def test_nothing_sent_has_no_ratio() -> None:
    assert np.isnan(Traffic().ratio)


def test_a_ledger_can_be_pickled() -> None:
    ledger = Ledger()
    ledger.add(1, 2, uplink_bytes=3)
    again = pickle.loads(pickle.dumps(ledger))  # noqa: S301
    again.add(1, 4, uplink_bytes=5)
    assert {node: part.uplink_bytes for node, part in again.nodes_of_round(1).items()} == {2: 3, 4: 5}
    assert again.uplink_bytes == 8


# ---- runs of many rounds ---------------------------------------------------------------------------------------------


def test_a_ledger_holds_the_last_rounds_and_the_sums_of_all() -> None:
    ledger = Ledger()
    for number in range(1, 2 * MAX_ROUNDS + 1):
        ledger.add(number, number % 3, uplink_bytes=1)
    assert list(ledger.by_round()) == list(range(MAX_ROUNDS + 1, 2 * MAX_ROUNDS + 1))
    assert len(ledger.by_round_and_node()) == MAX_ROUNDS
    assert ledger.uplink_bytes == 2 * MAX_ROUNDS
    assert sum(part.uplink_bytes for part in ledger.by_node().values()) == 2 * MAX_ROUNDS
    assert ledger.of_round(1) == Traffic()


def test_rounds_of_many_nodes_are_held_for_a_shorter_time() -> None:
    ledger = Ledger()
    for number in (1, 2, 3):
        for node in range(MAX_PARTS // 2):
            ledger.add(number, node, uplink_bytes=1)
    assert set(ledger.by_round()) == {2, 3}
    for node in range(MAX_PARTS + 5):
        ledger.add(4, node, uplink_bytes=1)
    assert set(ledger.by_round()) == {4}, "the last round is always whole"
    assert ledger.of_round(4).uplink_bytes == MAX_PARTS + 5


def test_the_last_rounds_and_the_sums_of_nodes_come_back() -> None:
    ledger = Ledger()
    for number in range(1, 6):
        for node in (7, 8):
            ledger.add(number, node, uplink_bytes=number, encode_seconds=0.5)
    rows = ledger.to_array(most=5)
    assert rows["round"].tolist() == [4, 4, 5, 5]
    assert ledger.to_array(most=1)["round"].tolist() == [5, 5]
    again = Ledger.from_array(rows, ledger.nodes_to_array())
    assert again.total() == ledger.total()
    assert again.by_node() == ledger.by_node()
    assert again.of_round(5) == ledger.of_round(5)
    again.add(6, 7, uplink_bytes=1)
    assert again.by_node()[7].uplink_bytes == 16


def test_what_is_new_adds_up_to_all() -> None:
    ledger, taken = Ledger(), []
    ledger.add(1, 7, uplink_bytes=5)
    ledger.collect_new()
    for number in range(1, 5):
        ledger.add(number, 7, uplink_bytes=number)
        taken.append(ledger.take_new())
        ledger.add(number, 7, downlink_bytes=2)  # an evaluation, after the round was saved
    taken.append(ledger.take_new())
    assert not ledger.take_new().size
    again = Ledger.from_array(np.concatenate(taken))
    assert again.by_round_and_node() == ledger.by_round_and_node()
