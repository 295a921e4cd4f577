"""Leader and followers over real logs: elections, crashes, truncation and deletion in random order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla import errors
from ottla.metadata.values import PartitionState
from ottla.replication.follower import Follower
from ottla.replication.leader import Leader
from ottla.replication.values import Append, ReplicaFetch, Restart, Truncate
from ottla.storage.log import Log
from unit.replication.cluster_material import LAG, Response, active_brokers
from unit.storage.log_material import Store, marker_batch, read_records, read_slice, topic_config

IDS = (1, 2, 3)


class Replicas:
    """Three replicas that are all in the ISR, so each of them may be elected."""

    def __init__(self, path: Path, seed: int) -> None:
        self.choose = random.Random(seed)
        self.config = topic_config(segment_bytes=600, index_interval_bytes=150)
        self.stores = {broker_id: Store(path / str(broker_id), config=self.config) for broker_id in IDS}
        self.roles: dict[int, Leader | Follower] = {}
        self.epoch = 0
        self.committed: dict[int, object] = {}
        self.sequence = 0
        self.elect(1)

    @property
    def leader_id(self) -> int:
        return next(broker_id for broker_id, role in self.roles.items() if isinstance(role, Leader))

    def elect(self, leader_id: int) -> None:
        marks = {broker_id: role.high_watermark for broker_id, role in self.roles.items()}
        self.epoch += 1
        state = PartitionState(IDS, IDS, leader_id, leader_epoch=self.epoch)
        for broker_id, store in self.stores.items():
            high_watermark = marks.get(broker_id, store.manager.checkpointed_high_watermark(store.log))
            if broker_id != leader_id:
                self.roles[broker_id] = Follower(state=state, log=store.log, high_watermark=high_watermark)
                continue
            store.log.begin_epoch(self.epoch)
            self.roles[broker_id] = Leader(
                me=leader_id,
                state=state,
                log=store.log,
                brokers=active_brokers(*IDS),
                min_isr=2,
                max_lag_ms=LAG,
                high_watermark=high_watermark,
                now=0,
            )

    def append(self) -> None:
        store, leader = self.stores[self.leader_id], self.roles[self.leader_id]
        assert isinstance(leader, Leader)
        kind = self.choose.randrange(4)
        values = [b"%d.%d" % (self.epoch, self.choose.randrange(10**6))] * self.choose.randrange(1, 4)
        if kind == 0:
            store.append_own(marker_batch(7, commit=bool(self.choose.randrange(2))), leader_epoch=self.epoch)
        elif kind == 1:
            known = store.log.producers.entries.get(7)
            sequence = 0 if known is None else known.last_sequence + 1
            store.append(values=values, producer_id=7, sequence=sequence, transactional=True, leader_epoch=self.epoch)
        else:
            store.append(values=values, leader_epoch=self.epoch)
        leader.appended(now=0)

    def round(self, broker_id: int) -> None:
        """One fetch of a follower."""
        follower, store, source = self.roles[broker_id], self.stores[broker_id], self.stores[self.leader_id]
        if isinstance(follower, Leader):
            return
        fetch = ReplicaFetch(
            broker_id,
            100 + broker_id,
            self.epoch,
            follower.fetch_offset,
            follower.last_fetched_epoch,
            store.log.log_start_offset,
        )
        step = follower.response(fetch.fetch_offset, self._answer(source, fetch))
        match step:
            case Append(records):
                if records:
                    store.log.append_as_follower(records, now=store.now)
                follower.appended(step)
                store.log.advance(start_offset=follower.start_offset, high_watermark=follower.high_watermark)
            case Truncate(offset):
                store.log.truncate_to(offset, now=store.now)
            case Restart(offset):
                store.log.truncate_fully_and_start_at(offset, now=store.now)

    def _answer(self, source: Store, fetch: ReplicaFetch) -> Response:
        leader, log = self.roles[self.leader_id], source.log
        assert isinstance(leader, Leader)
        try:
            fetched = leader.fetched(fetch, now=0)
        except errors.OffsetOutOfRange as error:
            return Response(error.code, log_start_offset=log.log_start_offset)
        if fetched.diverging is not None:
            return Response(0, leader.high_watermark, log.log_start_offset, fetched.diverging)
        records = b""
        if fetch.fetch_offset < log.log_end_offset:
            records = read_slice(log, fetch.fetch_offset, self.choose.choice([100, 500, 5000])).read()
        return Response(0, leader.high_watermark, log.log_start_offset, records=memoryview(records))

    def crash(self, broker_id: int) -> None:
        """kill -9 and a restart: the page cache survives, and a new epoch begins."""
        store = self.stores[broker_id]
        store.manager.high_watermark = lambda log: self.roles[broker_id].high_watermark
        if self.choose.randrange(2):
            store.manager.write_high_watermarks()
        if self.choose.randrange(2):
            store.log.flush()
            store.manager.write_recovery_points()
        store.reopen(clean=False)
        del self.roles[broker_id]
        self.elect(self.choose.choice(IDS))

    def delete(self) -> None:
        role, log = self.roles[self.leader_id], self.stores[self.leader_id].log
        if role.high_watermark > log.log_start_offset:
            log.delete_records(self.choose.randrange(log.log_start_offset, role.high_watermark + 1))

    def step(self) -> None:
        operation = self.choose.choices(["append", "round", "elect", "crash", "delete"], [6, 10, 2, 1, 1])[0]
        if operation in ("append", "delete"):
            getattr(self, operation)()
        else:
            getattr(self, operation)(self.choose.choice(IDS))
        self.check()

    def check(self) -> None:
        for broker_id, store in self.stores.items():
            for record in read_records(store.log, end=self.roles[broker_id].high_watermark):
                assert self.committed.setdefault(record.offset, record.value) == record.value

    def close(self) -> None:
        for store in self.stores.values():
            store.crash()


@pytest.mark.parametrize("seed", range(12))
def test_replicas_on_disk_agree(tmp_path: Path, seed: int) -> None:
    replicas = Replicas(tmp_path, seed)
    for _ in range(80):
        replicas.step()
    leader = replicas.stores[replicas.leader_id].log
    for _ in range(300):
        for broker_id in IDS:
            replicas.round(broker_id)
        if all(role.high_watermark == leader.log_end_offset for role in replicas.roles.values()):
            break
    replicas.check()
    for store in replicas.stores.values():
        log = store.log
        start, end = max(log.log_start_offset, leader.log_start_offset), log.log_end_offset
        assert end == leader.log_end_offset
        assert read_records(log, start) == read_records(leader, start)
        if log.segments[0].base_offset or leader.segments[0].base_offset:
            continue  # It started again, and does not know producers whose records were deleted.
        assert log.first_unstable_offset == leader.first_unstable_offset
        assert log.aborted_transactions(start, end) == leader.aborted_transactions(start, end)
        assert sequences(log) == sequences(leader)
    replicas.close()


def sequences(log: Log) -> dict[int, int]:
    return {entry.producer_id: entry.last_sequence for entry in log.producers}
