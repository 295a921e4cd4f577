"""Cut the end of a log, or all of it, and survive a kill at every step of that."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import errors
from ottla.storage.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from ottla.storage.compaction.cleaner import install
from ottla.storage.compaction.job import CleanedSegment
from unit.storage.log_material import (
    PARTITION,
    T0,
    Store,
    offsets_of,
    read_records,
    record_batch,
    segment_bases,
    topic_config,
)

CALLS = ("pwrite", "replace", "rename", "ftruncate", "unlink", "open")


class Killed(BaseException):
    """The process is dead."""


class Doom:
    """Kills at the n-th call that changes a file, before or after it."""

    def __init__(self, patch: pytest.MonkeyPatch, count: int, *, after: bool) -> None:
        self.calls = itertools.count()
        self.hit = False
        for name in CALLS:
            patch.setattr(os, name, self._doomed(getattr(os, name), count, after))

    def _doomed(self, call: Callable[..., Any], count: int, after: bool) -> Callable[..., Any]:
        def doomed(*args: Any, **kwargs: Any) -> Any:
            if self.hit or next(self.calls) != count:
                return call(*args, **kwargs)
            self.hit = True
            if after:
                call(*args, **kwargs)
            raise Killed

        return doomed


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Ten records of five epochs in segments of three, flushed up to 7 and committed up to 5."""
    made = filled(tmp_path)
    yield made
    made.crash()


