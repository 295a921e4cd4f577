"""Retention, DeleteRecords, truncation, and the removal of files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import errors
from ottla.storage import retention
from unit.storage.log_material import T0, Store, offsets_of, read_records, segment_bases, topic_config

HOUR = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Four segments with one record an hour, and the newest one in the active segment: bases 0, 2, 4, 6."""
    store = Store(tmp_path, config=topic_config(segment_bytes=400, retention_ms=-1, segment_ms=1000 * HOUR))
    for number in range(7):
        store.append(values=[b"x" * 100], timestamp=store.now)
        store.clock.advance(HOUR if number < 6 else 0)
    assert segment_bases(store.log) == [0, 2, 4, 6]
    yield store
    store.crash()


def apply(store: Store, high_watermark: int | None = None, **settings: object) -> list[int]:
    store.log.config = topic_config(segment_bytes=400, **({"retention_ms": -1} | settings))
    end = store.log.log_end_offset if high_watermark is None else high_watermark
    retention.apply(store.log, end, now=store.now)
    return segment_bases(store.log)


def test_segments_whose_newest_record_is_too_old_go(store: Store) -> None:
    assert apply(store, retention_ms=5 * HOUR) == [0, 2, 4, 6], "the newest record of the first is five hours old"
    store.clock.advance(1)
    assert apply(store, retention_ms=5 * HOUR) == [2, 4, 6]
    assert store.log.log_start_offset == 2
    assert offsets_of(read_records(store.log)) == [2, 3, 4, 5, 6]


def test_the_active_segment_goes_too_and_an_empty_one_stays(store: Store) -> None:
    store.clock.advance(100 * HOUR)
    assert apply(store, retention_ms=HOUR) == [7]
    assert (store.log.log_start_offset, store.log.log_end_offset) == (7, 7)
    assert apply(store, retention_ms=HOUR) == [7]
    assert store.append().base_offset == 7


def test_removal_stops_at_the_first_segment_that_stays(tmp_path: Path) -> None:
    store = Store(tmp_path, config=topic_config(segment_bytes=400, segment_ms=10**12))
    store.clock.advance(9 * HOUR)
    for timestamp in (T0, T0, T0 + 9 * HOUR, T0, T0, T0, T0):
        store.append(values=[b"x" * 100], timestamp=timestamp)
    assert apply(store, retention_ms=HOUR)[0] == 2
    store.crash()


def test_segments_in_excess_of_the_size_go(store: Store) -> None:
    size = store.log.size
    first = store.log.segments[0].size
    assert apply(store, retention_bytes=size) == [0, 2, 4, 6]
    assert apply(store, retention_bytes=size - first + 1) == [0, 2, 4, 6]
    assert apply(store, retention_bytes=size - first) == [2, 4, 6]
    assert apply(store, retention_bytes=0)[-1] == 7


def test_nothing_at_or_above_the_high_watermark_goes(store: Store) -> None:
    store.clock.advance(100 * HOUR)
    assert apply(store, 4, retention_ms=HOUR) == [4, 6]


def test_a_topic_that_is_only_compacted_keeps_old_segments(store: Store) -> None:
    store.clock.advance(100 * HOUR)
    assert apply(store, retention_ms=HOUR, cleanup_policy="compact") == [0, 2, 4, 6]


def test_records_without_timestamp_are_as_old_as_their_file(tmp_path: Path) -> None:
    store = Store(tmp_path, config=topic_config(segment_bytes=400))
    for _ in range(7):
        store.append(values=[b"x" * 100], timestamp=-1)
    import time

    now = time.time_ns() // 1_000_000
    store.log.config = topic_config(segment_bytes=400, retention_ms=HOUR)
    assert retention.apply(store.log, 7, now=now) == 0
    assert retention.apply(store.log, 7, now=now + 2 * HOUR) == 4
    store.crash()


def test_removed_files_stay_for_the_delay_and_then_go(store: Store) -> None:
    apply(store, retention_bytes=0, file_delete_delay_ms=5000)
    gone = [name for name in store.files(".deleted") if ".log" in name]
    assert gone == [f"{base:020d}.log.deleted" for base in (0, 2, 4, 6)]
    store.clock.advance(4999)
    store.remove_due_files()
    assert store.files(".log.deleted") == gone
    store.clock.advance(1)
    store.remove_due_files()
    assert store.files(".deleted") == []


def test_files_that_waited_for_their_removal_go_at_the_next_start(store: Store) -> None:
    apply(store, retention_bytes=0)
    store.reopen(clean=False)
    assert store.files(".deleted") == []
    assert segment_bases(store.log) == [7]


