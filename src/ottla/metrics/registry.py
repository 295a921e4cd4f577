"""Counters, gauges and histograms in a registry, rendered in Prometheus' text format.

Counting is a plain addition (``counter.value += 1``), cheap enough for every request; all other work happens in
`Registry.render`. Each broker and each pipeline has its own registry.
"""

from __future__ import annotations

import logging
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Protocol, TypeAlias, TypeVar

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
"""Buckets for durations."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class Counter:
    """A number that only grows; add to `value`."""

    __slots__ = ("value",)
    kind = "counter"

    def __init__(self) -> None:
        self.value: Number = 0

    def samples(self, name: str, labels: str) -> Iterator[str]:
        yield _sample(name, labels, self.value)


class Gauge:
    """A number that a callback returns at scrape time."""

    __slots__ = ("_callback",)
    kind = "gauge"

    def __init__(self, callback: Callable[[], Number]) -> None:
        self._callback = callback

    def samples(self, name: str, labels: str) -> Iterator[str]:
        yield _sample(name, labels, self._callback())


class Family:
    """Numbers with labels that a callback returns at scrape time, such as one per topic."""

    __slots__ = ("_callback", "kind")

    def __init__(self, kind: str, callback: Callable[[], Iterable[tuple[Labels, Number]]]) -> None:
        self.kind = kind
        self._callback = callback

    def samples(self, name: str, _labels: str) -> Iterator[str]:
        for labels, value in self._callback():
            yield _sample(name, _written(labels), value)


class Histogram:
    """The number of values per bucket; a bucket includes its upper bound."""

    __slots__ = ("bounds", "counts", "total")
    kind = "histogram"

    def __init__(self, bounds: Sequence[float]) -> None:
        if not bounds or list(bounds) != sorted(set(bounds)):
            raise ValueError(f"histogram bounds must increase: {bounds}")
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
        for bound, count in zip((*self.bounds, math.inf), accumulate(self.counts), strict=True):
            yield _sample(f"{name}_bucket", f'{labels}{comma}le="{_number(bound)}"', count)
        yield _sample(f"{name}_sum", labels, self.total)
        yield _sample(f"{name}_count", labels, self.count)


class Metric(Protocol):
    """A metric of any kind."""

    @property
    def kind(self) -> str: ...

    def samples(self, name: str, labels: str) -> Iterator[str]: ...


MetricT = TypeVar("MetricT", bound=Metric)


class Registry:
    """A set of metrics.

    >>> registry = Registry()
    >>> registry.counter("requests_total", "Requests.", {"api": "Fetch"}).value += 1
    >>> print(registry.render(), end="")
    # HELP requests_total Requests.
    # TYPE requests_total counter
    requests_total{api="Fetch"} 1
    """

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

    def family(
        self,
        name: str,
        text: str,
        callback: Callable[[], Iterable[tuple[Labels, Number]]],
        kind: str = "gauge",
    ) -> Family:
        return self._add(name, text, None, Family(kind, callback))

    def histogram(
        self,
        name: str,
        text: str,
        bounds: Sequence[float],
        labels: Labels | None = None,
    ) -> Histogram:
        return self._add(name, text, labels, Histogram(bounds))

    def render(self) -> str:
        """All metrics in Prometheus' text format."""
        return "".join(line for name in self._metrics for line in self._family(name))

    def _add(self, name: str, text: str, labels: Labels | None, metric: MetricT) -> MetricT:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid metric name")
        if self._helps.setdefault(name, (metric.kind, text)) != (metric.kind, text):
            raise ValueError(f"metric {name} already exists with another kind or text")
        written = _written(labels or {})
        family = self._metrics.setdefault(name, {})
        if written in family:
            raise ValueError(f"metric {name}{{{written}}} already exists")
        family[written] = metric
        return metric

    def _family(self, name: str) -> list[str]:
        kind, text = self._helps[name]
        lines = [f"# HELP {name} {_escaped(text)}\n", f"# TYPE {name} {kind}\n"]
        try:
            for labels, metric in self._metrics[name].items():
                lines.extend(metric.samples(name, labels))
        except Exception as error:
            # The other metrics may help to find the reason.
            _log.warning("metric %s failed: %r", name, error)
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
            raise ValueError(f"{name!r} is not a valid label name")
    return ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels.items())


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text
