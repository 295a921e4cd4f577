"""How fast connections are accepted: on the broker, on a listener and from an address (KIP-612).

Too many for the broker or a listener have to wait. A connection of an address with too many is closed, after a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.fields import INT_MAX
from ottla.security.quotas import CONNECTIONS
from ottla.security.rates import Bucket
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.broker.node import Node

#: Rates of more addresses than this are forgotten as soon as they do not matter any more.
MOST_ADDRESSES = 1_000
_MAPPED = "::ffff:"


class Rates:
    """The limits of one broker."""

    def __init__(self, node: Node) -> None:
        self._node = node
        config = node.config
        self._window: Millis = config.quota_window_size_seconds * 1000
        self._longest: Millis = (config.quota_window_num - 1) * self._window
        self._all = Bucket(self._longest)
        self._listeners = {each.name: Bucket(self._longest) for each in config.listeners}
        self._addresses: dict[str, tuple[Bucket, float]] = {}
        """With the rate of each."""

    @property
    def are_limited(self) -> bool:
        """Whether there is any limit."""
        config = self._node.config
        rates = [config.max_connection_creation_rate, *map(self._rate_of_listener, self._listeners)]
        return min(rates) < INT_MAX or CONNECTIONS in self._node.metadata.client_quotas.table.names

    def accepted(self, listener: str, host: str) -> tuple[float, float]:
        """Count a connection; return for how many seconds it waits, and after how many it is closed."""
        now = self._node.clock.elapsed()
        close_after = self._too_fast(host.removeprefix(_MAPPED), now)
        if close_after:
            return 0.0, close_after / 1000
        wait = self._counted(self._listeners[listener], self._rate_of_listener(listener), now)
        if not self._is_protected(listener):
            wait = max(wait, self._counted(self._all, self._node.config.max_connection_creation_rate, now))
        return wait / 1000, 0.0

    def _too_fast(self, host: str, now: Millis) -> Millis:
        limit = self._node.metadata.client_quotas.table.connections(host)
        if limit is None:
            return 0
        if len(self._addresses) >= MOST_ADDRESSES:
            known = self._addresses.items()
            self._addresses = {host: each for host, each in known if not each[0].is_full(rate=each[1], now=now)}
        bucket, _ = self._addresses.get(host, (Bucket(self._longest), limit))
        self._addresses[host] = bucket, limit
        wait = self._counted(bucket, limit, now)
        if wait:
            bucket.take(-1, rate=limit, now=now)
        return wait

    def _counted(self, bucket: Bucket, limit: float, now: Millis) -> Millis:
        bucket.take(1, rate=limit, now=now)
        return min(bucket.wait(rate=limit, now=now), self._window)

    def _rate_of_listener(self, name: str) -> int:
        return self._node.config.listener(name).max_connection_creation_rate

    def _is_protected(self, listener: str) -> bool:
        """Whether brokers use this listener and clients another: clients must not keep brokers out."""
        return len(self._listeners) > 1 and self._node.config.inter_broker_listener == listener
