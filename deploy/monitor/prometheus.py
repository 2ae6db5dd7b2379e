"""A run's numbers for Prometheus, read at each scrape."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import fields

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from deploy.monitor.snapshot import MonitorError, RunSnapshot
from fedcomp.sync import Traffic


class RunCollector(Collector):
    """Turns a snapshot into metrics: gauges of the run, and counters and gauges of each node, labelled with its id."""

    def __init__(self, read: Callable[[], RunSnapshot]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that are known."""
        run = self._read()
        accuracy = next((each.accuracy for each in reversed(run.rounds) if each.accuracy is not None), None)
        for name, text, value in (
            ("round", "rounds done", run.rounds[-1].round if run.rounds else 0),
            ("accuracy", "last test accuracy, from 0 to 1", accuracy),
            ("version", "published version of the model", run.version),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"fedcomp_{name}", text, value)
        for item in fields(Traffic):
            text = f"{item.name.replace('_', ' ')} of the node in the whole run"
            counter = CounterMetricFamily(f"fedcomp_node_{item.name}", text, labels=["node"])
            for node in run.nodes:
                counter.add_metric([str(node.node)], getattr(node.traffic, item.name))
            yield counter
        for name, text in (
            ("version", "version that the node confirmed last"),
            ("absent", "1 if the node did not answer the last message"),
        ):
            gauge = GaugeMetricFamily(f"fedcomp_node_{name}", text, labels=["node"])
            for node in run.nodes:
                if (value := getattr(node, name)) is not None:
                    gauge.add_metric([str(node.node)], float(value))
            yield gauge


@contextmanager
def serving(read: Callable[[], RunSnapshot], host: str, port: int) -> Generator[int]:
    """Serve the metrics in a thread, and yield the port; raise `MonitorError` if it is taken."""
    registry = CollectorRegistry()
    registry.register(RunCollector(read))
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
