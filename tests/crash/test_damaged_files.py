"""Files after a power loss, a bad disk or a mistake, and what the next start does with them.

The tail above the recovery point is cut at the first incomplete batch. Everything below was flushed: damage there is
reported (in the log, and in an error with file and offsets) and never served; the rest stays readable.
"""

from __future__ import annotations

import logging
import os
import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.config import BrokerConfig, TopicConfig
from ottla.errors import CorruptMessage
from ottla.records import Record, decode_batch, encode_batch, read_header, scan
from ottla.storage.log import Log, SegmentUnverified
from ottla.storage.manager import LogManager, OpenReport
from ottla.testing import ManualClock
from ottla.types import TopicPartition

T0 = 1_700_000_000_000
PARTITION = TopicPartition("orders", 0)
BATCH_SIZE = 169
SEGMENT_BYTES = 20_000
A_SEGMENT = SEGMENT_BYTES // BATCH_SIZE


class Disk:
    """One partition with one record per batch, in segments of 20,000 bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = TopicConfig.parse({"internal.segment.bytes": SEGMENT_BYTES})
        self.manager: LogManager
        self.report: OpenReport
        self.log: Log
        self.start()

    def start(self) -> None:
        self.manager = LogManager([self.path], BrokerConfig(), clock=ManualClock(T0))
        self.manager.lock()
        self.report = self.manager.open()
        self.log = self.manager.create(PARTITION, uuid.UUID(int=1), self.config)
        self.log.config = self.config

    def write(self, count: int) -> None:
        for _ in range(count):
            offset = self.log.log_end_offset
            data = encode_batch(
                [Record(0, T0 + offset, b"%08d" % offset, b"%020d" % offset + b"." * 71)],
                producer_id=5,
                producer_epoch=0,
                base_sequence=offset,
            )
            assert len(data) == BATCH_SIZE
            self.log.append(memoryview(bytearray(data)), leader_epoch=0, now=T0)

    def crash(self) -> None:
        self.manager.close(clean=False)

    def stop(self) -> None:
        self.manager.close()

    def file(self, base_offset: int, suffix: str = ".log") -> Path:
        return self.path / str(PARTITION) / f"{base_offset:020d}{suffix}"

    @property
    def notes(self) -> str:
        return "\n".join(note for report in self.report.logs for note in report.notes)

    def read(self, offset: int) -> list[Record]:
        while True:
            try:
                end = self.log.log_end_offset
                found = self.log.read(offset, max_bytes=10**6, end_offset=end, min_one_batch=True)
            except SegmentUnverified as unverified:
                unverified.segment.verify()
                continue
            data = found.read()
            batches = scan(data, 0, len(data))
            assert batches.problem is None, "damaged bytes were served"
            return [record for position, _ in batches.batches for record in decode_batch(data, position)]

    def readable(self) -> tuple[list[int], list[CorruptMessage]]:
        """All offsets that a consumer can read if it skips every error, and the errors."""
        offset, offsets, problems = self.log.log_start_offset, [], []
        while offset < self.log.log_end_offset:
            try:
                records = self.read(offset)
            except CorruptMessage as error:
                problems.append(error)
                offset = int(str(error).rpartition("offset is ")[2])
                continue
            for record in records:
                assert record.value is not None
                assert int(record.value[:20]) == record.offset
            offsets += [record.offset for record in records]
            offset = offsets[-1] + 1
        return offsets, problems


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    disk.crash()


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def extend(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


# ── the tail ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("missing", [1, 20, BATCH_SIZE - 62, BATCH_SIZE - 12, BATCH_SIZE - 5, BATCH_SIZE - 1])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(disk: Disk, missing: int) -> None:
    disk.write(50)
    disk.crash()
    cut(disk.file(0), 50 * BATCH_SIZE - missing)
    disk.start()
    assert disk.log.log_end_offset == 49
    assert disk.readable() == (list(range(49)), [])
    assert f"cut {BATCH_SIZE - missing} bytes" in disk.notes
    assert disk.report.logs[0].truncated_bytes == BATCH_SIZE - missing
    assert os.path.getsize(disk.file(0)) == 49 * BATCH_SIZE
    disk.write(5)
    assert disk.readable() == (list(range(54)), [])


@pytest.mark.parametrize("size", [1, 11, 12, 17, 61, 4096, 100_000])
def test_a_zero_filled_tail_is_cut(disk: Disk, size: int) -> None:
    disk.write(50)
    disk.crash()
    extend(disk.file(0), bytes(size))
    disk.start()
    assert disk.log.log_end_offset == 50
    assert disk.readable() == (list(range(50)), [])
    assert f"cut {size} bytes" in disk.notes


@pytest.mark.parametrize("position", [0, 6, 7, 8, 16, 17, 21, 25, 40, 60, 61, 100, BATCH_SIZE - 1])
def test_a_flipped_bit_in_the_tail_cuts_from_there(disk: Disk, position: int) -> None:
    disk.write(50)
    disk.crash()
    flip(disk.file(0), 40 * BATCH_SIZE + position)
    disk.start()
    assert disk.log.log_end_offset == 40
    assert disk.readable() == (list(range(40)), [])
    assert "position" in disk.notes
    disk.write(1)
    assert disk.readable() == (list(range(41)), [])


def test_random_bytes_behind_the_log_are_cut(disk: Disk) -> None:
    disk.write(50)
    disk.crash()
    extend(disk.file(0), os.urandom(5000))
    disk.start()
    assert disk.readable() == (list(range(50)), [])


def test_an_old_batch_behind_the_log_is_cut(disk: Disk) -> None:
    disk.write(50)
    disk.crash()
    extend(disk.file(0), disk.file(0).read_bytes()[: 3 * BATCH_SIZE])
    disk.start()
    assert disk.log.log_end_offset == 50
    assert disk.readable() == (list(range(50)), [])
    assert "offset 0 comes after offset 49" in disk.notes


def test_what_comes_after_a_cut_goes_too(disk: Disk) -> None:
    disk.write(3 * A_SEGMENT)
    disk.crash()
    flip(disk.file(A_SEGMENT), 10 * BATCH_SIZE + 70)
    disk.start()
    assert disk.log.log_end_offset == A_SEGMENT + 10
    assert disk.readable() == (list(range(A_SEGMENT + 10)), [])
    assert "follows the cut" in disk.notes
    disk.stop()
    disk.start()
    assert disk.report.clean
    assert disk.readable() == (list(range(A_SEGMENT + 10)), [])


def test_a_tail_cut_to_nothing(disk: Disk) -> None:
    disk.write(50)
    disk.crash()
    cut(disk.file(0), 0)
    disk.start()
    assert disk.log.log_end_offset == 0
    disk.write(3)
    assert disk.readable() == ([0, 1, 2], [])


def test_the_producers_know_only_what_was_kept(disk: Disk) -> None:
    disk.write(50)
    disk.crash()
    cut(disk.file(0), 45 * BATCH_SIZE + 10)
    disk.start()
    assert disk.log.active_producers()[0].last_sequence == 44
    disk.write(1)
    assert disk.log.log_end_offset == 46


def test_a_tail_that_was_cut_after_a_clean_shutdown_is_noticed(disk: Disk) -> None:
    disk.write(50)
    disk.stop()
    cut(disk.file(0), 45 * BATCH_SIZE + 10)
    disk.start()
    assert disk.report.clean
    assert disk.log.log_end_offset == 45
    assert "does not end at offset 50" in disk.notes
    assert disk.readable() == (list(range(45)), [])


# ── indexes ─────────────────────────────────────────────────────────────────────────────────────────────


def zeroes(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def shuffled(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[::-1])


def one_byte_short(path: Path) -> None:
    cut(path, max(0, path.stat().st_size - 1))


def preallocated(path: Path) -> None:
    extend(path, bytes(8 * 12 * 1000))


def emptied(path: Path) -> None:
    cut(path, 0)


INDEX_DAMAGE = [Path.unlink, zeroes, shuffled, one_byte_short, preallocated, emptied]


@pytest.mark.parametrize("damage", INDEX_DAMAGE, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("base_offset", [0, 2 * A_SEGMENT])
def test_a_damaged_index_is_built_again(
    disk: Disk, damage: Callable[[Path], None], suffix: str, clean: bool, base_offset: int
) -> None:
    disk.write(2 * A_SEGMENT + 60)
    disk.log.flush()
    disk.stop() if clean else disk.crash()
    good = {path.name: path.read_bytes() for path in disk.file(0).parent.glob("*index") if path.stat().st_size}
    damage(disk.file(base_offset, suffix))
    disk.start()
    assert disk.readable() == (list(range(2 * A_SEGMENT + 60)), [])
    for offset in (0, 1, 70, A_SEGMENT, 2 * A_SEGMENT + 59):
        assert disk.read(offset)[0].offset == offset
        assert find(disk, T0 + offset) == offset
    disk.stop()
    after = {name: (disk.file(0).parent / name).read_bytes() for name in good}
    if clean and damage is not emptied:
        assert after == good


def find(disk: Disk, timestamp: int) -> int:
    while True:
        try:
            found = disk.log.offset_for_timestamp(timestamp, end_offset=disk.log.log_end_offset)
        except SegmentUnverified as unverified:
            unverified.segment.verify()
            continue
        assert found is not None
        return found.offset


def test_an_index_that_points_into_the_middle_of_batches_is_noticed_by_the_first_reader(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.write(2 * A_SEGMENT)
    disk.stop()
    path = disk.file(0, ".index")
    entries = [(offset, position + 3) for offset, position in struct.iter_unpack(">ii", path.read_bytes())]
    path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    disk.start()
    assert disk.read(A_SEGMENT - 10)[0].offset == A_SEGMENT - 10
    assert "have been rebuilt" in caplog.text
    assert disk.readable() == (list(range(2 * A_SEGMENT)), [])
    disk.stop()
    disk.start()
    assert disk.read(A_SEGMENT - 10)[0].offset == A_SEGMENT - 10


def test_an_index_with_offsets_that_are_too_small_is_noticed(disk: Disk) -> None:
    disk.write(2 * A_SEGMENT)
    disk.stop()
    path = disk.file(0, ".index")
    entries = [(offset - 20, position) for offset, position in struct.iter_unpack(">ii", path.read_bytes())]
    path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    disk.start()
    for offset in range(A_SEGMENT):
        assert disk.read(offset)[0].offset == offset


def test_index_files_without_a_log_are_removed(disk: Disk) -> None:
    disk.write(10)
    disk.stop()
    disk.file(5000, ".index").write_bytes(bytes(16))
    disk.start()
    assert not disk.file(5000, ".index").exists()
    assert disk.log.log_end_offset == 10


# ── older segments ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("position", [0, 3, 6, 7, 8, 9, 11, 16, 17, 22, 26, 43, 61, 120, BATCH_SIZE - 1])
def test_a_damaged_batch_in_an_older_segment_is_reported_and_never_served(
    disk: Disk, position: int, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk.write(3 * A_SEGMENT)
    disk.log.flush()
    disk.manager.write_recovery_points()
    disk.stop() if clean else disk.crash()
    flip(disk.file(A_SEGMENT), 50 * BATCH_SIZE + position)
    disk.start()
    offsets, problems = disk.readable()
    lost = sorted(set(range(3 * A_SEGMENT)) - set(offsets))
    assert lost[0] == A_SEGMENT + 50
    assert len(lost) <= 1 + 4096 // BATCH_SIZE + 1, "damage goes no further than to the next index entry"
    assert lost == list(range(lost[0], lost[-1] + 1))
    assert len(problems) == 1
    message = str(problems[0])
    assert disk.file(A_SEGMENT).name in message
    assert f"position {50 * BATCH_SIZE}" in message
    assert f"offsets {lost[0]} to {lost[-1]}" in message
    assert "is damaged at position" in caplog.text
    assert disk.log.log_end_offset == 3 * A_SEGMENT
    for offset in lost:
        with pytest.raises(CorruptMessage):
            disk.read(offset)


def test_damage_in_the_flushed_part_of_the_last_segment_does_not_cost_what_follows(disk: Disk) -> None:
    disk.write(60)
    disk.log.flush()
    disk.manager.write_recovery_points()
    disk.write(40)
    disk.crash()
    flip(disk.file(0), 30 * BATCH_SIZE + 80)
    disk.start()
    offsets, problems = disk.readable()
    assert offsets == [offset for offset in range(100) if offset != 30]
    assert len(problems) == 1
    disk.write(5)
    assert disk.readable()[0] == [offset for offset in range(105) if offset != 30]


def test_damage_to_the_end_of_an_older_segment(disk: Disk) -> None:
    disk.write(3 * A_SEGMENT)
    disk.stop()
    data = bytearray(disk.file(0).read_bytes())
    data[100 * BATCH_SIZE :] = bytes(len(data) - 100 * BATCH_SIZE)
    disk.file(0).write_bytes(data)
    disk.start()
    offsets, problems = disk.readable()
    assert offsets == [*range(100), *range(A_SEGMENT, 3 * A_SEGMENT)]
    assert f"the next readable offset is {A_SEGMENT}" in str(problems[0])


def test_damage_at_the_very_start_of_an_older_segment(disk: Disk) -> None:
    disk.write(3 * A_SEGMENT)
    disk.stop()
    flip(disk.file(A_SEGMENT), 70)
    disk.start()
    offsets, _ = disk.readable()
    assert offsets == [offset for offset in range(3 * A_SEGMENT) if offset != A_SEGMENT]
    assert disk.manager.damaged_bytes == BATCH_SIZE


@pytest.mark.parametrize("position", [0, 4, 6, 7])
def test_a_damaged_offset_of_the_last_batch_of_an_older_segment(disk: Disk, position: int) -> None:
    disk.write(3 * A_SEGMENT)
    disk.stop()
    flip(disk.file(0), (A_SEGMENT - 1) * BATCH_SIZE + position)
    disk.start()
    assert disk.readable()[0] == [offset for offset in range(3 * A_SEGMENT) if offset != A_SEGMENT - 1]


def test_an_older_segment_that_became_shorter(disk: Disk) -> None:
    disk.write(3 * A_SEGMENT)
    disk.stop()
    cut(disk.file(A_SEGMENT), 60 * BATCH_SIZE + 5)
    disk.start()
    offsets, problems = disk.readable()
    assert offsets == [*range(A_SEGMENT + 60), *range(2 * A_SEGMENT, 3 * A_SEGMENT)]
    assert len(problems) == 1


def test_an_older_segment_that_becomes_shorter_while_the_broker_runs(disk: Disk) -> None:
    disk.write(3 * A_SEGMENT)
    disk.stop()
    disk.start()
    cut(disk.file(A_SEGMENT), 60 * BATCH_SIZE)
    offsets, problems = disk.readable()
    assert offsets == [*range(A_SEGMENT + 60), *range(2 * A_SEGMENT, 3 * A_SEGMENT)]
    assert "the file ends too early" in str(problems[0])


def test_damage_is_found_by_timestamp_look_ups_too(disk: Disk) -> None:
    disk.write(2 * A_SEGMENT)
    disk.stop()
    flip(disk.file(0), 50 * BATCH_SIZE + 80)
    disk.start()
    with pytest.raises(CorruptMessage):
        find(disk, T0 + 50)


def test_new_records_of_an_unverified_segment_are_served_at_once(disk: Disk) -> None:
    disk.write(50)
    disk.stop()
    disk.start()
    disk.write(1)
    slice_ = disk.log.read(50, max_bytes=1000, end_offset=51, min_one_batch=True)
    assert read_header(slice_.read()).base_offset == 50


# ── the other files ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("damage", [Path.unlink, zeroes, emptied], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_leader_epochs_are_taken_from_the_log(disk: Disk, damage: Callable[[Path], None], clean: bool) -> None:
    disk.write(2 * A_SEGMENT)
    disk.stop() if clean else disk.crash()
    damage(disk.file(0).with_name("leader-epoch-checkpoint"))
    disk.start()
    assert disk.log.epochs.entries == ((0, 0),)


@pytest.mark.parametrize("clean", [True, False])
def test_damaged_snapshots_are_made_up_for_from_the_log(disk: Disk, clean: bool) -> None:
    disk.write(3 * A_SEGMENT)
    disk.stop() if clean else disk.crash()
    for path in disk.file(0).parent.glob("*.snapshot"):
        zeroes(path)
    disk.start()
    (producer,) = disk.log.active_producers()
    assert producer.last_sequence == 3 * A_SEGMENT - 1


def test_the_first_segments_may_be_missing(disk: Disk) -> None:
    disk.write(3 * A_SEGMENT)
    disk.stop()
    for path in disk.file(0).parent.glob(f"{0:020d}.*"):
        path.unlink()
    disk.start()
    assert disk.log.log_start_offset == A_SEGMENT
    assert disk.readable() == (list(range(A_SEGMENT, 3 * A_SEGMENT)), [])


def test_all_segments_may_be_missing(disk: Disk) -> None:
    disk.write(3 * A_SEGMENT)
    disk.log.delete_records(50)
    disk.stop()
    for path in disk.file(0).parent.glob("*.log"):
        path.unlink()
    disk.start()
    assert disk.log.log_end_offset == 50, "the log goes on where its start was"
    disk.write(1)
    assert disk.readable()[0] == [50]


def test_recovery_tells_the_operator(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    disk.write(10)
    disk.crash()
    cut(disk.file(0), 5 * BATCH_SIZE + 1)
    with caplog.at_level(logging.WARNING, "ottla"):
        disk.start()
    assert "orders-0: cut 1 bytes" in caplog.text
    assert "ends at offset 5" in caplog.text
