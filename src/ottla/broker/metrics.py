"""Metrics: counters, gauges and histograms in a registry, and the text that Prometheus reads.

Counting is a plain addition (``counter.value += 1``), cheap enough for what every request does; all work is
left to `Registry.render`. Each broker has a registry of its own, so that several in one process do not mix.
What is measured is said where it is measured, not here.

`MetricsServer` serves the text over HTTP, on GET /metrics, and GET /healthz for whoever watches the process.
It is no web server: one request a connection, small requests only, few connections at once, and each has to
be done in a few seconds. A client that breaks these rules is closed and costs nothing more.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import accumulate
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.broker.logs import log_event

_log = logging.getLogger(__name__)

Labels: TypeAlias = Mapping[str, str]
Number: TypeAlias = int | float

SECONDS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
    60.0,
)
"""Buckets for times, from a tenth of a millisecond."""
BYTES = tuple(float(4**power) for power in range(3, 15))
"""Buckets for sizes, from 64 bytes to 256 MiB."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

_TEXT = "text/plain; charset=utf-8"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_MAX_REQUEST = 8192


class Counter:
    """A number that only grows. Add to `value`."""

    __slots__ = ("value",)
    kind = "counter"

    def __init__(self) -> None:
        self.value: Number = 0

    def samples(self, name: str, labels: str) -> Iterator[str]:
        yield _sample(name, labels, self.value)


class Gauge:
    """A number that is asked for when somebody looks."""

    __slots__ = ("_callback",)
    kind = "gauge"

    def __init__(self, callback: Callable[[], Number]) -> None:
        self._callback = callback

    def samples(self, name: str, labels: str) -> Iterator[str]:
        yield _sample(name, labels, self._callback())


class GaugeFamily:
    """Numbers that are asked for when somebody looks, each with labels of its own: one a topic, say."""

    __slots__ = ("_callback",)
    kind = "gauge"

    def __init__(self, callback: Callable[[], Iterable[tuple[Labels, Number]]]) -> None:
        self._callback = callback

    def samples(self, name: str, _labels: str) -> Iterator[str]:
        for labels, value in self._callback():
            yield _sample(name, _written(labels), value)


class Histogram:
    """How often values fell into each bucket. A bucket holds the values up to and including its bound."""

    __slots__ = ("bounds", "counts", "total")
    kind = "histogram"

    def __init__(self, bounds: Sequence[float]) -> None:
        if not bounds or list(bounds) != sorted(set(bounds)):
            raise ValueError(f"the bounds of a histogram must rise, these do not: {bounds}")
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total: Number = 0

    def observe(self, value: Number) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def samples(self, name: str, labels: str) -> Iterator[str]:
        comma = "," if labels else ""
        # One bucket more than there are bounds: the last one has no bound.
        for bound, count in zip((*self.bounds, math.inf), accumulate(self.counts), strict=True):
            yield _sample(f"{name}_bucket", f'{labels}{comma}le="{_number(bound)}"', count)
        yield _sample(f"{name}_sum", labels, self.total)
        yield _sample(f"{name}_count", labels, self.count)


class Metric(Protocol):
    """What a registry holds."""

    @property
    def kind(self) -> str: ...

    def samples(self, name: str, labels: str) -> Iterator[str]: ...


MetricT = TypeVar("MetricT", bound=Metric)


class Registry:
    """All metrics of one broker."""

    def __init__(self) -> None:
        self._helps: dict[str, tuple[str, str]] = {}
        self._metrics: dict[str, dict[str, Metric]] = {}

    def counter(self, name: str, text: str, labels: Labels | None = None) -> Counter:
        return self._add(name, text, labels, Counter())

    def gauge(
        self,
        name: str,
        text: str,
        callback: Callable[[], Number],
        labels: Labels | None = None,
    ) -> Gauge:
        return self._add(name, text, labels, Gauge(callback))

    def gauges(
        self,
        name: str,
        text: str,
        callback: Callable[[], Iterable[tuple[Labels, Number]]],
    ) -> GaugeFamily:
        return self._add(name, text, None, GaugeFamily(callback))

    def histogram(
        self,
        name: str,
        text: str,
        bounds: Sequence[float],
        labels: Labels | None = None,
    ) -> Histogram:
        return self._add(name, text, labels, Histogram(bounds))

    def render(self) -> str:
        """Everything in Prometheus' text format."""
        return "".join(line for name in self._metrics for line in self._family(name))

    def _add(self, name: str, text: str, labels: Labels | None, metric: MetricT) -> MetricT:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name that Prometheus takes")
        if self._helps.setdefault(name, (metric.kind, text)) != (metric.kind, text):
            raise ValueError(f"the metric {name} exists already as another kind or with another text")
        written = _written(labels or {})
        family = self._metrics.setdefault(name, {})
        if written in family:
            raise ValueError(f"the metric {name}{{{written}}} exists already")
        family[written] = metric
        return metric

    def _family(self, name: str) -> list[str]:
        kind, text = self._helps[name]
        lines = [f"# HELP {name} {_escaped(text)}\n", f"# TYPE {name} {kind}\n"]
        try:
            for labels, metric in self._metrics[name].items():
                lines.extend(metric.samples(name, labels))
        except Exception as error:
            # One gauge that fails must not take all others away from whoever is looking for the reason.
            log_event(_log, logging.WARNING, "metric failed", metric=name, error=repr(error))
        return lines


