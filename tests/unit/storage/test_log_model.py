"""Compare a log with a simple model through random sequences of operations."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.errors import OffsetOutOfRange, OutOfOrderSequenceNumber
from ottla.records import Compression, Record, scan
from ottla.records.header import CRC_AT
from ottla.storage import retention
from unit.storage.log_material import (
    PARTITION,
    T0,
    Store,
    find_timestamp,
    offsets_of,
    read_records,
    read_slice,
    topic_config,
    value_at,
)

RETENTION = 10_000


class LogModel(RuleBasedStateMachine):
    """The model is a list of all written records and the log start offset."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="ottla-model-"))
        self.records: list[Record] = []
        self.start = 0
        self.flushed = 0
        self.sequences: dict[int, list[tuple[int, int, int]]] = {}

    @initialize(segment_bytes=st.sampled_from([2000, 5000, 20_000]), interval=st.sampled_from([0, 300, 4096]))
    def create(self, segment_bytes: int, interval: int) -> None:
        config = topic_config(
            segment_bytes=segment_bytes, index_interval_bytes=interval, retention_ms=RETENTION, segment_ms=10**12
        )
        self.store = Store(self.path, config=config)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.crash()
        shutil.rmtree(self.path)

    @property
    def end(self) -> int:
        return len(self.records)

    def written(self, count: int, size: int) -> list[bytes | None]:
        values: list[bytes | None] = [value_at(self.end + number, size) for number in range(count)]
        self.records += [Record(self.end + n, self.store.now, None, value) for n, value in enumerate(values)]
        return values

    @rule(count=st.integers(1, 6), size=st.integers(20, 300), codec=st.sampled_from(list(Compression)))
    def append(self, count: int, size: int, codec: Compression) -> None:
        base, time = self.end, self.store.now
        info = self.store.append(values=self.written(count, size), timestamp=time, compression=codec)
        assert (info.base_offset, info.last_offset, info.duplicate) == (base, base + count - 1, False)

    @rule(producer=st.integers(1, 3), count=st.integers(1, 4))
    def append_idempotent(self, producer: int, count: int) -> None:
        batches = self.sequences.setdefault(producer, [])
        sequence = batches[-1][0] + batches[-1][1] if batches else 0
        batches.append((sequence, count, self.end))
        self.store.append(
            values=self.written(count, 40), timestamp=self.store.now, producer_id=producer, sequence=sequence
        )

    @rule(producer=st.integers(1, 3), back=st.integers(1, 5))
    def append_again(self, producer: int, back: int) -> None:
        """Send one of a producer's last five batches again, even if its records were removed."""
        batches = self.sequences.get(producer, [])
        if len(batches) < back or batches[-back][2] < self.start:
            return
        sequence, count, offset = batches[-back]
        info = self.store.append(values=[b"again"] * count, producer_id=producer, sequence=sequence)
        assert info.duplicate
        assert info.base_offset == offset

    @rule(producer=st.integers(1, 3), ahead=st.integers(1, 9))
    def append_too_early(self, producer: int, ahead: int) -> None:
        batches = self.sequences.get(producer)
        if batches:
            with pytest.raises(OutOfOrderSequenceNumber):
                self.store.append(producer_id=producer, sequence=batches[-1][0] + batches[-1][1] + ahead)

    @rule()
    def roll(self) -> None:
        self.store.log.roll(now=self.store.now)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = round(self.end * share)
        self.start = max(self.start, offset)
        assert self.store.log.delete_records(offset) == self.start
        self.store.manager.write_start_offsets()

    @rule(by=st.integers(0, RETENTION))
    def wait(self, by: int) -> None:
        self.store.clock.advance(by)

    @rule()
    def apply_retention(self) -> None:
        """Remove whole segments from the start, only if all of their records are too old."""
        retention.apply(self.store.log, self.end, now=self.store.now)
        start = self.store.log.log_start_offset
        assert start >= self.start
        limit = self.store.now - RETENTION
        assert all(record.timestamp < limit for record in self.records[self.start : start])
        self.start = start
        first = self.store.log.segments[0]
        if len(self.store.log.segments) > 1:
            end = self.store.log.segments[1].base_offset
            assert end > start
            assert any(record.timestamp >= limit for record in self.records[first.base_offset : end])

    @rule()
    def flush(self) -> None:
        self.store.log.flush()
        self.flushed = self.end

    @rule()
    def checkpoint(self) -> None:
        self.store.manager.write_recovery_points()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.store.reopen(clean=clean)
        assert self.store.report.clean == clean
        if clean:
            self.flushed = self.end

    @precondition(lambda self: self.end > self.start)
    @rule(kind=st.sampled_from(["cut", "zeroes", "flip"]), where=st.floats(0, 1))
    def lose_power(self, kind: str, where: float) -> None:
        """Damage anything that was not flushed; a prefix of whole batches survives."""
        log = self.store.log
        active = log.segments.active
        first = max(self.flushed, active.base_offset)
        safe = self.flushed if self.flushed > active.base_offset else active.base_offset
        if active.verification is not None or not active.size or first >= self.end:
            return
        found = active.find(first)
        assert found is not None
        path = active.path
        self.store.crash()
        damage(path, kind, found.position, where)
        self.store.open()
        end = self.store.log.log_end_offset
        assert safe <= end <= self.end
        self.records = self.records[:end]
        # A log that ends before its start offset starts there, and knows no producers.
        empty = any("starts empty" in note for report in self.store.report.logs for note in report.notes)
        self.forget_sequences_from(0 if empty else end)

    def forget_sequences_from(self, end: int) -> None:
        for producer, batches in self.sequences.items():
            self.sequences[producer] = [batch for batch in batches if batch[2] < end]
        self.sequences = {producer: batches for producer, batches in self.sequences.items() if batches}

    @precondition(lambda self: self.start == 0)
    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = round(self.end * share)
        boundaries = [batch for batches in self.sequences.values() for batch in batches]
        if any(base < offset < base + count for _, count, base in boundaries):
            return
        self.store.log.truncate_to(offset, now=self.store.now)
        kept = read_records(self.store.log)
        self.records = self.records[:offset]
        if offsets_of(kept) != list(range(offset)):
            # The cut went through a batch, which then goes as a whole: the model cannot have gaps.
            end = len(kept)
            self.store.log.truncate_to(end, now=self.store.now)
            self.store.log.log_end_offset = end
            self.records = self.records[:end]
        self.flushed = min(self.flushed, self.end)
        self.forget_sequences_from(self.end)

    @rule(share=st.floats(0, 1), max_bytes=st.sampled_from([1, 200, 1000, 10**6]))
    def read_from(self, share: float, max_bytes: int) -> None:
        offset = self.start + round((self.end - self.start) * share)
        found = read_records(self.store.log, offset, max_bytes=max_bytes)
        assert found == self.records[offset:]

    @rule(share=st.floats(0, 1))
    def read_up_to(self, share: float) -> None:
        """A read returns exactly the whole batches below the end."""
        end = self.start + round((self.end - self.start) * share)
        found = read_records(self.store.log, self.start, end=end)
        assert found == self.records[self.start : self.start + len(found)]
        assert len(found) <= end - self.start

    @rule()
    def read_out_of_range(self) -> None:
        for offset in (self.start - 1, self.end + 1):
            with pytest.raises(OffsetOutOfRange):
                read_slice(self.store.log, offset)

    @rule(share=st.floats(0, 1))
    def find_by_timestamp(self, share: float) -> None:
        timestamp = T0 + round((self.store.now - T0) * share)
        wanted = next((r for r in self.records[self.start :] if r.timestamp >= timestamp), None)
        found = find_timestamp(self.store.log, timestamp)
        assert (found and (found.offset, found.timestamp)) == (wanted and (wanted.offset, wanted.timestamp))

    @invariant()
    def the_ends_agree(self) -> None:
        if hasattr(self, "store"):
            log = self.store.log
            assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
            assert self.store.manager.get(PARTITION) is log


def damage(path: str, kind: str, start: int, where: float) -> None:
    """Damage a log file after `start`; flip a bit only where the CRC covers it."""
    data = bytearray(Path(path).read_bytes())
    batches = scan(data, start, len(data)).batches
    position = start + int((len(data) - 1 - start) * where)
    if kind == "cut":
        del data[position:]
    elif kind == "zeroes":
        data[position:] = bytes(len(data) - position)
    else:
        at, header = batches[int((len(batches) - 1) * where)]
        data[at + CRC_AT + int((header.size - CRC_AT - 1) * where)] ^= 0x20
    Path(path).write_bytes(data)


LogModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLogModel = LogModel.TestCase
