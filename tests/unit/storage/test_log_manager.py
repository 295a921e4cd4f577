"""The data directory: lock, checkpoints, logs, and periodic work."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.config import BrokerConfig, TopicConfig
from ottla.errors import KafkaStorageError, OttlaError
from ottla.storage.checkpoints import DamagedCheckpoint, read_offsets, read_partition_metadata, write_offsets
from ottla.storage.data_dir import DataDirInUse, DataDirMismatch
from ottla.storage.manager import LogManager
from ottla.testing import ManualClock
from ottla.types import TopicPartition
from unit.storage.log_material import (
    PARTITION,
    T0,
    TOPIC_ID,
    Store,
    offsets_of,
    read_records,
    record_batch,
    segment_bases,
    topic_config,
)


def new_manager(path: Path, **broker: object) -> LogManager:
    config = BrokerConfig.parse({name.replace("_", "."): value for name, value in broker.items()})
    return LogManager([path], config, clock=ManualClock(T0))


def test_a_second_broker_is_refused_with_the_process_that_has_the_directory(tmp_path: Path) -> None:
    first = new_manager(tmp_path)
    first.lock()
    with pytest.raises(DataDirInUse, match=f"process {os.getpid()}"):
        new_manager(tmp_path).lock()
    first.open()
    first.close()
    second = new_manager(tmp_path)
    second.lock()
    second.close(clean=False)


def test_the_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    first = new_manager(tmp_path, node_id=1)
    first.lock()
    first.open()
    first.close()
    with pytest.raises(DataDirMismatch, match=r"node.id 1"):
        new_manager(tmp_path, node_id=2).lock()


def test_the_directory_of_a_cluster_is_refused(tmp_path: Path) -> None:
    new_manager(tmp_path / "broker-1").lock()
    with pytest.raises(DataDirMismatch, match="has the data of a cluster: start it with `ottla cluster start"):
        new_manager(tmp_path).lock()
    assert [path.name for path in tmp_path.iterdir()] == ["broker-1"]


def test_a_data_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OttlaError, match="data directory: Not a directory"):
        new_manager(tmp_path / "file" / "data").lock()
    with pytest.raises(OttlaError, match="data directory: it is a file"):
        new_manager(tmp_path / "file").lock()


def test_meta_properties_are_as_kafka_writes_them(tmp_path: Path) -> None:
    manager = new_manager(tmp_path, node_id=4)
    manager.lock()
    manager.close(clean=False)
    fields = dict(line.split("=") for line in (tmp_path / "meta.properties").read_text().splitlines() if "=" in line)
    assert (fields["version"], fields["node.id"]) == ("1", "4")
    assert len(fields["directory.id"]) == 22


def test_the_files_of_a_partition_have_kafkas_names(tmp_path: Path) -> None:
    store = Store(tmp_path, config=topic_config(segment_bytes=300))
    store.fill(3)
    store.close()
    assert store.files() == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000001.index",
        "00000000000000000001.log",
        "00000000000000000001.snapshot",
        "00000000000000000001.timeindex",
        "00000000000000000002.index",
        "00000000000000000002.log",
        "00000000000000000002.snapshot",
        "00000000000000000002.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert read_partition_metadata(str(store.directory)) == TOPIC_ID
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_checkpoints_have_kafkas_format(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.fill(5)
    store.log.delete_records(2)
    store.close()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 5\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 5\n"
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n0\n"


@pytest.mark.parametrize("text", ["", "1\n0\n", "0\n2\na 0 1\n", "0\nx\n", "0\n1\na 0\n", "0\n1\na 0 x\n", "\x00\x00"])
def test_a_damaged_checkpoint_is_noticed(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text)
    with pytest.raises(DamagedCheckpoint):
        read_offsets(path)


def test_checkpoints_are_read_as_they_were_written(tmp_path: Path) -> None:
    offsets = {TopicPartition("a.b_c-d", 7): 2**62, TopicPartition("x", 0): 0}
    write_offsets(tmp_path / "c", offsets, sync=True)
    assert read_offsets(tmp_path / "c") == offsets
    assert read_offsets(tmp_path / "none") == {}


def test_a_clean_restart_reads_no_log(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.fill(5000)
    store.reopen(clean=True)
    assert store.report.clean
    assert store.report.logs == []
    assert store.log.log_end_offset == 5000
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_after_a_crash_only_what_lies_above_the_recovery_point_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path, config=topic_config(segment_bytes=3000))
    store.fill(100)
    store.log.flush()
    store.manager.write_recovery_points()
    store.fill(10)
    flushed = store.log.segments.number_for(100)
    expected = sum(segment.size for number, segment in enumerate(store.log.segments) if number >= flushed)
    store.reopen(clean=False)
    assert not store.report.clean
    assert store.report.logs[0].scanned_bytes == expected
    assert offsets_of(read_records(store.log)) == list(range(110))


def test_a_crash_without_writes_since_the_clean_start_reads_no_log(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.fill(100)
    store.reopen(clean=True)
    store.reopen(clean=False)
    assert store.report.logs == []
    assert store.log.log_end_offset == 100


def test_a_missing_checkpoint_only_means_more_to_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.fill(100)
    store.close()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    (tmp_path / "log-start-offset-checkpoint").write_text("rubbish")
    store.open()
    assert offsets_of(read_records(store.log)) == list(range(100))
    store.crash()


def test_create_gives_the_log_that_is_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.manager.create(PARTITION, TOPIC_ID, TopicConfig()) is store.log
    assert store.manager.get(PARTITION) is store.log
    assert store.manager.get(TopicPartition("other", 0)) is None
    store.crash()


def test_new_partitions_go_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    dirs = [tmp_path / "a", tmp_path / "b"]
    manager = LogManager(dirs, BrokerConfig(), clock=ManualClock(T0))
    manager.lock()
    manager.open()
    for number in range(6):
        manager.create(TopicPartition("t", number), uuid.uuid4(), TopicConfig())
    assert sorted(log.directory.parent.name for log in manager.logs.values()) == ["a"] * 3 + ["b"] * 3
    manager.close()
    again = LogManager(dirs, BrokerConfig(), clock=ManualClock(T0))
    again.lock()
    assert again.open().clean
    assert len(again.logs) == 6
    again.close()


def test_a_partition_in_two_directories_is_an_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        manager = new_manager(tmp_path / name)
        manager.lock()
        manager.open()
        manager.create(PARTITION, TOPIC_ID, TopicConfig())
        manager.close()
    both = LogManager([tmp_path / "a", tmp_path / "b"], BrokerConfig(), clock=ManualClock(T0))
    both.lock()
    with pytest.raises(KafkaStorageError, match="two data directories"):
        both.open()
    both.close(clean=False)


def test_a_deleted_partition_is_gone_at_once_and_its_files_later(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.fill(3)
    store.manager.delete(PARTITION)
    assert store.manager.get(PARTITION) is None
    with pytest.raises(KafkaStorageError, match="closed"):
        store.append()
    (waiting,) = tmp_path.glob("orders-0.*-delete")
    store.remove_due_files()
    assert waiting.exists()
    store.clock.advance(60_000)
    store.remove_due_files()
    assert not waiting.exists()
    store.crash()


def test_a_deleted_partition_can_be_created_again_empty(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.fill(3)
    store.manager.delete(PARTITION)
    log = store.manager.create(PARTITION, uuid.uuid4(), TopicConfig())
    assert log.log_end_offset == 0
    store.reopen(clean=True)
    assert store.log.log_end_offset == 0
    assert len(store.manager.due_deletions(now=store.now)) == 1, "what was deleted before is removed after the restart"
    store.crash()


def test_the_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    manager.lock()
    manager.open()
    name = TopicPartition("x" * 249, 0)
    manager.create(name, uuid.uuid4(), TopicConfig())
    manager.delete(name)
    manager.close()


def test_a_log_that_is_set_aside_stays_on_disk(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.fill(3)
    store.manager.set_aside(PARTITION)
    assert store.manager.get(PARTITION) is None
    (stray,) = tmp_path.glob("orders-0.*-stray")
    store.reopen(clean=True)
    assert stray.exists()
    assert store.log.log_end_offset == 0
    store.crash()


def test_a_thousand_partitions_open_quickly_and_with_few_files(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    manager.lock()
    manager.open()
    for number in range(1000):
        log = manager.create(TopicPartition("many", number), TOPIC_ID, TopicConfig())
        if number % 10 == 0:
            log.append(record_batch([b"x" * 1000] * 5, producer_id=1, sequence=0), leader_epoch=0, now=T0)
    manager.close()
    again = LogManager([tmp_path], BrokerConfig(), clock=ManualClock(T0), max_open_files=64)
    again.lock()
    before, open_before = time.process_time(), len(os.listdir("/proc/self/fd"))
    assert again.open().clean
    assert time.process_time() - before < 3
    assert len(os.listdir("/proc/self/fd")) - open_before <= 64
    assert len(again.logs) == 1000
    assert again.logs[TopicPartition("many", 10)].log_end_offset == 5
    again.close(clean=False)


@asynccontextmanager
async def in_background(store: Store) -> AsyncIterator[None]:
    store.manager.start_background(asyncio.get_running_loop())
    try:
        yield
    finally:
        await store.manager.stop_background()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def test_complete_segments_are_flushed_in_the_background(tmp_path: Path) -> None:
    store = Store(tmp_path, config=topic_config(segment_bytes=1000))
    async with in_background(store):
        store.fill(20)
        await until(lambda: store.log.recovery_point == store.log.segments.active.base_offset)
    store.crash()


async def test_logs_are_flushed_when_flush_ms_is_over(tmp_path: Path) -> None:
    store = Store(tmp_path, config=topic_config(flush_ms=50))
    async with in_background(store):
        store.fill(3)
        await asyncio.sleep(0.1)
        assert store.log.recovery_point == 0
        store.clock.advance(50)
        await until(lambda: store.log.recovery_point == 3)
        assert store.log.dirty_since == -1
    store.crash()


async def test_high_watermarks_are_checkpointed_at_their_own_interval(tmp_path: Path) -> None:
    store = Store(tmp_path, log_initial_task_delay_ms=0, replica_high_watermark_checkpoint_interval_ms=100)
    path = tmp_path / "replication-offset-checkpoint"
    store.fill(3)
    async with in_background(store):
        await until(lambda: path.exists() and path.read_text() == "0\n1\norders 0 3\n")
        store.fill(2)
        store.clock.advance(100)
        store.manager.rolled(store.log)
        await until(lambda: path.read_text() == "0\n1\norders 0 5\n")
        written = path.stat().st_mtime_ns
        store.manager.write_high_watermarks()
        assert path.stat().st_mtime_ns == written  # Nothing has changed, so nothing is written.
    store.crash()


async def test_retention_checkpoints_and_expiry_come_with_time(tmp_path: Path) -> None:
    store = Store(
        tmp_path,
        config=topic_config(segment_bytes=1000, retention_ms=1000, file_delete_delay_ms=0),
        log_initial_task_delay_ms=0,
        log_retention_check_interval_ms=10,
        log_flush_offset_checkpoint_interval_ms=10,
        producer_id_expiration_check_interval_ms=10,
        producer_id_expiration_ms=500,
    )
    store.append(producer_id=3, sequence=0)
    store.fill(20)
    async with in_background(store):
        store.clock.advance(10)
        store.manager.rolled(store.log)
        await until((tmp_path / "replication-offset-checkpoint").exists)
        assert segment_bases(store.log)[0] == 0
        store.clock.advance(2000)
        store.manager.rolled(store.log)
        await until(lambda: segment_bases(store.log) == [21])
        await until(lambda: len(store.log.active_producers()) == 0)
        store.clock.advance(2000)
        store.manager.rolled(store.log)
        await until(lambda: store.files(".deleted") == [])
    store.crash()


async def test_the_log_start_offset_is_written_down_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.fill(5)
    async with in_background(store):
        store.log.delete_records(3)
        await until(lambda: read_offsets(tmp_path / "log-start-offset-checkpoint") == {PARTITION: 3})
    store.crash()


async def test_all_who_wait_share_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    flushes = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (flushes.append(fd), real(fd)))

    async def producer() -> None:
        info = store.append()
        await store.manager.flusher.flushed(store.log, info.last_offset + 1)
        assert store.log.recovery_point > info.last_offset

    await asyncio.gather(*(producer() for _ in range(50)))
    assert 1 <= len(flushes) <= 3
    store.crash()


async def test_a_flush_that_fails_is_told_to_all_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    store.fill(1)
    waits = [store.manager.flusher.flushed(store.log, 1) for _ in range(3)]
    results = await asyncio.gather(*waits, return_exceptions=True)
    assert all(isinstance(result, KafkaStorageError) for result in results)
    assert store.log.recovery_point == 0
    store.crash()