def filled(path: Path) -> Store:
    store = Store(path, config=topic_config(segment_bytes=400))
    for number in range(10):
        if number == 7:
            store.log.flush()
            store.manager.write_recovery_points()
        store.append(values=[b"%03d" % number * 10], producer_id=3, sequence=number, leader_epoch=number // 2)
    store.manager.high_watermark = lambda log: 5
    store.manager.write_high_watermarks()
    store.manager.high_watermark = store.manager.checkpointed_high_watermark
    return store


def check_whole(store: Store) -> list[int]:
    """Check that the log has no gaps, and that epochs and producers belong to its records; return its offsets."""
    log = store.log
    records = read_records(log)
    offsets = offsets_of(records)
    assert offsets == list(range(log.log_start_offset, log.log_end_offset))
    assert all(record.value == b"%03d" % record.offset * 10 for record in records)
    assert dict(log.epochs.entries) == {
        epoch: max(2 * epoch, log.log_start_offset)
        for epoch in range(5)
        if 2 * epoch < log.log_end_offset and 2 * epoch + 2 > log.log_start_offset
    }
    sequences = [entry.last_sequence for entry in log.producers]
    assert sequences in ([], [log.log_end_offset - 1])
    assert log.recovery_point <= log.log_end_offset
    return offsets


def kill_everywhere(
    tmp_path: Path, patch: pytest.MonkeyPatch, operation: Callable[[Store], None]
) -> Iterator[tuple[Store, bool]]:
    """Run an operation again and again, killed one step later each time; yield the store as the next start finds it."""
    for after in (False, True):
        for count in itertools.count():
            store = filled(tmp_path / f"{after}{count}")
            with patch.context() as doomed:
                doom = Doom(doomed, count, after=after)
                try:
                    operation(store)
                except Killed:
                    pass
            store.reopen(clean=False)
            yield store, doom.hit
            store.crash()
            if not doom.hit:
                break


@pytest.mark.parametrize("offset", [0, 2, 3, 5, 8])
def test_a_kill_during_a_truncation_leaves_a_log_without_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    for store, killed in kill_everywhere(tmp_path, monkeypatch, lambda store: store.log.truncate_to(offset, now=T0)):
        offsets = check_whole(store)
        assert len(offsets) >= offset if killed else len(offsets) == offset
        store.log.truncate_to(offset, now=T0)
        assert check_whole(store) == list(range(offset))


@pytest.mark.parametrize("offset", [0, 4, 100])
def test_a_kill_during_a_full_truncation_leaves_an_end_of_the_log_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    def restart(store: Store) -> None:
        store.log.truncate_fully_and_start_at(offset, now=T0)

    for store, killed in kill_everywhere(tmp_path, monkeypatch, restart):
        if killed and store.log.log_end_offset != store.log.log_start_offset:
            assert check_whole(store)[-1] == 9
        elif not killed:
            assert (store.log.log_start_offset, store.log.log_end_offset) == (offset, offset)


@pytest.mark.parametrize("offset", [0, 4, 100])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_started_again_keeps_what_is_written_then(store: Store, offset: int, clean: bool) -> None:
    store.log.delete_records(6)
    store.manager.write_start_offsets()
    store.log.truncate_fully_and_start_at(offset, now=T0)
    assert store.log.latest_epoch == -1
    assert not list(store.log.producers)
    assert store.manager.checkpointed_high_watermark(store.log) == offset
    store.append(values=[b"new"], leader_epoch=9)
    store.reopen(clean=clean)
    assert offsets_of(read_records(store.log)) == [offset]
    assert (store.log.log_start_offset, store.log.log_end_offset) == (offset, offset + 1)
    assert store.log.epochs.entries == ((9, offset),)
    assert not list(store.log.producers)


def test_the_files_of_what_was_cut_are_removed_later(store: Store) -> None:
    store.log.truncate_fully_and_start_at(5, now=T0)
    assert segment_bases(store.log) == [5]
    assert store.files(".deleted")
    store.clock.advance(store.config.file_delete_delay_ms)
    store.remove_due_files()
    assert store.files(".deleted") == []


def test_a_batch_that_is_cut_in_two_goes_as_a_whole(tmp_path: Path) -> None:
    """The leader sends it as a whole again."""
    store = Store(tmp_path)
    store.append(values=[b"a", b"b"])
    store.append(values=[b"c", b"d", b"e"])
    store.log.truncate_to(3, now=T0)
    assert store.log.log_end_offset == 2
    store.reopen(clean=False)
    assert store.log.log_end_offset == 2
    store.crash()


def test_damage_where_a_log_is_cut_goes_with_the_rest(tmp_path: Path) -> None:
    """So the follower fetches it again."""
    store = Store(tmp_path)
    for number in range(6):
        store.append(values=[b"value %d" % number])
    path = Path(store.log.segments.active.path)
    store.close()
    path.write_bytes(path.read_bytes().replace(b"value 3", b"VALUE 3").replace(b"value 4", b"VALUE 4"))
    store.open()
    store.log.truncate_to(4, now=T0)
    assert store.log.log_end_offset == 3
    assert offsets_of(read_records(store.log)) == [0, 1, 2]
    store.crash()


def test_a_leaders_log_that_starts_inside_of_a_batch_can_be_followed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.log.truncate_fully_and_start_at(7, now=T0)
    batch = record_batch(values=[b"a", b"b", b"c"])
    batch[7] = 5
    store.log.append_as_follower(batch, now=T0)
    assert offsets_of(read_records(store.log)) == [7]
    assert (store.log.log_start_offset, store.log.log_end_offset) == (7, 8)
    store.crash()


# ── what runs at the same time ──────────────────────────────────────────────────────────────────────────────


def test_a_flush_that_began_before_a_truncation_does_not_count(store: Store) -> None:
    job = store.log.begin_flush()
    store.log.truncate_to(4, now=T0)
    for _ in range(4):
        store.append()
    job.run()
    store.log.complete_flush(job)
    assert store.log.recovery_point == 4
    store.log.flush()
    assert store.log.recovery_point == 8


def test_a_compaction_that_began_before_a_truncation_is_not_installed(store: Store) -> None:
    sources = [segment.base_offset for segment in store.log.segments.inactive[:1]]
    cleaned = CleanedSegment(
        base_offset=0,
        sources=sources,
        size=1,
        max_timestamp=T0,
        max_timestamp_offset=0,
        bytes_read=1,
        records_read=1,
        records_kept=1,
    )
    (store.directory / "00000000000000000000.log.cleaned").write_bytes(b"x")
    assert not install(store.log, cleaned, is_current=False, now=T0)
    assert store.files(".cleaned") == []
    assert check_whole(store) == list(range(10))


def test_a_crash_without_the_file_of_epochs_loses_no_epoch(store: Store) -> None:
    (store.directory / "leader-epoch-checkpoint").unlink()
    store.reopen(clean=False)
    assert check_whole(store) == list(range(10))


# ── the checkpoints ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_truncation_lowers_what_was_checkpointed(store: Store, tmp_path: Path) -> None:
    store.manager.cleaner_offsets[PARTITION] = 6
    store.log.truncate_to(4, now=T0)
    assert read_offsets(tmp_path / RECOVERY_POINTS)[PARTITION] == 4
    assert read_offsets(tmp_path / HIGH_WATERMARKS)[PARTITION] == 4
    assert store.manager.cleaner_offsets[PARTITION] == 4


def test_a_replica_has_its_high_watermark_after_a_restart(store: Store) -> None:
    assert store.manager.checkpointed_high_watermark(store.log) == 5
    store.reopen(clean=False)
    assert store.manager.checkpointed_high_watermark(store.log) == 5
    store.log.delete_records(7)
    assert store.manager.checkpointed_high_watermark(store.log) == 7
    store.log.truncate_to(7, now=T0)
    assert store.manager.checkpointed_high_watermark(store.log) == 7


def test_kafka_8333_a_checkpoint_before_the_replica_is_set_up_keeps_the_high_watermark(store: Store) -> None:
    store.reopen(clean=False)
    store.manager.high_watermark = store.manager.checkpointed_high_watermark
    store.manager.write_high_watermarks()
    store.reopen(clean=False)
    assert store.manager.checkpointed_high_watermark(store.log) == 5


def test_a_new_log_of_the_same_name_does_not_inherit_the_high_watermark(store: Store) -> None:
    store.manager.delete(PARTITION)
    log = store.manager.create(PARTITION, store.log.topic_id, store.config)
    log.append(record_batch(), leader_epoch=0, now=T0)
    assert store.manager.checkpointed_high_watermark(log) == 0


def test_kafka_5634_retention_keeps_what_is_not_committed(tmp_path: Path) -> None:
    store = Store(tmp_path, config=topic_config(segment_bytes=400, retention_ms=1000), log_initial_task_delay_ms=0)
    for number in range(10):
        store.append(values=[b"%03d" % number * 10])
    store.manager.high_watermark = lambda log: 4
    store.clock.advance(10_000)

    async def run() -> None:
        store.manager.start_background(asyncio.get_running_loop())
        async with asyncio.timeout(30):
            while store.log.log_start_offset == 0:
                await asyncio.sleep(0.01)
        await store.manager.stop_background()

    asyncio.run(run())
    assert 0 < store.log.log_start_offset <= 4
    assert store.log.log_end_offset == 10
    store.crash()


def test_a_disk_that_fails_during_a_truncation_is_a_storage_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", broken)
        with pytest.raises(errors.KafkaStorageError, match=r"cannot truncate .*Input/output error"):
            store.log.truncate_to(2, now=T0)
