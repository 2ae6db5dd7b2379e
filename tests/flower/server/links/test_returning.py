"""What returning nodes fetch and send, in rounds and without them; and the log line for a balance out of reach."""

import logging
import random
from typing import Any

import pytest
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import AsyncMode, CompressedStrategy, LocalGrid, Speeds
from fedcomp.flower.server.links.balance_log import MIN_VERSIONS, BalanceLog
from fedcomp.flower.server.links.choice import LinkCompressors
from fedcomp.flower.server.links.returning import ReturningTraffic
from fedcomp.sync import SERVER_NODE, Traffic
from tests.flower.toy import app, model

pytestmark = pytest.mark.one_flower

NODES = 20
SPEEDS = Speeds(slow=0.2, slowdown=10.0, spread=0.3, seed=1)

# ---- by hand ---------------------------------------------------------------------------------------------------------


def test_a_row_with_both_counts_at_once() -> None:
    rows = {1: Traffic(uplink_bytes=3, downlink_bytes=7), 2: Traffic(downlink_bytes=100), SERVER_NODE: Traffic(1, 1)}
    assert ReturningTraffic().take(1, rows, set()) == (7, 3)


def test_what_a_busy_node_fetched_counts_when_it_answers() -> None:
    returning = ReturningTraffic(staleness=5)
    first = {1: Traffic(downlink_bytes=7), 2: Traffic(downlink_bytes=100)}
    assert returning.take(1, first, {1, 2}) == (0, 0)
    assert returning.take(2, {}, {1, 2}) == (0, 0)
    answer = {1: Traffic(uplink_bytes=3), 3: Traffic(uplink_bytes=20, downlink_bytes=10)}
    assert returning.take(3, answer, {2}) == (17, 23)
    assert returning.take(4, {1: Traffic(uplink_bytes=3, downlink_bytes=4)}, {2}) == (4, 3), "7 have counted already"


def test_what_a_node_fetched_that_gave_no_answer_does_not_count() -> None:
    """Its timeout is over, so that it is not busy any more."""
    returning = ReturningTraffic(staleness=5)
    returning.take(1, {1: Traffic(downlink_bytes=7)}, {1})
    returning.take(2, {}, set())
    assert returning.take(3, {1: Traffic(uplink_bytes=3, downlink_bytes=2)}, set()) == (2, 3)


def test_the_answer_to_a_first_model_does_not_count_whenever_it_comes() -> None:
    returning = ReturningTraffic(staleness=5)
    returning.take(1, {1: Traffic(downlink_bytes=900, first_model_bytes=800)}, {1})
    assert returning.take(2, {1: Traffic(uplink_bytes=3)}, set()) == (0, 0)
    assert returning.take(3, {1: Traffic(uplink_bytes=3, downlink_bytes=5)}, set()) == (5, 3)


@pytest.mark.parametrize(("answered", "counted"), [(3, (0, 0)), (4, (7, 3))])
def test_a_refused_answer_counts_if_it_is_too_late(answered: int, counted: tuple[int, int]) -> None:
    """Refused within two versions, it is damaged, and its size means nothing."""
    returning = ReturningTraffic(staleness=2)
    returning.take(1, {1: Traffic(downlink_bytes=7)}, {1})
    assert returning.take(answered, {1: Traffic(uplink_bytes=3, refused=1)}, set()) == counted


def test_in_rounds_no_refused_answer_counts() -> None:
    assert ReturningTraffic().take(1, {1: Traffic(uplink_bytes=3, downlink_bytes=5, refused=1)}, set()) == (0, 0)


@pytest.mark.parametrize(("mode", "share"), [(None, 4 / 8), (AsyncMode(buffer=2), 2 / 8), (AsyncMode(buffer=20), 1.0)])
def test_older_traffic_fades_with_the_share_of_the_nodes_that_a_version_waits_for(
    mode: AsyncMode | None, share: float
) -> None:
    grid, downlink = LocalGrid(app(), 8, in_memory=True), fedcomp.balanced("stc(density=0.1)")
    strategy = CompressedStrategy(FedAvg(fraction_evaluate=0.0))
    strategy.start(grid, model(), num_rounds=1)
    links = LinkCompressors(FedAvg(), fedcomp.dense(), downlink, mode)
    for number, traffic in ((2, {1: Traffic(uplink_bytes=30, downlink_bytes=70)}), (3, dict[int, Traffic]())):
        links.begin_round(
            fedcomp.dense(), downlink, number, strategy.publisher, [1, 2, 3, 4], grid, traffic, {5, 6, 7, 8}
        )
    kept = links.state()
    assert (kept["fetched"], kept["sent"]) == pytest.approx((70 * 0.8**share, 30 * 0.8**share))


# ---- laws ------------------------------------------------------------------------------------------------------------


def balanced_run(
    mode: AsyncMode | None, versions: int, balance: float = 1.0, density: float = 0.1, share: float = 0.5
) -> CompressedStrategy:
    random.seed(5)
    strategy = CompressedStrategy(
        FedAvg(fraction_train=share, fraction_evaluate=0.0),
        uplink=fedcomp.stc(density=0.05),
        downlink=fedcomp.balanced(fedcomp.stc(density=density), balance),
        mode=mode,
    )
    strategy.start(LocalGrid(app(), NODES, in_memory=True, speeds=SPEEDS), model((60, 60)), num_rounds=versions)
    return strategy