def test_the_active_segment_is_rolled_when_it_is_old(store: Store) -> None:
    store.log.config = topic_config(segment_bytes=400, segment_ms=10 * HOUR)
    retention.roll_by_time(store.log, now=T0 + 16 * HOUR)
    assert segment_bases(store.log)[-1] == 6
    retention.roll_by_time(store.log, now=T0 + 16 * HOUR + 1)
    assert segment_bases(store.log)[-1] == 7
    retention.roll_by_time(store.log, now=T0 + 100 * HOUR)
    assert segment_bases(store.log)[-1] == 7, "an empty segment is not rolled"


def test_delete_records_moves_the_start_and_retention_removes_the_files(store: Store) -> None:
    assert store.log.delete_records(5) == 5
    assert offsets_of(read_records(store.log)) == [5, 6]
    assert apply(store) == [4, 6]
    assert store.log.delete_records(3) == 5, "the start never goes back"
    assert store.log.delete_records(7) == 7
    assert read_records(store.log) == []
    assert apply(store) == [6], "the active segment stays"
    assert store.append().base_offset == 7
    assert offsets_of(read_records(store.log)) == [7]


@pytest.mark.parametrize("clean", [True, False])
def test_the_log_start_offset_survives_a_restart(store: Store, clean: bool) -> None:
    store.log.delete_records(5)
    store.manager.write_start_offsets()
    log = store.reopen(clean=clean)
    assert log.log_start_offset == 5
    assert offsets_of(read_records(log)) == [5, 6]


@pytest.mark.parametrize("offset", [-1, 8])
def test_delete_records_outside_of_the_log_is_refused(store: Store, offset: int) -> None:
    with pytest.raises(errors.OffsetOutOfRange):
        store.log.delete_records(offset)


def test_delete_records_of_a_compacted_topic_is_refused(store: Store) -> None:
    store.log.config = topic_config(cleanup_policy="compact")
    with pytest.raises(errors.PolicyViolation, match=r"cleanup\.policy"):
        store.log.delete_records(3)
    store.log.config = topic_config(cleanup_policy="compact,delete")
    assert store.log.delete_records(3) == 3


def test_the_leader_epochs_follow_the_start_of_the_log(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for epoch in (1, 1, 2, 4):
        store.append(leader_epoch=epoch)
    store.log.delete_records(3)
    assert store.log.epochs.entries == ((4, 3),)
    store.crash()


@pytest.mark.parametrize("offset", [0, 1, 3, 4, 6, 7])
@pytest.mark.parametrize("clean", [None, True, False])
def test_a_truncated_log_ends_where_it_was_cut(store: Store, offset: int, clean: bool | None) -> None:
    store.log.truncate_to(offset, now=store.now)
    log = store.log if clean is None else store.reopen(clean=clean)
    assert log.log_end_offset == offset
    assert offsets_of(read_records(log)) == list(range(offset))
    assert store.append(timestamp=T0).base_offset == offset
    assert offsets_of(read_records(log)) == list(range(offset + 1))


def test_truncation_takes_producers_and_epochs_back(tmp_path: Path) -> None:
    store = Store(tmp_path, config=topic_config(segment_bytes=300))
    for number in range(10):
        store.append(values=[b"v" * 50], producer_id=3, sequence=number, leader_epoch=number // 4)
    store.log.truncate_to(6, now=store.now)
    assert store.log.epochs.entries == ((0, 0), (1, 4))
    assert store.log.active_producers()[0].last_sequence == 5
    assert store.append(producer_id=3, sequence=6).base_offset == 6
    store.crash()


def test_records_written_after_a_truncation_are_not_taken_for_flushed(tmp_path: Path) -> None:
    """A crash may damage them, although the records they replaced were below the recovery point."""
    store = Store(tmp_path)
    store.append()
    store.reopen(clean=True)
    store.log.truncate_to(0, now=store.now)
    store.append(values=[b"damaged"])
    store.append()
    path = Path(store.log.segments.active.path)
    store.crash()
    path.write_bytes(path.read_bytes().replace(b"damaged", b"DAMAGED"))
    store.open()
    assert store.log.log_end_offset == 0
    store.crash()


def test_truncation_before_the_start_is_refused(store: Store) -> None:
    store.log.delete_records(5)
    with pytest.raises(errors.OffsetOutOfRange):
        store.log.truncate_to(4, now=store.now)
