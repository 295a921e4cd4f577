"""Batches to append, and a data directory to close, crash and reopen under a manual clock."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ottla.config import BrokerConfig, TopicConfig
from ottla.records import Compression, Record, decode_batch, encode_batch, scan
from ottla.storage.log import AppendInfo, Log, SegmentUnverified, Slice
from ottla.storage.manager import LogManager, OpenReport
from ottla.storage.reading import OffsetAndTimestamp
from ottla.storage.retention import remove_paths
from ottla.testing import ManualClock
from ottla.types import TopicPartition

T0 = 1_700_000_000_000
PARTITION = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDEF)


def record_batch(
    values: Sequence[bytes | None] = (b"value",),
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamp: int = T0,
    timestamps: Sequence[int] | None = None,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    epoch: int | None = None,
    sequence: int = -1,
    transactional: bool = False,
) -> memoryview:
    """A batch as a producer sends it."""
    times = timestamps or [timestamp] * len(values)
    names = keys or [None] * len(values)
    records = [Record(n, times[n], names[n], value) for n, value in enumerate(values)]
    data = encode_batch(
        records,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=(0 if producer_id >= 0 else -1) if epoch is None else epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return memoryview(bytearray(data))


def marker_batch(producer_id: int, *, epoch: int = 0, commit: bool, coordinator_epoch: int = 0) -> memoryview:
    """The control batch that ends a transaction."""
    key = (0).to_bytes(2, "big") + int(commit).to_bytes(2, "big")
    value = (0).to_bytes(2, "big") + coordinator_epoch.to_bytes(4, "big")
    data = encode_batch(
        [Record(0, T0, key, value)], producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True
    )
    return memoryview(bytearray(data))


def topic_config(**settings: Any) -> TopicConfig:
    """A topic's configuration; `segment_bytes` may be smaller than Kafka's minimum."""
    if "segment_bytes" in settings:
        settings["internal_segment_bytes"] = settings.pop("segment_bytes")
    return TopicConfig.parse({name.replace("_", "."): value for name, value in settings.items()})


class Store:
    """A data directory with one partition in it."""

    def __init__(self, path: Path, *, config: TopicConfig | None = None, **broker: Any) -> None:
        self.path = path
        self.clock = ManualClock(T0)
        self.config = config or TopicConfig()
        self.broker = BrokerConfig.parse({name.replace("_", "."): value for name, value in broker.items()})
        self.manager: LogManager
        self.report: OpenReport
        self.log: Log
        self.open()

    @property
    def now(self) -> int:
        return self.clock.now()

    @property
    def directory(self) -> Path:
        return self.path / str(PARTITION)

    def open(self) -> Log:
        self.manager = LogManager([self.path], self.broker, clock=self.clock, max_open_files=16)
        self.manager.lock()
        self.report = self.manager.open()
        self.log = self.manager.create(PARTITION, TOPIC_ID, self.config)
        self.log.config = self.config
        return self.log

    def crash(self) -> None:
        """Stop like kill -9: only what was written is in the files."""
        self.manager.close(clean=False)

    def close(self) -> None:
        self.manager.close()

    def reopen(self, *, clean: bool) -> Log:
        self.close() if clean else self.crash()
        return self.open()

    def append(self, records: memoryview | None = None, *, leader_epoch: int = 0, **batch: Any) -> AppendInfo:
        records = record_batch(**batch) if records is None else records
        return self.log.append(records, leader_epoch=leader_epoch, now=self.now)

    def append_own(self, records: memoryview, *, leader_epoch: int = 0) -> AppendInfo:
        return self.log.append(records, leader_epoch=leader_epoch, now=self.now, from_client=False)

    def fill(self, batches: int, *, size: int = 100) -> None:
        """Append batches of one record; the value is the offset."""
        for _ in range(batches):
            self.append(values=[value_at(self.log.log_end_offset, size)])

    def remove_due_files(self) -> None:
        remove_paths(self.manager.due_deletions(now=self.now))

    def files(self, suffix: str = "") -> list[str]:
        return sorted(name for name in os.listdir(self.directory) if name.endswith(suffix))


def value_at(offset: int, size: int = 100) -> bytes:
    return b"%020d" % offset + b"." * (size - 20)


def read_slice(log: Log, offset: int, max_bytes: int = 2**20, end: int | None = None, one: bool = True) -> Slice:
    """Read and verify segments, as the broker does."""
    end_offset = log.log_end_offset if end is None else end
    while True:
        try:
            return log.read(offset, max_bytes=max_bytes, end_offset=end_offset, min_one_batch=one)
        except SegmentUnverified as unverified:
            unverified.segment.verify()


def read_records(
    log: Log, offset: int | None = None, *, max_bytes: int = 2**20, end: int | None = None
) -> list[Record]:
    """All records that a consumer gets from `offset` on."""
    offset = log.log_start_offset if offset is None else offset
    end_offset = log.log_end_offset if end is None else end
    records: list[Record] = []
    while offset < end_offset:
        data = read_slice(log, offset, max_bytes, end_offset).read()
        found = scan(data, 0, len(data))
        assert found.problem is None
        assert not found.incomplete
        if not found.batches:
            break
        for position, header in found.batches:
            assert header.last_offset < end_offset
            records += [record for record in decode_batch(data, position) if record.offset >= offset]
        offset = found.batches[-1][1].next_offset
    return records


def offsets_of(records: Sequence[Record]) -> list[int]:
    return [record.offset for record in records]


def segment_bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def find_timestamp(log: Log, timestamp: int, end: int | None = None) -> OffsetAndTimestamp | None:
    """Look up a timestamp and verify segments, as the broker does."""
    end_offset = log.log_end_offset if end is None else end
    while True:
        try:
            return log.offset_for_timestamp(timestamp, end_offset=end_offset)
        except SegmentUnverified as unverified:
            unverified.segment.verify()
