"""Logs in memory, and a partition of several replicas over them that a test or hypothesis drives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla import errors
from ottla.metadata.values import BrokerState, PartitionState
from ottla.replication.follower import Follower
from ottla.replication.leader import Leader
from ottla.replication.values import Append, EpochEnd, ReplicaFetch, Restart, Step, Truncate

LAG = 30_000
NO_DIVERGENCE = EpochEnd(-1, -1)


class Entry(NamedTuple):
    """A record: the epoch that wrote it, and its value."""

    epoch: int
    value: object


class MemoryLog:
    """A log as the machines see it; the value of offset n is `entries[n - start]`."""

    def __init__(self, *epochs: int, start: int = 0) -> None:
        self.log_start_offset = start
        self.base = start
        self.entries: list[Entry] = []
        self.epochs: list[tuple[int, int]] = []
        for epoch in epochs:
            self.append(Entry(epoch, f"{epoch}.{self.log_end_offset}"))

    @property
    def log_end_offset(self) -> int:
        return self.base + len(self.entries)

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        if epoch < 0 or epoch > self.latest_epoch:
            return -1, -1
        later = [start for known, start in self.epochs if known > epoch]
        known = [known for known, _ in self.epochs if known <= epoch]
        return (known[-1] if known else epoch), (later[0] if later else self.log_end_offset)

    def begin_epoch(self, epoch: int) -> None:
        if epoch > self.latest_epoch:
            self.epochs = [known for known in self.epochs if known[1] < self.log_end_offset]
            self.epochs.append((epoch, self.log_end_offset))

    def append(self, *entries: Entry) -> None:
        for entry in entries:
            self.begin_epoch(entry.epoch)
            self.entries.append(entry)

    def at(self, offset: int) -> Entry:
        return self.entries[offset - self.base]

    def read(self, offset: int, count: int = 100) -> list[Entry]:
        return self.entries[offset - self.base :][:count]

    def truncate_to(self, offset: int) -> None:
        del self.entries[max(0, offset - self.base) :]
        self.epochs = [known for known in self.epochs if known[1] < self.log_end_offset]

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.entries, self.epochs = [], []
        self.base = self.log_start_offset = offset

    def raise_start(self, offset: int) -> None:
        self.log_start_offset = max(self.log_start_offset, min(offset, self.log_end_offset))


@dataclass
class Response:
    """A partition of a Fetch response."""

    error_code: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEnd | None = NO_DIVERGENCE
    records: memoryview | None = None
    entries: tuple[Entry, ...] = ()


def active_brokers(*ids: int) -> dict[int, BrokerState]:
    """Brokers with epochs 100 + id."""
    return {broker_id: BrokerState(broker_id, 100 + broker_id, ()) for broker_id in ids}


def new_leader(
    log: MemoryLog,
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    epoch: int = 5,
    min_isr: int = 1,
    high_watermark: int = 0,
    brokers: dict[int, BrokerState] | None = None,
    now: int = 0,
) -> Leader:
    """Broker 1 as the leader."""
    log.begin_epoch(epoch)
    return Leader(
        me=1,
        state=PartitionState(replicas, isr, 1, leader_epoch=epoch, partition_epoch=10),
        log=log,
        brokers=active_brokers(*replicas) if brokers is None else brokers,
        min_isr=min_isr,
        max_lag_ms=LAG,
        high_watermark=high_watermark,
        now=now,
    )


def fetch_of(
    replica: int, offset: int, *, leader: Leader, last_epoch: int | None = None, broker_epoch: int | None = None
) -> ReplicaFetch:
    """A fetch of a follower whose log matches the leader's up to `offset`."""
    return ReplicaFetch(
        replica,
        100 + replica if broker_epoch is None else broker_epoch,
        leader.leader_epoch,
        offset,
        -1 if last_epoch is None else last_epoch,
        0,
    )


def answer_fetch(leader: Leader, log: MemoryLog, fetch: ReplicaFetch, *, now: int, count: int = 100) -> Response:
    """The response of a broker to a follower's fetch."""
    try:
        fetched = leader.fetched(fetch, now=now)
    except errors.OffsetOutOfRange as error:
        return Response(error.code, log_start_offset=log.log_start_offset)
    except errors.KafkaError as error:
        return Response(error.code)
    if fetched.diverging is not None:
        return Response(0, leader.high_watermark, log.log_start_offset, fetched.diverging)
    entries = tuple(log.read(fetch.fetch_offset, count))
    return Response(0, leader.high_watermark, log.log_start_offset, entries=entries)


def perform(follower: Follower, log: MemoryLog, step: Step, entries: tuple[Entry, ...] = ()) -> None:
    """Do what a step says, as the broker does."""
    match step:
        case Append():
            log.append(*entries)
            follower.appended(step)
            log.raise_start(follower.start_offset)
        case Truncate(offset):
            log.truncate_to(offset)
        case Restart(offset):
            log.truncate_fully_and_start_at(offset)


def sync_once(leader: Leader, source: MemoryLog, follower: Follower, log: MemoryLog, *, replica: int, now: int) -> Step:
    """One round of a follower: fetch, answer, step."""
    fetch = ReplicaFetch(
        replica,
        100 + replica,
        follower.leader_epoch,
        follower.fetch_offset,
        follower.last_fetched_epoch,
        log.log_start_offset,
    )
    response = answer_fetch(leader, source, fetch, now=now)
    step = follower.response(fetch.fetch_offset, response)
    perform(follower, log, step, response.entries)
    return step


def changed(leader: Leader, *isr: int, steps: int = 1) -> PartitionState:
    """The leader's state with another ISR, some partition epochs later."""
    return replace(leader.state, isr=isr, partition_epoch=leader.state.partition_epoch + steps)
