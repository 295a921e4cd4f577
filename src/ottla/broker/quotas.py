"""Client quotas at work: count what clients use, and let those that use too much pause (KIP-13, 124, 219, 599).

The response to a client that uses too much says for how long it must pause, and leaves at once. Its connection is not
read meanwhile, so a client that ignores the pause gains nothing. A broker without quotas has no `Quotas`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from ottla import errors
from ottla.broker.authorization import acts_for_cluster
from ottla.metrics.registry import Labels, Number
from ottla.protocol._schemas import APIS
from ottla.protocol.apis import ApiKey, api
from ottla.protocol.codec import Buffer
from ottla.security.quotas import CONSUMER_BYTES, MUTATIONS, PRODUCER_BYTES, REQUEST_TIME, QuotaTable
from ottla.security.rates import Bucket
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.broker.node import Call, Node

#: What is known of more clients than this is forgotten as soon as it does not matter any more.
MOST_CLIENTS = 1_000
#: Clients choose their ids. Those that begin with the same characters, as many as this, share a default quota.
LONGEST_ID = 300
#: Like Kafka, the size of a response counts, not only its records.
RESPONSE_BYTES, PARTITION_BYTES = 20, 40
#: From these versions on clients understand that a change is refused because of a quota. Others must only pause.
STRICT_FROM: dict[int, int] = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
#: From this version on only brokers send AddPartitionsToTxn.
_ADDED_BY_BROKERS = 4


class Meter:
    """What the clients with one quota have used of it, and how often they had to pause."""

    __slots__ = ("client_id", "left", "limit", "name", "paused", "paused_ms", "until", "user")

    def __init__(self, name: str, user: str, client_id: str, longest: Millis) -> None:
        self.name = name
        self.user = user
        self.client_id = client_id
        self.limit = 0.0
        self.left = Bucket(longest)
        self.paused = 0
        self.paused_ms = 0
        self.until: Millis = 0
        """When the last pause ends."""

    @property
    def labels(self) -> Labels:
        return {"quota": self.name, "user": self.user, "client_id": self.client_id}

    def is_idle(self, *, now: Millis) -> bool:
        """Whether nothing is used of the quota."""
        return self.left.is_full(rate=self.limit, now=now)

    def charge(self, amount: float, *, now: Millis) -> Millis:
        """Count something; return how long the client must pause."""
        self.left.take(amount, rate=self.limit, now=now)
        return self.left.wait(rate=self.limit, now=now)


class Quotas:
    """The quotas of a broker that has some."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._now = node.clock.elapsed
        config = node.config
        self._window: Millis = config.quota_window_size_seconds * 1000
        #: As in Kafka, the current window does not count, but it does for changes of topics.
        self._longest: Millis = (config.quota_window_num - 1) * self._window
        self._longest_changes: Millis = (
            config.controller_quota_window_num * config.controller_quota_window_size_seconds * 1000
        )
        self._table = QuotaTable({})
        self._meters: dict[tuple[str, str, str], Meter] = {}
        self._found: dict[tuple[str, str, str | None], Meter | None] = {}
        """The meter of each quota, user and client id that was asked for."""

    def use(self, table: QuotaTable) -> None:
        """Use other quotas. What clients have used so far counts."""
        self._table = table
        self._found.clear()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def produced(self, call: Call, size: int) -> Millis:
        """Count a produce request; return how long its client must pause. Its connection does."""
        meter = self.meter(PRODUCER_BYTES, call)
        return 0 if meter is None else self._paused(call, meter, meter.charge(size, now=self._now()))

    def most_fetched(self, call: Call, asked: int) -> int:
        """Return how many of the bytes that a consumer asks for it may get at once. With more it would pause forever.

        With a single window this is nothing, so it gets one batch at a time.
        """
        meter = self.meter(CONSUMER_BYTES, call)
        return asked if meter is None else min(asked, int(meter.limit * self._longest / 1000))

    def fetched(self, call: Call, size: int, partitions: int) -> tuple[Millis, bool]:
        """Count the response to a consumer. Return how long it must pause, and whether its response must be empty."""
        meter = self.meter(CONSUMER_BYTES, call)
        if meter is None:
            return 0, False
        size += RESPONSE_BYTES + PARTITION_BYTES * partitions
        was_idle = meter.is_idle(now=self._now())
        pause = self._paused(call, meter, meter.charge(size, now=self._now()))
        # A batch that is larger than the quota allows at once would never be delivered, so the pause follows it.
        is_empty = pause > 0 and not was_idle
        if is_empty:
            meter.charge(-size, now=self._now())
        return pause, is_empty

    def took(self, call: Call, seconds: float) -> Millis:
        """Count the time that a request took; return how long its client must pause."""
        meter = None if self._is_of_broker(call) else self.meter(REQUEST_TIME, call)
        if meter is None:
            return 0
        return self._paused(call, meter, min(meter.charge(100 * seconds, now=self._now()), self._window))

    def _is_of_broker(self, call: Call) -> bool:
        """Whether a request is of a broker. Brokers never pause. Clients that only pretend to be one do."""
        if not call.connection.may_pause:
            return True
        if call.api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
            is_for_brokers = call.api_version >= _ADDED_BY_BROKERS
        else:
            is_for_brokers = call.api_key in _OF_BROKERS
        return is_for_brokers and acts_for_cluster(self._node, call)

    def _paused(self, call: Call, meter: Meter, pause: Millis) -> Millis:
        if pause:
            self.pause(call, meter, pause)
        return pause

    def pause(self, call: Call, meter: Meter, pause: Millis) -> None:
        """Let a client pause."""
        meter.paused += 1
        meter.paused_ms += pause
        meter.until = self._now() + pause
        if call.connection.may_pause:
            call.connection.mute(pause / 1000)

    # ── meters ────────────────────────────────────────────────────────────────────────────────────────────────────

    def meter(self, name: str, call: Call) -> Meter | None:
        """Return what counts for a client, or None if it has no such quota."""
        if name not in self._table.names:
            return None
        key = (name, call.principal.name, call.client_id)
        try:
            return self._found[key]
        except KeyError:
            if len(self._found) >= MOST_CLIENTS:
                self._found.clear()
                self._forget_idle()
            meter = self._found[key] = self._find(*key)
            return meter

    def _find(self, name: str, user: str, client_id: str | None) -> Meter | None:
        limit = self._table.limit(name, user, client_id or "")
        if limit is None:
            return None
        key = (name, limit.user, limit.client_id[:LONGEST_ID])
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = Meter(*key, self._longest_changes if name == MUTATIONS else self._longest)
        meter.limit = limit.value
        return meter

    def _forget_idle(self) -> None:
        now = self._now()
        for key, meter in list(self._meters.items()):
            if meter.is_idle(now=now):
                del self._meters[key]

    # ── metrics ───────────────────────────────────────────────────────────────────────────────────────────────────

    def throttled(self) -> Iterator[Meter]:
        """Iterate over the meters of clients that had to pause, the last ones first, not more than 1,000."""
        found = [meter for meter in self._meters.values() if meter.paused]
        found.sort(key=lambda meter: meter.until, reverse=True)
        return iter(found[:MOST_CLIENTS])


