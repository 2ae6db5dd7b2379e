"""A run's numbers for Prometheus, read at each scrape: as many series for ten thousand nodes as for ten.

`deploy/grafana/` has a dashboard and alert rules for them.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields

import numpy as np
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeHistogramMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from deploy.monitor.snapshot import MonitorError, RunSnapshot
from fedcomp.sync import Traffic
from server.run_records import NodeStatus
from server.run_status import COMPLETED, FAILED, RUNNING, STOPPED

LAGS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)
BYTES = tuple(10.0**power for power in range(3, 13))


class RunCollector(Collector):
    """Turns a snapshot into metrics: gauges and counters of the run, histograms over its nodes, and on request each node."""

    def __init__(self, read: Callable[[], RunSnapshot], *, per_node: bool = False) -> None:
        """Make the collector; with `per_node`, there are 17 further series for each node, labelled with its id."""
        self._read = read
        self._per_node = per_node

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are known."""
        run = self._read()
        newest = run.rounds[-1] if run.rounds else None
        for name, text, value in (
            ("round", "rounds done", newest.round if newest else 0),
            ("rounds", "rounds of the whole run", run.num_rounds),
            ("round_seconds", "seconds of the last round", newest.seconds if newest else None),
            ("idle_seconds", "seconds since the run last wrote a file", run.idle_s),
            ("accuracy", "last test accuracy, from 0 to 1", _last(each.accuracy for each in reversed(run.rounds))),
            ("loss", "last test loss", _last(each.loss for each in reversed(run.rounds))),
            ("version", "published version of the model", run.version),
            ("nodes", "nodes that the server knows", len(run.nodes)),
            ("nodes_absent", "nodes that did not answer their last message", sum(node.absent for node in run.nodes)),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"fedcomp_{name}", text, value)
        state = GaugeMetricFamily("fedcomp_state", "1 for the state of the run, 0 for the others", labels=["state"])
        for each in (RUNNING, COMPLETED, FAILED, STOPPED):
            state.add_metric([each], float(run.state == each))
        yield state
        for item in fields(Traffic):
            total = sum(getattr(each.traffic, item.name) for each in run.rounds)
            yield CounterMetricFamily(f"fedcomp_{item.name}", f"{_words(item.name)} of all nodes", total)
        dense = sum(each.traffic.dense_bytes for each in run.rounds)
        yield CounterMetricFamily("fedcomp_dense_bytes", "bytes that plain Flower would have sent", dense)
        behind = [(run.version or 0) - node.version for node in run.nodes if node.version is not None]
        yield _histogram("versions_behind", "versions that nodes are behind", LAGS, behind)
        for link in ("uplink", "downlink"):
            values = [getattr(node.traffic, f"{link}_bytes") for node in run.nodes]
            yield _histogram(f"node_{link}_bytes_distribution", f"bytes of a node, {link}", BYTES, values)
        if self._per_node:
            yield from _each(run.nodes)


def _last(values: Iterator[float | None]) -> float | None:
    return next((value for value in values if value is not None), None)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _histogram(name: str, text: str, bounds: Sequence[float], values: Sequence[float]) -> Metric:
    """Return how many nodes have at most each bound."""
    counts = np.searchsorted(np.sort(values), bounds, side="right")
    buckets = [(str(float(bound)), float(count)) for bound, count in zip(bounds, counts, strict=True)]
    histogram = GaugeHistogramMetricFamily(f"fedcomp_{name}", text)
    histogram.add_metric([], [*buckets, ("+Inf", float(len(values)))], float(sum(values)))
    return histogram


def _each(nodes: Sequence[NodeStatus]) -> Iterator[Metric]:
    for item in fields(Traffic):
        text = f"{_words(item.name)} of the node in the whole run"
        counter = CounterMetricFamily(f"fedcomp_node_{item.name}", text, labels=["node"])
        for node in nodes:
            counter.add_metric([str(node.node)], getattr(node.traffic, item.name))
        yield counter
    for name, text in (
        ("version", "version that the node confirmed last"),
        ("absent", "1 if the node did not answer the last message"),
    ):
        gauge = GaugeMetricFamily(f"fedcomp_node_{name}", text, labels=["node"])
        for node in nodes:
            if (value := getattr(node, name)) is not None:
                gauge.add_metric([str(node.node)], float(value))
        yield gauge


@contextmanager
def serving(read: Callable[[], RunSnapshot], host: str, port: int, *, per_node: bool = False) -> Generator[int]:
    """Serve the metrics in a thread, and yield the port; raise `MonitorError` if it is taken."""
    registry = CollectorRegistry()
    registry.register(RunCollector(read, per_node=per_node))
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        raise MonitorError(f"cannot listen on {host}:{port}: {error}") from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