def _sample(name: str, labels: str, value: Number) -> str:
    return f"{name}{{{labels}}} {_number(value)}\n" if labels else f"{name} {_number(value)}\n"


def _number(value: Number) -> str:
    if isinstance(value, float):
        if math.isinf(value):
            return "+Inf" if value > 0 else "-Inf"
        return "NaN" if math.isnan(value) else repr(value)
    return str(int(value))


def _written(labels: Labels) -> str:
    for name in labels:
        if not _LABEL.fullmatch(name):
            raise ValueError(f"{name!r} is not a label that Prometheus takes")
    return ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels.items())


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


class _Answer(NamedTuple):
    status: HTTPStatus
    body: str
    content_type: str = _TEXT
    allow: str = ""

    def encode(self, *, with_body: bool) -> bytes:
        body = self.body.encode(errors="backslashreplace")
        allow = f"Allow: {self.allow}\r\n" if self.allow else ""
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: {self.content_type}\r\n"
            f"Content-Length: {len(body)}\r\n{allow}Connection: close\r\n\r\n"
        )
        return head.encode() + (body if with_body else b"")


class MetricsServer:
    """Serves a registry. `problem` says what is wrong with the process, None while it is healthy."""

    def __init__(
        self,
        registry: Registry,
        host: str,
        port: int,
        *,
        problem: Callable[[], str | None] = lambda: None,
        timeout: float = 5.0,
        max_connections: int = 32,
    ) -> None:
        self._registry = registry
        self.host = host
        self._port = port
        self._problem = problem
        self._timeout = timeout
        self._max_connections = max_connections
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def port(self) -> int:
        """The port that is listened on, also when it was given as 0."""
        if self._server is None:
            raise RuntimeError("the metrics server is not running")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listens from now on; OSError if the address cannot be had."""
        host = self.host or None
        self._server = await asyncio.start_server(self._connected, host, self._port, limit=_MAX_REQUEST)

    async def stop(self) -> None:
        """Stops listening and closes every connection. Stopping twice is stopping once."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        serving = dict(self._serving)
        for task, writer in serving.items():
            task.cancel()
            # One that has not begun would leave its connection open, and newer Pythons wait for those.
            writer.transport.abort()
        await asyncio.gather(*serving, return_exceptions=True)
        await server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._serving) >= self._max_connections:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving[task] = writer
        task.add_done_callback(self._serving.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                head = await _read_head(reader)
                if head is not None:
                    writer.write(self._respond(head))
                    await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError):
            # Too slow, or gone: there is nobody left to tell.
            return
        finally:
            writer.transport.abort()

    def _respond(self, head: bytes) -> bytes:
        method, answer = self._answer(head)
        return answer.encode(with_body=method != "HEAD")

    def _answer(self, head: bytes) -> tuple[str, _Answer]:
        parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[1].startswith("/") or not parts[2].startswith("HTTP/1."):
            return "", _Answer(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request\n")
        method, path = parts[0], parts[1].partition("?")[0]
        if path not in ("/metrics", "/healthz"):
            return method, _Answer(HTTPStatus.NOT_FOUND, "there are /metrics and /healthz\n")
        if method not in ("GET", "HEAD"):
            wrong = _Answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD\n", allow="GET, HEAD")
            return method, wrong
        return method, self._metrics() if path == "/metrics" else self._health()

    def _metrics(self) -> _Answer:
        return _Answer(HTTPStatus.OK, self._registry.render(), _PROMETHEUS)

    def _health(self) -> _Answer:
        problem = self._problem()
        if problem is None:
            return _Answer(HTTPStatus.OK, "ok\n")
        return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{problem}\n")


async def _read_head(reader: asyncio.StreamReader) -> bytes | None:
    """The request line and the headers; what came so far if there is too much; None if the client left."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return b""
    except asyncio.IncompleteReadError:
        return None
