"""The broker's metrics: counters, and gauges that read its state at scrape time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.broker.quotas import throttle_metrics
from ottla.broker.replication_metrics import ReplicationMetrics
from ottla.metrics.registry import SECONDS, Counter, Histogram, Labels, Number, Registry

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.broker.partition import Partition
    from ottla.net.server.listener import Server


class Instruments:
    """The metrics of one broker."""

    def __init__(self) -> None:
        self.registry = Registry()
        self._requests: dict[str, Histogram] = {}
        self._bytes_in: dict[str, Counter] = {}
        self._bytes_out: dict[str, Counter] = {}
        self._rejected: dict[str, Counter] = {}
        self._authentications: dict[str, Counter] = {}
        self._denied: dict[tuple[str, str], Counter] = {}
        self.replication = ReplicationMetrics(self.registry)

    def request(self, name: str, seconds: float) -> None:
        """Count a response; the time of a long poll includes its wait."""
        histogram = self._requests.get(name)
        if histogram is None:
            text = "Time from the arrival of a request to its response, including waiting."
            histogram = self.registry.histogram("ottla_request_seconds", text, SECONDS, {"api": name})
            self._requests[name] = histogram
        histogram.observe(seconds)

    def produced(self, topic: str, size: int) -> None:
        """Count bytes appended to a topic."""
        self._counter(self._bytes_in, "ottla_topic_bytes_in_total", "Bytes appended.", "topic", topic).value += size

    def fetched(self, topic: str, size: int) -> None:
        """Count bytes that consumers read from a topic."""
        self._counter(self._bytes_out, "ottla_topic_bytes_out_total", "Bytes fetched.", "topic", topic).value += size

    def produce_failed(self, error: str) -> None:
        """Count a rejected partition of a produce request."""
        name, text = "ottla_produce_errors_total", "Rejected partitions of produce requests."
        self._counter(self._rejected, name, text, "error", error).value += 1

    def authenticated(self, listener: str, mechanism: str, *, success: bool) -> None:
        """Count an authentication of a client."""
        labels = {"listener": listener, "mechanism": mechanism, "result": "success" if success else "failure"}
        key = "/".join(labels.values())
        counter = self._authentications.get(key)
        if counter is None:
            counter = self.registry.counter("ottla_authentications_total", "Authentications with SASL.", labels)
            self._authentications[key] = counter
        counter.value += 1

    def denied(self, operation: str, resource: str) -> None:
        """Count something that a client was refused for want of a permission."""
        counter = self._denied.get((operation, resource))
        if counter is None:
            name, text = "ottla_authorization_denied_total", "Refusals for want of a permission."
            counter = self.registry.counter(name, text, {"operation": operation, "resource": resource})
            self._denied[operation, resource] = counter
        counter.value += 1

    def _counter(self, known: dict[str, Counter], name: str, text: str, label: str, value: str) -> Counter:
        counter = known.get(value)
        if counter is None:
            counter = known[value] = self.registry.counter(name, text, {label: value})
        return counter

    def watch(self, node: Node, servers: list[Server]) -> None:
        """Add the gauges."""

        def total(of: Callable[[Server], int]) -> Callable[[], Number]:
            return lambda: sum(of(server) for server in servers)

        add = self.registry.gauge
        add("ottla_connections", "Open connections.", total(lambda server: len(server.connections)))
        add("ottla_connections_accepted", "Connections accepted so far.", total(lambda server: server.accepted))
        add("ottla_connections_refused", "Connections rejected by a limit.", total(lambda server: server.refused))
        add("ottla_failed_handshakes", "TLS handshakes that failed so far.", total(lambda s: s.failed_handshakes))
        add("ottla_throttled_connections", "Connections that must pause now.", total(_throttled))
        throttle_metrics(node)
        add("ottla_request_failures", "Requests that ended in an unexpected error.", total(lambda s: s.failures))
        add("ottla_received_bytes", "Bytes received from clients so far.", total(lambda server: server.bytes_in))
        add("ottla_sent_bytes", "Bytes sent to clients so far.", total(lambda server: server.bytes_out))
        add("ottla_topics", "Topics.", lambda: len(node.metadata.topics))
        add("ottla_damaged_bytes", "Damaged bytes found in log files.", lambda: node.logs.damaged_bytes)
        add("ottla_fetch_sessions", "Fetch sessions.", lambda: len(node.sessions))
        self.replication.watch(node)
        self.registry.family("ottla_log_end_offset", "Next offset to write.", lambda: _each(node, _end))
        self.registry.family("ottla_log_start_offset", "First available offset.", lambda: _each(node, _start))
        self.registry.family("ottla_log_size_bytes", "Size of the log on disk.", lambda: _each(node, _size))


def _throttled(server: Server) -> int:
    return sum(connection.is_muted for connection in server.connections)


def _each(node: Node, value: Callable[[Partition], int]) -> Iterator[tuple[Labels, Number]]:
    for partition in node.local():
        yield {"topic": partition.topic, "partition": str(partition.index)}, value(partition)


def _end(partition: Partition) -> int:
    return partition.log.log_end_offset


def _start(partition: Partition) -> int:
    return partition.log.log_start_offset


def _size(partition: Partition) -> int:
    return partition.log.size
