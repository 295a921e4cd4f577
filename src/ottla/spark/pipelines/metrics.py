"""Metrics of a running pipeline for Prometheus: a page on a local port, or a file for the textfile collector.

    ottla_pipeline_rows_total{pipeline="orders",flow="table"} 12000

A new number is a new line in `_FAMILIES`.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from ottla.errors import OttlaError
from ottla.spark.pipelines.progress import FAILED, RUNNING, STARTING, Board, FlowProgress

HOST = "127.0.0.1"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Family(NamedTuple):
    name: str
    kind: str
    help: str
    value: Callable[[FlowProgress], float | None]


_FAMILIES = (
    _Family("rows_total", "counter", "Rows read by the flow since the run began.", lambda flow: flow.rows),
    _Family("rows_written_total", "counter", "Rows written, where the sink tells.", lambda flow: flow.told_written),
    _Family("batches_total", "counter", "Micro-batches that the flow has finished.", lambda flow: flow.batches),
    _Family(
        "dead_letters_total",
        "counter",
        "Records that the flow gave up as dead letters.",
        lambda flow: flow.dead_letters,
    ),
    _Family("lag_records", "gauge", "Records that wait in the topics of the flow.", lambda flow: flow.lag),
    _Family(
        "batch_seconds",
        "gauge",
        "How long the last micro-batch took.",
        lambda flow: None if flow.last is None else flow.last.seconds,
    ),
    _Family(
        "rows_per_second",
        "gauge",
        "Rows a second of the last micro-batch.",
        lambda flow: None if flow.last is None else flow.last.rows_per_second,
    ),
    _Family(
        "last_progress_timestamp_seconds",
        "gauge",
        "When the last micro-batch began, in seconds since 1970.",
        lambda flow: None if flow.last is None else flow.last.at / 1000,
    ),
    _Family("up", "gauge", "1 while the flow runs.", lambda flow: float(flow.state in (STARTING, RUNNING))),
    _Family("failed", "gauge", "1 after the flow has failed.", lambda flow: float(flow.state == FAILED)),
)


class MetricsError(OttlaError):
    """The metrics cannot be given out where the user wants them."""


def render(board: Board) -> str:
    """The page, in the text format of Prometheus."""
    flows = board.flows()
    return "".join(line for family in _FAMILIES for line in _family(family, board.pipeline, flows))


def _family(family: _Family, pipeline: str, flows: list[FlowProgress]) -> Iterator[str]:
    found = [(flow.name, value) for flow in flows if (value := family.value(flow)) is not None]
    if not found:
        return
    name = f"ottla_pipeline_{family.name}"
    yield f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"
    for flow, value in found:
        yield f'{name}{{pipeline="{_label(pipeline)}",flow="{_label(flow)}"}} {_number(value)}\n'


def _label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(round(value, 3))


def write_file(path: Path, text: str) -> None:
    """Write the page so that nobody reads half of it."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as error:
        raise MetricsError(f"the metrics cannot be written to {path}: {error.strerror}") from None


class MetricsServer:
    """Serves ``/metrics`` on the loopback address, in a thread of its own, until it is closed."""

    def __init__(self, page: Callable[[], str], port: int) -> None:
        try:
            self._server = ThreadingHTTPServer((HOST, port), _handler(page))
        except OSError as error:
            raise MetricsError(f"port {port} cannot be used for the metrics: {error.strerror}") from None
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="ottla-metrics", daemon=True)
        self._thread.start()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(page: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in ("/metrics", "/"):
                self.send_error(404, "the metrics are at /metrics")
                return
            body = page().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (as it is called)
            """Nobody at the terminal wants to know of every scrape."""

    return Handler