def fetched_per_sent(strategy: CompressedStrategy) -> float:
    """Return all that nodes have fetched over all that they have sent, in the last half of the versions."""
    rows = [
        row
        for number in range(strategy.round // 2, strategy.round + 1)
        for node, row in strategy.ledger.nodes_of_round(number).items()
        if node != SERVER_NODE and not row.first_model_bytes
    ]
    return sum(row.downlink_bytes for row in rows) / sum(row.uplink_bytes for row in rows)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("mode", "versions", "balance", "density"),
    [
        (AsyncMode(buffer=5, staleness=50), 60, 3.0, 0.3),
        (AsyncMode(buffer=1, staleness=200), 150, 1.0, 0.01),
        (AsyncMode(buffer=1, staleness=200), 400, 3.0, 0.05),
    ],
)
def test_without_rounds_nodes_fetch_in_balance_with_what_they_send(
    mode: AsyncMode, versions: int, balance: float, density: float
) -> None:
    strategy = balanced_run(mode, versions, balance, density)
    assert fetched_per_sent(strategy) == pytest.approx(balance, rel=0.1)


@pytest.mark.nightly
def test_updates_that_are_refused_as_too_late_count() -> None:
    strategy = balanced_run(AsyncMode(buffer=5, staleness=1), 60)
    assert strategy.ledger.refused > 10
    assert fetched_per_sent(strategy) == pytest.approx(1.0, rel=0.1)


def test_without_rounds_and_with_few_nodes_at_a_time_they_fetch_in_balance_too() -> None:
    strategy = balanced_run(AsyncMode(buffer=2, staleness=50), 90, density=0.03, share=0.2)
    assert fetched_per_sent(strategy) == pytest.approx(1.0, rel=0.1)


def test_one_buffer_of_all_nodes_that_train_has_the_densities_of_rounds() -> None:
    def densities(mode: AsyncMode | None) -> list[str]:
        texts: list[str] = []
        random.seed(5)
        strategy = CompressedStrategy(
            FedAvg(fraction_train=0.5, fraction_evaluate=0.5),
            uplink=fedcomp.stc(density=0.05),
            downlink=fedcomp.balanced(fedcomp.stc(density=0.1)),
            mode=mode,
            on_round=lambda _: texts.append(strategy.compressors[1]),
        )
        strategy.start(LocalGrid(app(), NODES, in_memory=True, speeds=SPEEDS), model((60, 60)), num_rounds=12)
        return texts

    rounds = densities(None)
    assert densities(AsyncMode(buffer=10)) == rounds
    assert len(set(rounds)) > 6


@pytest.mark.nightly
def test_the_automatic_choice_balances_without_rounds_and_expects_as_many_updates_as_a_version_has() -> None:
    """A version holds two updates, though ten nodes train."""
    random.seed(5)
    chosen: list[tuple[str, str]] = []
    strategy = CompressedStrategy(
        FedAvg(fraction_train=0.5, fraction_evaluate=0.0),
        mode=AsyncMode(buffer=2, staleness=100),
        on_round=lambda _: chosen.append(strategy.compressors),
    )
    strategy.start(LocalGrid(app(), NODES, in_memory=True, speeds=SPEEDS), model((60, 60)), num_rounds=100)
    assert chosen[0][0] == "eden(bits=1.39)", "an error of 0.2 * 2, between the 0.571 of one bit and the 0.133 of two"
    uplinks = [fedcomp.parse(uplink) for uplink, _ in chosen]
    of_a_bit_or_more = {(each.name, float(str(dict(each.settings)["bits"])) >= 1) for each in uplinks}
    assert of_a_bit_or_more == {("eden", True), ("crosspolytope", False)}
    assert chosen[-1][1].startswith("stc(")
    assert fetched_per_sent(strategy) < 2.3


# ---- the log ---------------------------------------------------------------------------------------------------------


def lines_of(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, text) for record in caplog.records if "is asked for" in (text := record.getMessage())]


@pytest.mark.parametrize(
    ("share", "fetched", "level"),
    [(0.05, 2.0, logging.WARNING), (0.05, 1.05, 0), (0.3, 2.0, 0), (1.0, 0.5, logging.INFO), (1.0, 2.0, 0)],
)
def test_a_bound_that_binds_for_long_has_one_line(
    share: float, fetched: float, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    watch = BalanceLog()
    known = {"fetched": fetched, "sent": 1.0, "participation": 0.5}
    with caplog.at_level("INFO", logger="flwr"):
        for number in range(3 * MIN_VERSIONS):
            watch.watch(number + 1, fedcomp.stc(density=0.001), share, 1.0, **known)
    found = lines_of(caplog)
    assert len(found) == bool(level)
    if level:
        assert found[0][0] == level
        assert f"round {MIN_VERSIONS}:" in found[0][1]
        assert f"{fetched:.2f} times" in found[0][1]


def test_a_bound_that_binds_again_has_a_line_again(caplog: pytest.LogCaptureFixture) -> None:
    watch = BalanceLog()
    with caplog.at_level("INFO", logger="flwr"):
        for share in [0.05] * 40 + [0.06] + [0.05] * 40:
            watch.watch(1, fedcomp.stc(), share, 1.0, fetched=2.0, sent=1.0, participation=0.1)
    assert len(lines_of(caplog)) == 2


@pytest.mark.parametrize("mode", [None, AsyncMode(buffer=2, staleness=100)])
def test_a_run_says_that_it_cannot_reach_its_balance(mode: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="flwr"):
        strategy = balanced_run(mode, 45, balance=0.3, share=0.2)
    assert strategy.compressors[1] == "stc(density=0.005)"
    ((level, text),) = lines_of(caplog)
    assert level == logging.WARNING
    assert "0.05 times the named one" in text


def test_a_run_in_balance_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="flwr"):
        balanced_run(None, 30, share=0.2)
    assert not lines_of(caplog)
