"""Monitors a run: a terminal view and a Prometheus exporter."""
