"""Reads: whole batches within limits from any offset, and records by timestamp."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.errors import OffsetOutOfRange
from ottla.records import Compression, read_header, scan
from ottla.storage.reading import OffsetAndTimestamp
from unit.storage.log_material import (
    T0,
    Store,
    find_timestamp,
    offsets_of,
    read_records,
    read_slice,
    record_batch,
    topic_config,
    value_at,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path, config=topic_config(segment_bytes=10_000, index_interval_bytes=500))
    yield store
    store.crash()


def test_everything_is_read_in_order_whatever_the_limit(store: Store) -> None:
    store.fill(300)
    for max_bytes in (1, 400, 3000, 10**6):
        records = read_records(store.log, max_bytes=max_bytes)
        assert [record.value for record in records] == [value_at(offset) for offset in range(300)]


def test_a_slice_has_only_whole_batches_within_the_limit(store: Store) -> None:
    store.fill(50)
    size = read_slice(store.log, 0, 1).length
    for limit in (size, size + 1, 3 * size - 1, 3 * size, 20 * size + 5):
        data = read_slice(store.log, 0, limit).read()
        found = scan(data, 0, len(data))
        assert len(data) <= limit
        assert not found.incomplete
        assert len(found.batches) >= 1


def test_the_first_batch_comes_whole_even_if_it_is_too_large(store: Store) -> None:
    store.append(values=[b"x" * 5000])
    store.fill(1)
    assert read_header(read_slice(store.log, 0, 100).read()).size == read_slice(store.log, 0, 100).length
    assert read_slice(store.log, 0, 100, one=False).length == 0


def test_nothing_at_or_above_the_end_offset_is_given(store: Store) -> None:
    store.fill(100)
    for end in (0, 1, 40, 57, 58, 99, 100):
        assert offsets_of(read_records(store.log, 0, end=end)) == list(range(end))
        assert read_slice(store.log, end, end=end).length == 0
    assert read_slice(store.log, 60, end=50).length == 0


def test_an_end_offset_inside_a_batch_leaves_the_batch_out(store: Store) -> None:
    store.append(values=[b"a"])
    store.append(values=[b"b", b"c", b"d"])
    assert offsets_of(read_records(store.log, 0, end=1)) == [0]
    data = read_slice(store.log, 0, end=3).read()
    assert [header.base_offset for _, header in scan(data, 0, len(data)).batches] == [0]


def test_offsets_outside_of_the_log_are_out_of_range(store: Store) -> None:
    store.fill(10)
    store.log.delete_records(5)
    for offset in (-1, 4, 11):
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} "):
            read_slice(store.log, offset)
    assert read_slice(store.log, 10).length == 0
    assert offsets_of(read_records(store.log)) == [5, 6, 7, 8, 9]


def test_an_empty_log_can_be_read_at_its_end(store: Store) -> None:
    assert read_slice(store.log, 0).length == 0


def test_reading_on_needs_no_look_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.fill(2000)
    offset = scan_end(store, 0)
    monkeypatch.setattr("ottla.storage.segment.Segment.find", None)
    while offset < 2000:
        offset = scan_end(store, offset)
    store.fill(1)
    assert scan_end(store, 2000) == 2001


def scan_end(store: Store, offset: int) -> int:
    data = read_slice(store.log, offset, 3000).read()
    batches = scan(data, 0, len(data)).batches
    return batches[-1][1].next_offset


def test_a_reader_at_the_end_goes_on_in_the_next_segment(store: Store) -> None:
    store.fill(5)
    assert offsets_of(read_records(store.log)) == [0, 1, 2, 3, 4]
    store.log.roll(now=store.now)
    assert read_slice(store.log, 5).length == 0
    store.fill(2)
    assert offsets_of(read_records(store.log, 5)) == [5, 6]


def test_a_slice_stays_readable_when_its_file_is_closed_and_removed(store: Store) -> None:
    store.fill(200)
    held = read_slice(store.log, 0)
    expected = held.read()
    store.log.remove_segments(1, now=store.now)
    store.clock.advance(60_000)
    store.remove_due_files()
    assert store.files(".deleted") == []
    assert held.read() == expected
    fd = held.file.fileno()
    before = os.fstat(fd)
    del held
    gc.collect()
    with contextlib.suppress(OSError):
        # Another thread of the test run may have opened something under the same number since.
        assert not os.path.samestat(os.fstat(fd), before)


def test_few_files_are_open_with_many_segments(tmp_path: Path) -> None:
    store = Store(tmp_path, config=topic_config(segment_bytes=300))
    store.fill(200)
    before = len(os.listdir("/proc/self/fd"))
    assert offsets_of(read_records(store.log)) == list(range(200))
    assert len(os.listdir("/proc/self/fd")) <= before + 16
    assert sum(segment.file is not None for segment in store.log.segments) <= 16
    store.crash()


def test_records_are_found_by_timestamp(store: Store) -> None:
    for number in range(300):
        store.append(values=[b"a", b"b"], timestamps=[T0 + number * 10, T0 + number * 10 + 5], leader_epoch=1)
    log = store.log
    assert log.offset_for_timestamp(0, end_offset=600) == OffsetAndTimestamp(0, T0, 1)
    assert log.offset_for_timestamp(T0 + 1234, end_offset=600) == OffsetAndTimestamp(247, T0 + 1235, 1)
    assert log.offset_for_timestamp(T0 + 1235, end_offset=600) == OffsetAndTimestamp(247, T0 + 1235, 1)
    assert log.offset_for_timestamp(T0 + 2995, end_offset=600) == OffsetAndTimestamp(599, T0 + 2995, 1)
    assert log.offset_for_timestamp(T0 + 2996, end_offset=600) is None
    assert log.offset_for_timestamp(T0 + 2995, end_offset=599) is None
    assert log.max_timestamp_offset() == OffsetAndTimestamp(599, T0 + 2995, 1)


def test_the_newest_timestamp_may_be_anywhere(store: Store) -> None:
    store.fill(100)
    store.append(values=[b"a", b"new", b"b"], timestamps=[T0, T0 + 77, T0 + 77], compression=Compression.GZIP)
    store.fill(100)
    assert store.log.max_timestamp_offset() == OffsetAndTimestamp(101, T0 + 77, 0)
    assert store.log.offset_for_timestamp(T0 + 1, end_offset=203) == OffsetAndTimestamp(101, T0 + 77, 0)


def test_the_newest_timestamp_is_looked_for_behind_the_log_start(store: Store) -> None:
    for number in range(10):
        store.append(values=[b"a", b"b"], timestamps=[T0 + 100 - number, T0 + 99 - number])
    assert store.log.max_timestamp_offset() == OffsetAndTimestamp(0, T0 + 100, 0)
    store.log.delete_records(9)
    assert store.log.max_timestamp_offset() == OffsetAndTimestamp(9, T0 + 95, 0)
    store.log.delete_records(20)
    assert store.log.max_timestamp_offset() is None


def test_an_empty_log_has_no_timestamps(store: Store) -> None:
    assert store.log.max_timestamp_offset() is None
    assert store.log.offset_for_timestamp(0, end_offset=0) is None


def test_records_before_the_log_start_are_not_found_by_timestamp(store: Store) -> None:
    for number in range(10):
        store.append(timestamp=T0 + number)
    store.log.delete_records(5)
    assert store.log.offset_for_timestamp(T0, end_offset=10) == OffsetAndTimestamp(5, T0 + 5, 0)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(20, 900), st.integers(-50, 50)), min_size=1, max_size=60),
    interval=st.sampled_from([0, 200, 4096]),
    segment_bytes=st.sampled_from([5000, 20_000]),
)
def test_look_ups_agree_with_a_walk_through_the_log(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int, int]], interval: int, segment_bytes: int
) -> None:
    config = topic_config(index_interval_bytes=interval, segment_bytes=segment_bytes)
    store = Store(tmp_path_factory.mktemp("lookups"), config=config)
    expected: list[tuple[int, int]] = []
    time = T0
    for count, size, step in sizes:
        times = [time + step * n for n in range(count)]
        time += step
        for timestamp in times:
            expected.append((len(expected), timestamp))
        store.append(record_batch([b"v" * size] * count, timestamps=times))
    end = len(expected)
    for clean in (None, False, True):
        log = store.log if clean is None else store.reopen(clean=clean)
        for offset in range(end):
            header = read_header(read_slice(log, offset, 1).read())
            assert header.base_offset <= offset <= header.last_offset
        for target in {t for _, t in expected} | {T0 - 1, time + 1}:
            wanted = next(((o, t) for o, t in expected if t >= target), None)
            found = find_timestamp(log, target, end)
            assert (found and found[:2]) == wanted
        newest = max(t for _, t in expected)
        assert log.max_timestamp_offset()[:2] == next((o, t) for o, t in expected if t == newest)
    store.crash()