class TopicChanges:
    """Counts the partitions that one request creates or deletes."""

    def __init__(self, node: Node, call: Call) -> None:
        self._quotas = node.quotas
        self._call = call
        self._meter = None if node.quotas is None else node.quotas.meter(MUTATIONS, call)
        self._now = node.clock.elapsed
        self._until: Millis = 0

    def charge(self, partitions: int) -> None:
        """Count partitions. Raise ThrottlingQuotaExceeded if the quota is used up and the client understands that."""
        if (meter := self._meter) is None:
            return
        now, call = self._now(), self._call
        is_strict = call.api_version >= STRICT_FROM.get(call.api_key, 0)
        if is_strict and (wait := meter.left.wait(rate=meter.limit, now=now)):
            self._until = now + wait
            raise errors.ThrottlingQuotaExceeded(
                f"The quota {MUTATIONS} of {meter.limit:g} partitions per second is used up. Try again in {wait} ms."
            )
        pause = meter.charge(partitions, now=now)
        if not is_strict:
            self._until = now + pause

    def pause(self) -> Millis:
        """Return how long the client must pause after the request. Its connection does."""
        pause = max(0, self._until - self._now())
        if pause and self._quotas is not None and self._meter is not None:
            self._quotas.pause(self._call, self._meter, pause)
        return pause


_OF_BROKERS = frozenset({
    ApiKey.WRITE_TXN_MARKERS, ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE, ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.ASSIGN_REPLICAS_TO_DIRS,
})  # fmt: skip


# ── pauses in encoded responses ───────────────────────────────────────────────────────────────────────────────────


def throttle_time(call: Call, frame: Buffer) -> Millis:
    """Return how long a response tells the client to pause."""
    at = _throttle_time_at(call.api_key, call.api_version)
    return 0 if at is None else int.from_bytes(frame[at : at + 4], "big", signed=True)


def put_throttle_time(call: Call, frame: Buffer, pause: Millis) -> None:
    """Tell a client in an encoded response how long to pause. All responses that are made as bytes begin with that."""
    at = _throttle_time_at(call.api_key, call.api_version)
    if pause and at is not None:
        frame[at : at + 4] = pause.to_bytes(4, "big")


@cache
def _throttle_time_at(api_key: int, version: int) -> int | None:
    """Return where the throttle time is in the frame of a response, if that begins with it."""
    name, first, last = APIS[api_key][5][0][:3]
    if name != "throttle_time" or not first <= version <= last:
        return None
    # After the size, the correlation id and, in flexible versions, an empty list of tagged fields.
    return 9 if version >= api(api_key).flexible_from else 8


# ── a broker ──────────────────────────────────────────────────────────────────────────────────────────────────────


def use_quotas(node: Node) -> None:
    """Use the quotas of the metadata. A broker without any has no `Quotas`, so requests pay only for a test."""
    table = node.metadata.client_quotas.table
    if not table.names:
        node.quotas = None
    else:
        if node.quotas is None:
            node.quotas = Quotas(node)
        node.quotas.use(table)
    node.request_quotas = node.quotas if REQUEST_TIME in table.names else None
    node.on_quotas_change()


def throttle_metrics(node: Node) -> None:
    """Add the metrics of clients that had to pause."""
    add = node.metrics.registry.family

    def each(value: str) -> Iterator[tuple[Labels, Number]]:
        for meter in node.quotas.throttled() if node.quotas is not None else ():
            yield meter.labels, getattr(meter, value)

    def now() -> Iterator[tuple[Labels, Number]]:
        for meter in node.quotas.throttled() if node.quotas is not None else ():
            yield meter.labels, max(0, meter.until - node.clock.elapsed()) / 1000

    add("ottla_throttled_requests_total", "Requests whose client had to pause.", lambda: each("paused"), "counter")
    add("ottla_throttled_milliseconds_total", "Pauses that clients were given.", lambda: each("paused_ms"), "counter")
    add("ottla_throttled_seconds_left", "How long a client must pause now.", now)
