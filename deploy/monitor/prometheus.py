"""A run's numbers for Prometheus, as of the moment in which it asks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from deploy.monitor.run_tail import RunSnapshot

BY_NODE = {
    "uplink_bytes": "bytes that the node sent",
    "downlink_bytes": "bytes that the node was sent, catch-up in it",
    "catch_up_bytes": "bytes of all frames to the node but the newest delta",
    "refused": "replies of the node that were dropped",
    "failed": "replies of the node that were errors",
    "missing": "replies of the node that did not come in time",
}


class RunCollector(Collector):
    """Turns a view into metrics: of the run as gauges, of each node as counters and gauges with its id as label."""

    def __init__(self, read: Callable[[], RunSnapshot]) -> None:
        """Collect from what `read` returns."""
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; what is not known yet is left out."""
        view = self._read()
        last = view.rounds[-1].round if view.rounds else 0
        accuracy = next((one.accuracy for one in reversed(view.rounds) if one.accuracy is not None), None)
        for name, text, value in (
            ("round", "rounds done", last),
            ("accuracy", "last test accuracy, from 0 to 1", accuracy),
            ("version", "published version of the model", view.version),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"fedcomp_{name}", text, value)
        for name, text in BY_NODE.items():
            counter = CounterMetricFamily(f"fedcomp_node_{name}", text, labels=["node"])
            for row in view.nodes:
                counter.add_metric([str(row.node)], getattr(row, name))
            yield counter
        for name, text in (
            ("version", "version that the node confirmed"),
            ("absent", "1 if the node did not answer last"),
        ):
            gauge = GaugeMetricFamily(f"fedcomp_node_{name}", text, labels=["node"])
            for row in view.nodes:
                if (value := getattr(row, name)) is not None:
                    gauge.add_metric([str(row.node)], float(value))
            yield gauge


@contextmanager
def serving(read: Callable[[], RunSnapshot], host: str, port: int) -> Iterator[int]:
    """Serve the metrics in a thread for as long as the context lasts, which is given the port; raise `OSError` if taken."""
    registry = CollectorRegistry()
    registry.register(RunCollector(read))
    server, thread = start_http_server(port, host, registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
