"""Compaction: which records stay, and that a crash during compaction loses nothing."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.records import Compression, Record, encode_batch, read_header, scan
from ottla.runtime.loops import new_event_loop
from ottla.storage import retention
from ottla.storage.compaction import cleaner, cleaning
from ottla.storage.compaction import process as compaction
from ottla.storage.compaction.cleaner import Candidate, Cleaner, candidate, install, make_job
from ottla.storage.compaction.cleaning import clean, group_segments
from ottla.storage.compaction.job import CleanedSegment, CleaningJob, SourceSegment
from ottla.storage.log import Log
from unit.storage.log_material import (
    PARTITION,
    T0,
    Store,
    marker_batch,
    offsets_of,
    read_records,
    read_slice,
    segment_bases,
    topic_config,
)

DAY = 86_400_000


def compacted(**settings: Any) -> Any:
    return topic_config(
        **({"segment_bytes": 2000, "cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0} | settings)
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path, config=compacted())
    yield store
    store.crash()


def put(store: Store, key: str, value: bytes | None = b"v", **batch: Any) -> None:
    store.append(values=[value], keys=[key.encode()], timestamp=store.now, **batch)


def chosen(store: Store, high_watermark: int | None = None) -> Candidate | None:
    end = store.log.log_end_offset if high_watermark is None else high_watermark
    return candidate(store.log, store.manager.cleaner_offsets.get(PARTITION), end, now=store.now)


def compact(store: Store, *, max_keys: int = 10**6, high_watermark: int | None = None) -> list[CleanedSegment]:
    """Run compaction in this process."""
    found = chosen(store, high_watermark)
    assert found is not None
    job = CleaningJob.from_json(json.loads(json.dumps(make_job(found, max_keys=max_keys, now=store.now).to_json())))
    done = []
    for result in clean(job, lambda count: None):
        if isinstance(result, int):
            store.manager.cleaner_offsets[PARTITION] = result
        else:
            assert install(store.log, result, now=store.now)
            done.append(result)
    return done


def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read_records(log)]


def fill_up(store: Store, key: str = "fill") -> None:
    """Make all segments inactive."""
    before = store.log.segments.active
    while store.log.segments.active is before:
        put(store, key, b"." * 500)


def test_only_the_last_record_of_a_key_stays_at_its_offset(store: Store) -> None:
    for number in range(100):
        put(store, f"k{number % 7}", b"%d" % number)
    end = store.log.segments.active.base_offset
    expected = {number % 7: number for number in range(end)}
    compact(store)
    kept = [record for record in read_records(store.log) if record.offset < end]
    assert offsets_of(kept) == sorted(expected.values())
    assert all(record.value == b"%d" % record.offset for record in kept)
    assert offsets_of(read_records(store.log, end)) == list(range(end, 100))


def test_the_active_segment_is_left_alone(store: Store) -> None:
    put(store, "k", b"1")
    put(store, "k", b"2")
    assert chosen(store) is None


def test_a_batch_of_several_records_keeps_some_of_them(store: Store) -> None:
    for codec in Compression:
        keys = [b"a", b"b", b"c"]
        store.append(values=[b"1", b"2", b"3"], keys=keys, timestamps=[T0, T0 + 1, T0 + 2], compression=codec)
        put(store, "b", b"later")
    fill_up(store)
    compact(store)
    data = read_slice(store.log, 12).read()
    header = read_header(data)
    assert (header.base_offset, header.last_offset, header.record_count) == (16, 18, 2)
    assert header.compression is Compression.ZSTD
    (first, second, *_) = read_records(store.log)
    assert (first.offset, first.key, first.value, first.timestamp) == (16, b"a", b"1", T0)
    assert (second.offset, second.key, second.timestamp) == (18, b"c", T0 + 2)


def test_a_reader_inside_a_gap_gets_what_follows(store: Store) -> None:
    for number in range(60):
        put(store, "same", b"%d" % number)
    end = store.log.segments.active.base_offset
    compact(store)
    for offset in range(end - 1):
        assert read_records(store.log, offset)[0].offset == end - 1


def test_small_segments_become_one(store: Store) -> None:
    for number in range(200):
        put(store, f"k{number % 3}", b"v" * 50)
    before = len(store.log.segments)
    compact(store)
    fill_up(store)
    compact(store)
    assert before > 10
    assert len(store.log.segments) <= 4
    assert all(segment.size <= 2000 for segment in store.log.segments)
    assert len(store.files(".log")) == len(store.log.segments)


def test_segments_are_grouped_by_size_index_size_and_offsets() -> None:
    def job(segments: Sequence[tuple[int, int, int]]) -> CleaningJob:
        ends = [base for base, _, _ in segments[1:]] + [segments[-1][0] + 10]
        return CleaningJob(
            "", [SourceSegment(b, e, s, i, 0) for (b, s, i), e in zip(segments, ends, strict=True)],
            0, 10**10, T0, 0, 100, 80, 4096, 10,
        )  # fmt: skip

    def groups(segments: Sequence[tuple[int, int, int]]) -> list[list[int]]:
        return [[s.base_offset for s in group] for group in group_segments(job(segments), 10**10)]

    assert groups([(0, 50, 8), (10, 50, 8), (20, 1, 8), (30, 99, 8)]) == [[0, 10], [20, 30]]
    assert groups([(0, 1, 40), (10, 1, 40), (20, 1, 8)]) == [[0, 10], [20]]
    assert groups([(0, 1, 0), (2**31 - 5, 1, 0), (2**31 + 5, 1, 0)]) == [[0], [2**31 - 5, 2**31 + 5]]
    assert groups([(0, 1, 0), (2**31 - 5, 0, 0), (2**31 + 5, 1, 0)]) == [[0, 2**31 - 5], [2**31 + 5]]


def test_a_tombstone_stays_for_its_time_and_then_goes(store: Store) -> None:
    store.log.config = compacted(delete_retention_ms=DAY)
    put(store, "a", b"1")
    put(store, "a", None)
    fill_up(store)
    compact(store)
    assert contents(store.log)[0] == (1, b"a", None)
    assert read_header(read_slice(store.log, 0).read()).has_delete_horizon
    store.clock.advance(DAY - 1)
    fill_up(store)
    compact(store)
    assert contents(store.log)[0] == (1, b"a", None)
    store.clock.advance(1)
    fill_up(store)
    compact(store)
    assert contents(store.log)[0][1] == b"fill"


def test_what_is_in_headers_stays_in_the_topic_of_offsets(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.log.config = compacted(delete_retention_ms=DAY)
    monkeypatch.setattr(cleaning, "_WITH_HEADERS", f"{PARTITION.topic}-")
    records = [
        Record(0, store.now, b"a", None, (("content", b"1"),)),
        Record(1, store.now, b"a", None, (("content", b"2"),)),
        Record(2, store.now, b"b", None),
    ]
    store.append(memoryview(bytearray(encode_batch(records))))
    for _ in range(3):
        fill_up(store)
        compact(store)
        store.clock.advance(DAY)
    kept = [record for record in read_records(store.log) if record.key != b"fill"]
    assert [(record.offset, record.headers) for record in kept] == [(1, (("content", b"2"),))]


def test_a_tombstone_keeps_its_own_timestamp_beside_the_delete_horizon(store: Store) -> None:
    put(store, "a", None)
    fill_up(store)
    store.clock.advance(5000)
    compact(store)
    assert read_records(store.log)[0].timestamp == T0


def test_records_are_left_alone_for_min_compaction_lag(store: Store) -> None:
    store.log.config = compacted(min_compaction_lag_ms=1000)
    put(store, "a", b"1")
    put(store, "a", b"2")
    fill_up(store)
    assert chosen(store) is None
    store.clock.advance(1000)
    compact(store)
    assert contents(store.log)[0] == (1, b"a", b"2")


def test_max_compaction_lag_makes_a_log_due_before_it_is_dirty_enough(store: Store) -> None:
    store.log.config = compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    put(store, "a", b"1")
    fill_up(store)
    found = chosen(store)
    assert found is not None
    assert not found.is_due
    store.clock.advance(1001)
    found = chosen(store)
    assert found is not None
    assert found.is_due


def test_the_dirty_ratio_decides(store: Store) -> None:
    store.log.config = compacted(min_cleanable_dirty_ratio=0.6)
    for number in range(100):
        put(store, f"unique{number}", b"v" * 50)
    found = chosen(store)
    assert found is not None
    assert found.dirty_ratio == 1.0
    compact(store)
    fill_up(store)
    found = chosen(store)
    assert found is not None
    assert not found.is_due
    assert 0 < found.dirty_ratio < 0.6


def test_nothing_is_due_when_everything_was_compacted(store: Store) -> None:
    put(store, "a")
    fill_up(store)
    compact(store)
    assert chosen(store) is None


def test_offsets_above_the_last_stable_offset_are_left_alone(store: Store) -> None:
    put(store, "a", b"1")
    fill_up(store)
    base = store.log.segments.active.base_offset
    put(store, "a", b"2", producer_id=5, sequence=0, transactional=True)
    fill_up(store)
    put(store, "a", b"3")
    fill_up(store)
    found = chosen(store)
    assert found is not None
    assert found.upper_bound == base
    assert chosen(store, high_watermark=0) is None


def test_the_last_batch_of_a_producer_stays_without_records(store: Store) -> None:
    put(store, "a", b"1", producer_id=5, sequence=0)
    put(store, "a", b"2", producer_id=5, sequence=1)
    put(store, "a", b"3")
    fill_up(store)
    compact(store)
    data = read_slice(store.log, 0).read()
    (_, header), *_ = scan(data, 0, len(data)).batches
    assert (header.base_offset, header.record_count, header.base_sequence) == (1, 0, 1)
    for clean_restart in (True, False):
        store.reopen(clean=clean_restart)
        (producer,) = store.log.active_producers()
        assert producer.last_sequence == 1
    info = store.append(values=[b"2"], keys=[b"a"], producer_id=5, sequence=1)
    assert info.duplicate


def test_when_a_producer_has_expired_its_last_batch_goes(store: Store) -> None:
    put(store, "a", b"1", producer_id=5, sequence=0)
    put(store, "a", b"2")
    fill_up(store)
    store.log.producers.expire(now=T0 * 2, after=1)
    compact(store)
    data = read_slice(store.log, 0).read()
    assert read_header(data).base_offset == 1


def test_the_last_batch_of_a_run_stays_so_that_the_log_does_not_get_shorter(store: Store) -> None:
    for _ in range(3):
        fill_up(store)
    put(store, "fill", b"newest")
    fill_up(store)
    compact(store)
    end = store.log.segments.active.base_offset
    data = b"".join(read_slice(store.log, offset, 1).read() for offset in [end - 1])
    assert read_header(data).next_offset == end


def test_records_of_aborted_transactions_go(store: Store) -> None:
    put(store, "a", b"kept", producer_id=1, sequence=0)
    put(store, "a", b"aborted", producer_id=2, sequence=0, transactional=True)
    store.append_own(marker_batch(2, commit=False))
    put(store, "b", b"committed", producer_id=3, sequence=0, transactional=True)
    store.append_own(marker_batch(3, commit=True))
    fill_up(store)
    compact(store)
    assert [
        (key, value) for _, key, value in contents(store.log)[:4] if value in (b"kept", b"aborted", b"committed")
    ] == [(b"a", b"kept"), (b"b", b"committed")]
    assert store.log.aborted_transactions(0, 100) != [], "the marker is still there, and so is its entry"


def test_markers_go_after_their_time_when_nothing_is_left_of_their_transaction(store: Store) -> None:
    store.log.config = compacted(delete_retention_ms=DAY)
    put(store, "a", b"x", producer_id=2, sequence=0, transactional=True)
    store.append_own(marker_batch(2, commit=True))
    put(store, "a", b"y")
    store.log.producers.expire(now=T0 * 2, after=1)
    for days in (0, 1, 1, 1):
        store.clock.advance(days * DAY)
        fill_up(store)
        compact(store)
    assert contents(store.log)[0] == (2, b"a", b"y")
    data = read_slice(store.log, 0).read()
    assert not any(header.is_control for _, header in scan(data, 0, len(data)).batches)


def test_a_map_that_is_full_ends_the_run_early_and_the_next_goes_on(store: Store) -> None:
    for number in range(200):
        put(store, f"k{number % 20}", b"%d" % number)
    end = store.log.segments.active.base_offset
    rounds = 0
    while chosen(store) is not None:
        compact(store, max_keys=8)
        rounds += 1
        assert {key: value for _, key, value in contents(store.log)} == {
            b"k%d" % (number % 20): b"%d" % number for number in range(200)
        }
    assert rounds > 1
    assert store.manager.cleaner_offsets[PARTITION] == end


def test_compact_and_delete_together(store: Store) -> None:
    store.log.config = compacted(cleanup_policy="compact,delete", retention_ms=DAY)
    put(store, "old", b"1")
    fill_up(store)
    store.clock.advance(DAY + 1)
    put(store, "new", b"2")
    fill_up(store)
    compact(store)
    retention.apply(store.log, store.log.log_end_offset, now=store.now)
    assert b"old" not in [key for _, key, _ in contents(store.log)]
    assert b"new" in [key for _, key, _ in contents(store.log)]


def test_retention_waits_while_a_log_is_compacted(store: Store) -> None:
    store.log.config = compacted(cleanup_policy="compact,delete", retention_ms=1)
    fill_up(store)
    store.clock.advance(DAY)
    store.log.cleaning = True
    assert retention.apply(store.log, store.log.log_end_offset, now=store.now) == 0
    store.log.cleaning = False
    assert retention.apply(store.log, store.log.log_end_offset, now=store.now) > 0


def test_a_result_for_segments_that_are_gone_is_thrown_away(store: Store) -> None:
    put(store, "a", b"1")
    fill_up(store)
    found = chosen(store)
    assert found is not None
    job = make_job(found, max_keys=100, now=store.now)
    (cleaned, _) = list(clean(job, lambda count: None))
    assert isinstance(cleaned, CleanedSegment)
    before = contents(store.log)
    store.log.remove_segments(1, now=store.now)
    assert not install(store.log, cleaned, now=store.now)
    assert store.files(".cleaned") == []
    assert contents(store.log) == before[-len(contents(store.log)) :]


def test_positions_that_readers_had_do_not_survive_a_compaction(store: Store) -> None:
    for number in range(100):
        put(store, f"k{number % 5}", b"%d" % number)
    read_records(store.log, max_bytes=300)
    expected = None
    compact(store)
    for max_bytes in (1, 300, 10**6):
        now = contents(store.log)
        assert expected in (None, now)
        expected = now
        assert offsets_of(read_records(store.log, max_bytes=max_bytes)) == [offset for offset, _, _ in now]


CRASH_POINTS = ["cleaned", "swap-log-only", "swap", "old-deleted", "renamed-log-only", "renamed"]


@pytest.mark.parametrize("point", CRASH_POINTS)
@pytest.mark.parametrize("index_lost", [False, True])
def test_a_crash_at_any_step_of_the_swap_loses_nothing(store: Store, point: str, index_lost: bool) -> None:
    for number in range(100):
        put(store, f"k{number % 7}", b"%d" % number, producer_id=4, sequence=number)
    latest = {key: value for _, key, value in contents(store.log)}
    store.log.flush()
    store.manager.write_recovery_points()
    found = chosen(store)
    assert found is not None
    (cleaned, *_) = list(clean(make_job(found, max_keys=1000, now=store.now), lambda count: None))
    assert isinstance(cleaned, CleanedSegment)
    crash_during_install(store, cleaned, point)
    if index_lost:
        for path in store.directory.glob("*.index.*"):
            path.unlink()
    store.open()
    assert {key: value for _, key, value in contents(store.log)} == latest
    assert offsets_of(read_records(store.log)) == sorted(set(offsets_of(read_records(store.log))))
    assert store.log.log_end_offset == 100
    assert not [name for name in os.listdir(store.directory) if name.endswith((".swap", ".cleaned", ".deleted"))]
    compact(store)
    assert {key: value for _, key, value in contents(store.log)} == latest


def crash_during_install(store: Store, cleaned: CleanedSegment, point: str) -> None:
    """Run the first steps of `install`, and stop like kill -9."""
    paths = [
        str(store.directory / f"{cleaned.base_offset:020d}{suffix}") for suffix in (".log", ".index", ".timeindex")
    ]
    steps = CRASH_POINTS.index(point)
    if steps >= 1:
        cleaner._rename(paths[:1], ".cleaned", ".swap")
    if steps >= 2:
        cleaner._rename(paths[1:], ".cleaned", ".swap")
    if steps >= 3:
        for base in cleaned.sources:
            for suffix in (".log", ".index", ".timeindex"):
                path = str(store.directory / f"{base:020d}{suffix}")
                os.rename(path, path + ".deleted")
    if steps >= 4:
        cleaner._rename(paths[:1], ".swap", "")
    if steps >= 5:
        cleaner._rename(paths[1:], ".swap", "")
    store.crash()


def test_a_damaged_segment_is_not_compacted_and_not_touched(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(60):
        put(store, f"k{number % 7}", b"%d" % number)
    path = Path(store.log.segments[0].path)
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    before = segment_bases(store.log)
    assert asyncio.run(Cleaner(store.manager).run()) == 1
    assert "will not be compacted" in caplog.text
    assert path.name in caplog.text
    assert segment_bases(store.log) == before
    assert path.read_bytes() == data


def test_the_process_compacts_all_that_is_due_and_writes_the_checkpoint(store: Store) -> None:
    for number in range(100):
        put(store, f"k{number % 7}", b"%d" % number)
    end = store.log.segments.active.base_offset
    latest = {key: value for _, key, value in contents(store.log)}

    async def run() -> int:
        return await Cleaner(store.manager).run()

    assert asyncio.run(run()) == 1
    assert {key: value for _, key, value in contents(store.log)} == latest
    assert (store.path / "cleaner-offset-checkpoint").read_text() == f"0\n1\norders 0 {end}\n"
    assert not store.log.cleaning
    store.reopen(clean=True)
    assert store.manager.cleaner_offsets == {PARTITION: end}
    assert asyncio.run(run()) == 0


@pytest.mark.parametrize("new_loop", [new_event_loop, asyncio.new_event_loop])
def test_a_stop_at_any_moment_leaves_no_pipe_and_no_process_behind(store: Store, new_loop: Any) -> None:
    for number in range(100):
        put(store, f"k{number % 7}", bytes(100))
    # The loop complains about what is open when it is closed, and pytest makes that an error.
    for turns in range(12):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_cancelled_after(turns, Cleaner(store.manager).run(), times=1 + turns % 2))
    assert chosen(store) is not None


async def _cancelled_after(turns: int, work: Any, times: int = 1) -> None:
    task = asyncio.create_task(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task])
    assert task.cancelled()


def test_a_stop_ends_although_the_process_cannot_be_started(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        put(store, f"k{number % 7}", bytes(100))

    async def fail(*_: object, **__: object) -> None:
        await asyncio.sleep(0.01)
        raise OSError("too many open files")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fail)
    asyncio.run(_cancelled_after(2, Cleaner(store.manager).run()))


def test_the_process_answers_an_unreadable_directory_with_an_error() -> None:
    output = io.StringIO()
    job = CleaningJob("/nowhere", [SourceSegment(0, 1, 1, 0, 0)], 0, 1, T0, 0, 1, 1, 1, 1)
    compaction.run_job({"job": job.to_json(), "bytes_per_second": 1e9}, output)
    assert "No such file" in json.loads(output.getvalue())["error"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=6),
            st.sampled_from(["compact", "restart", "crash", "wait"]),
        ),
        min_size=1,
        max_size=40,
    ),
    codec=st.sampled_from(list(Compression)),
    max_keys=st.sampled_from([3, 1000]),
)
def test_compaction_agrees_with_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], codec: Compression, max_keys: int
) -> None:
    store = Store(tmp_path_factory.mktemp("compaction"), config=compacted(segment_bytes=600, delete_retention_ms=1000))
    written: list[Record] = []
    sequence = 0
    for step in steps:
        if step == "compact":
            if chosen(store) is not None:
                compact(store, max_keys=max_keys)
        elif step == "wait":
            store.clock.advance(600)
        elif isinstance(step, str):
            store.reopen(clean=step == "restart")
        else:
            base = store.log.log_end_offset
            values = [None if gone else b"%d" % (base + n) for n, (_, gone) in enumerate(step)]
            keys = [b"key-%d" % key for key, _ in step]
            store.append(
                values=values, keys=keys, timestamp=store.now, compression=codec, producer_id=1, sequence=sequence
            )
            sequence += len(step)
            written += [Record(base + n, store.now, k, v) for n, (k, v) in enumerate(zip(keys, values, strict=True))]
        check_against_model(store, written)
    store.crash()


def check_against_model(store: Store, written: list[Record]) -> None:
    found = read_records(store.log)
    by_offset = {record.offset: record for record in written}
    assert store.log.log_end_offset == len(written)
    assert all(by_offset[record.offset] == record for record in found), "nothing that stays is changed"
    offsets = offsets_of(found)
    assert offsets == sorted(set(offsets))
    last = {record.key: record for record in written}
    there = {record.key: record for record in found}
    for key, record in last.items():
        if record.value is not None or store.now < record.timestamp + 1000:
            assert there[key] == record, "the last record of every key stays, a tombstone for its time"
        else:
            assert key not in there or there[key] == record, "nothing older comes back"
    active = store.log.segments.active.base_offset
    assert {record.offset for record in written if record.offset >= active} <= set(offsets)
