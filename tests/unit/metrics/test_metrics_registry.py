"""The registry and Prometheus' text format."""

import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metrics.registry import SECONDS, Registry


def test_counters_with_and_without_labels() -> None:
    registry = Registry()
    plain = registry.counter("ottla_connections_total", "Connections so far.")
    produce = registry.counter("ottla_requests_total", "Requests so far.", {"api": "Produce"})
    fetch = registry.counter("ottla_requests_total", "Requests so far.", {"api": "Fetch"})
    plain.value += 2
    produce.value += 3
    fetch.value += 1
    assert registry.render() == (
        "# HELP ottla_connections_total Connections so far.\n"
        "# TYPE ottla_connections_total counter\n"
        "ottla_connections_total 2\n"
        "# HELP ottla_requests_total Requests so far.\n"
        "# TYPE ottla_requests_total counter\n"
        'ottla_requests_total{api="Produce"} 3\n'
        'ottla_requests_total{api="Fetch"} 1\n'
    )


def test_gauges_are_read_at_scrape_time() -> None:
    registry = Registry()
    connections = [1, 2]
    registry.gauge("open_connections", "Open now.", lambda: len(connections))
    assert registry.render().endswith("open_connections 2\n")
    connections.clear()
    assert registry.render().endswith("open_connections 0\n")


def test_gauges_with_labels_that_come_and_go() -> None:
    registry = Registry()
    sizes = {"orders": 10, 'odd "name"\\\n': 20}
    registry.family("log_bytes", "Size.", lambda: [({"topic": topic}, size) for topic, size in sizes.items()])
    assert 'log_bytes{topic="orders"} 10\nlog_bytes{topic="odd \\"name\\"\\\\\\n"} 20\n' in registry.render()
    sizes.clear()
    assert registry.render() == "# HELP log_bytes Size.\n# TYPE log_bytes gauge\n"


def test_histogram() -> None:
    registry = Registry()
    times = registry.histogram("seconds", "Times.", (0.1, 1.0), {"api": "Fetch"})
    for value in (0.05, 0.1, 0.5, 7):
        times.observe(value)
    assert registry.render() == (
        "# HELP seconds Times.\n"
        "# TYPE seconds histogram\n"
        'seconds_bucket{api="Fetch",le="0.1"} 2\n'
        'seconds_bucket{api="Fetch",le="1.0"} 3\n'
        'seconds_bucket{api="Fetch",le="+Inf"} 4\n'
        'seconds_sum{api="Fetch"} 7.65\n'
        'seconds_count{api="Fetch"} 4\n'
    )


@given(st.lists(st.floats(0, 1e9)))
def test_histogram_counts_every_value_in_the_right_buckets(values: list[float]) -> None:
    histogram = Registry().histogram("h", "H.", SECONDS)
    for value in values:
        histogram.observe(value)
    lines = list(histogram.samples("h", ""))
    counts = [int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("h_bucket")]
    assert counts == [sum(value <= bound for value in values) for bound in (*SECONDS, math.inf)]
    assert lines[-1] == f"h_count {len(values)}\n"


def test_buckets_rise() -> None:
    assert list(SECONDS) == sorted(SECONDS)
    for bounds in ([], [1.0, 1.0], [2.0, 1.0]):
        with pytest.raises(ValueError, match="must increase"):
            Registry().histogram("h", "H.", bounds)


@pytest.mark.parametrize(
    ("value", "text"), [(math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (0.5, "0.5"), (True, "1")]
)
def test_numbers(value: float, text: str) -> None:
    registry = Registry()
    registry.gauge("g", "G.", lambda: value)
    assert registry.render().splitlines()[-1] == f"g {text}"


def test_help_is_escaped() -> None:
    registry = Registry()
    registry.counter("c", "two\nlines \\ here")
    assert registry.render().splitlines()[0] == "# HELP c two\\nlines \\\\ here"


def test_gauge_that_fails_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry()
    registry.gauge("bad", "Bad.", lambda: 1 // 0)
    registry.counter("good", "Good.")
    with caplog.at_level(logging.WARNING, logger="ottla"):
        assert registry.render().endswith("good 0\n")
    assert "metric bad failed: ZeroDivisionError" in caplog.text


def test_mistakes_are_told_at_once() -> None:
    registry = Registry()
    registry.counter("c", "C.", {"a": "1"})
    with pytest.raises(ValueError, match="already exists"):
        registry.counter("c", "C.", {"a": "1"})
    with pytest.raises(ValueError, match="another kind"):
        registry.gauge("c", "C.", lambda: 0)
    with pytest.raises(ValueError, match="kind or text"):
        registry.counter("c", "D.")
    with pytest.raises(ValueError, match="not a valid metric name"):
        registry.counter("a-b", "C.")
    with pytest.raises(ValueError, match="not a valid label name"):
        registry.counter("d", "D.", {"a-b": "1"})
