"""Prometheus metrics of a running pipeline, on a local port or in a file for the textfile collector.

    ottla_pipeline_rows_total{pipeline="orders",flow="table"} 12000

To add a metric, add it to `_FAMILIES`, or to `_RULES` if each rule has one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ottla.errors import OttlaError
from ottla.metrics.registry import Labels, Number, Registry
from ottla.metrics.server import MetricsThread
from ottla.spark.pipelines.progress import FAILED, RUNNING, STARTING, Board, FlowProgress, RuleProgress

HOST = "127.0.0.1"


class _Family(NamedTuple):
    name: str
    kind: str
    help: str
    value: Callable[[FlowProgress], Number | None]


_FAMILIES = (
    _Family("rows_total", "counter", "Rows read by the flow since the start of the run.", lambda flow: flow.rows),
    _Family(
        "rows_written_total", "counter", "Rows written, if the sink reports them.", lambda flow: flow.reported_written
    ),
    _Family("batches_total", "counter", "Finished micro-batches of the flow.", lambda flow: flow.batches),
    _Family(
        "dead_letters_total",
        "counter",
        "Dead letters written by the flow.",
        lambda flow: flow.dead_letters,
    ),
    _Family("lag_records", "gauge", "Records in the topics that the flow has not read yet.", lambda flow: flow.lag),
    _Family(
        "batch_seconds",
        "gauge",
        "Duration of the last micro-batch.",
        lambda flow: None if flow.last is None else flow.last.seconds,
    ),
    _Family(
        "rows_per_second",
        "gauge",
        "Rows per second of the last micro-batch.",
        lambda flow: None if flow.last is None else flow.last.rows_per_second,
    ),
    _Family(
        "last_progress_timestamp_seconds",
        "gauge",
        "Start of the last micro-batch, in epoch seconds.",
        lambda flow: None if flow.last is None else flow.last.at / 1000,
    ),
    _Family(
        "alive_timestamp_seconds",
        "gauge",
        "When the flow last finished a micro-batch or had nothing to do, in epoch seconds.",
        lambda flow: None if flow.alive_at is None else flow.alive_at / 1000,
    ),
    _Family("up", "gauge", "1 while the flow runs.", lambda flow: flow.state in (STARTING, RUNNING)),
    _Family("failed", "gauge", "1 after the flow has failed.", lambda flow: flow.state == FAILED),
)


class _RuleFamily(NamedTuple):
    name: str
    kind: str
    help: str
    value: Callable[[RuleProgress], Number]


_RULES = (
    _RuleFamily("rule_rows_total", "counter", "Rows that the rule has seen.", lambda one: one.total.rows),
    _RuleFamily("rule_violations_total", "counter", "Rows that broke the rule.", lambda one: one.total.violations),
    _RuleFamily("rule_last_batch_rows", "gauge", "Rows of the last micro-batch with rows.", lambda one: one.last.rows),
    _RuleFamily(
        "rule_last_batch_violations",
        "gauge",
        "Rows of the last micro-batch with rows that broke the rule.",
        lambda one: one.last.violations,
    ),
    _RuleFamily(
        "rule_limit_exceeded", "gauge", "1 after the limit was exceeded.", lambda one: one.exceeded is not None
    ),
)


class MetricsError(OttlaError):
    """The metrics cannot be served or written."""


def render(board: Board) -> str:
    """The metrics in Prometheus' text format."""
    registry = Registry()
    for one in _FAMILIES:
        registry.family(f"ottla_pipeline_{one.name}", one.help, partial(_samples, one, board), one.kind)
    for rule in _RULES:
        registry.family(f"ottla_pipeline_{rule.name}", rule.help, partial(_rule_samples, rule, board), rule.kind)
    return registry.render()


def _samples(family: _Family, board: Board) -> Iterator[tuple[Labels, Number]]:
    for flow in board.flows():
        value = family.value(flow)
        if value is not None:
            yield {"pipeline": board.pipeline, "flow": flow.name}, value


def _rule_samples(family: _RuleFamily, board: Board) -> Iterator[tuple[Labels, Number]]:
    for one in board.rules():
        yield {"pipeline": board.pipeline, "flow": one.flow, "rule": one.rule}, family.value(one)


def write_file(path: Path, text: str) -> None:
    """Write the file atomically."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as error:
        raise MetricsError(f"cannot write metrics to {path}: {error.strerror}") from None


def serve(page: Callable[[], str], port: int) -> MetricsThread:
    """Serve the metrics on the loopback address; use as a context manager."""
    try:
        return MetricsThread(page, HOST, port)
    except OSError as error:
        # asyncio puts the address into its message.
        reason = error.strerror if error.errno is None else os.strerror(error.errno)
        raise MetricsError(f"cannot serve metrics on port {port}: {reason}") from None
