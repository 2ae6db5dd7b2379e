"""The metrics of a run: totals and distributions, each node on request, and the names that the dashboard and the alerts use."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from deploy.monitor.snapshot import RunSnapshot
from fedcomp.sync import Traffic
from server.run_records import NodeStatus, RoundRecord
from tests.deploy.monitor.test_monitor import fetch

metrics = pytest.importorskip("deploy.monitor.prometheus", exc_type=ImportError)
GRAFANA = Path(__file__).parents[3] / "deploy" / "grafana"
ROUNDS = (
    RoundRecord(0, 0.125, 2.5),
    RoundRecord(1, 0.875, 0.5, Traffic(1_000, 20_000, 15_000, 300_000, 330_000, refused=1), seconds=2.0),
    RoundRecord(2, None, None, Traffic(500, 3_000, 0, 300_000, 330_000, missing=2), seconds=3.0),
)


def nodes(count: int) -> tuple[NodeStatus, ...]:
    return tuple(NodeStatus(node, node, node % 3, 2, node % 5 == 0, Traffic(100 * node)) for node in range(count))


def snapshot(of: Iterable[NodeStatus], state: str = "running") -> RunSnapshot:
    return RunSnapshot("mine", {}, ROUNDS, tuple(of), state, 12, 2, 3.0)


def scraped(run: RunSnapshot, *, per_node: bool = False) -> dict[tuple[str, str], float]:
    """Return the series of a scrape: values by name and the value of the only label."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(metrics.RunCollector(lambda: run, per_node=per_node))
    return {
        (sample.name, "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def test_a_scrape_has_the_totals_of_the_run() -> None:
    found = scraped(snapshot(nodes(10)))
    for name, value in {
        "round": 2,
        "rounds": 12,
        "round_seconds": 3,
        "idle_seconds": 3,
        "accuracy": 0.875,
        "loss": 0.5,
        "version": 2,
        "nodes": 10,
        "nodes_absent": 2,
        "uplink_bytes_total": 1_500,
        "downlink_bytes_total": 23_000,
        "catch_up_bytes_total": 15_000,
        "dense_bytes_total": 1_260_000,
        "refused_total": 1,
        "missing_total": 2,
    }.items():
        assert found[f"fedcomp_{name}", ""] == value, name


def test_metrics_are_served_while_the_run_goes_on() -> None:
    with metrics.serving(lambda: snapshot(nodes(3)), "127.0.0.1", 0) as port:
        lines = fetch(port).splitlines()
    assert "fedcomp_round 2.0" in lines
    assert not any("node=" in line for line in lines)


def test_histograms_count_nodes_by_the_versions_that_they_are_behind_and_by_their_bytes() -> None:
    found = scraped(snapshot([*nodes(10), NodeStatus(10)]))
    behind = {bound: found["fedcomp_versions_behind_bucket", bound] for bound in ("0.0", "1.0", "2.0", "+Inf")}
    assert behind == {"0.0": 3, "1.0": 6, "2.0": 10, "+Inf": 10}, "a node without a version is in none"
    assert found["fedcomp_versions_behind_gsum", ""] == 3 * 0 + 3 * 1 + 4 * 2
    assert found["fedcomp_node_uplink_bytes_distribution_bucket", "1000.0"] == 11
    assert found["fedcomp_node_uplink_bytes_distribution_gsum", ""] == 100 * sum(range(10))


@pytest.mark.parametrize("state", ["running", "completed", "failed", "stopped"])
def test_the_state_of_the_run_is_one_of_four(state: str) -> None:
    found = scraped(snapshot(nodes(1), state))
    assert {label: value for (name, label), value in found.items() if name == "fedcomp_state"} == {
        each: float(each == state) for each in ("running", "completed", "failed", "stopped")
    }


def test_series_grow_with_nodes_on_request_alone() -> None:
    few, many = scraped(snapshot(nodes(10))), scraped(snapshot(nodes(1000)))
    assert few.keys() == many.keys()
    assert len(few) < 100
    each = scraped(snapshot(nodes(10)), per_node=True)
    assert each["fedcomp_node_uplink_bytes_total", "7"] == 700
    assert each["fedcomp_node_version", "7"] == 1
    assert each["fedcomp_node_absent", "5"] == 1


def test_the_dashboard_and_the_alerts_use_names_that_the_exporter_has() -> None:
    exported = {name for name, _ in scraped(snapshot(nodes(3)))}
    dashboard: dict[str, Any] = json.loads((GRAFANA / "dashboard.json").read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    alerts = yaml.safe_load((GRAFANA / "alerts.yml").read_text())["groups"]
    rules = [rule["expr"] for group in alerts for rule in group["rules"]]
    assert len(shown) > 10
    assert len(rules) >= 5
    for text in (*shown, *rules):
        used = set(re.findall(r"fedcomp_\w+", text))
        assert used, text
        assert used <= exported, text
    [port] = re.findall(r"127\.0\.0\.1:(\d+)", (GRAFANA / "prometheus.yml").read_text())
    assert f"--prometheus {port}" in (GRAFANA / "prometheus.yml").read_text()
