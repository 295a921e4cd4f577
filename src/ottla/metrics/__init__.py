"""Metrics in Prometheus' text format, and a small HTTP server for them."""
