"""Several data directories: one that fails takes only its partitions offline."""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.config import BrokerConfig, TopicConfig
from ottla.errors import KafkaStorageError
from ottla.storage.checkpoints import CLEAN_SHUTDOWN
from ottla.storage.data_dir import DataDirMismatch, DataDirUnusable
from ottla.storage.log import Log
from ottla.storage.manager import LogManager, OpenReport
from ottla.testing import ManualClock
from ottla.types import TopicPartition
from unit.storage.log_material import T0, offsets_of, read_records, record_batch


class Disks:
    """A manager with two data directories and four partitions; each directory may fail."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.dirs = [path / "a", path / "b"]
        self.offline: list[tuple[str, list[TopicPartition]]] = []
        self.broken: Path | None = None
        self.manager: LogManager
        self._patch = patch
        self.open()
        for number in range(4):
            self.manager.create(TopicPartition("t", number), uuid.uuid4(), TopicConfig())

    def open(self) -> OpenReport:
        self.manager = LogManager(self.dirs, BrokerConfig(), clock=ManualClock(T0))
        self.manager.on_directory_failed = self._failed
        self.manager.lock()
        return self.manager.open()

    def _failed(self, directory: Path, partitions: object) -> None:
        self.offline.append((directory.name, list(partitions)))  # type: ignore[call-overload]

    def log(self, directory: str) -> Log:
        return next(log for log in self.manager.logs.values() if log.directory.parent.name == directory)

    def fail(self, directory: str, code: int = errno.EIO) -> None:
        """Let every write and open in a directory fail."""
        failing = str(self.dirs[0].parent / directory)

        def refuse(name: str) -> None:
            call = getattr(os, name)

            def refused(target: object, *args: object, **kwargs: object) -> object:
                path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else str(target)
                if path.startswith(failing):
                    raise OSError(code, os.strerror(code))
                return call(target, *args, **kwargs)

            self._patch.setattr(os, name, refused)

        for name in ("pwrite", "fdatasync", "fsync", "open", "makedirs"):
            refuse(name)


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disks]:
    made = Disks(tmp_path, monkeypatch)
    yield made
    monkeypatch.undo()
    made.manager.close(clean=False)


def append(log: Log) -> None:
    log.append(record_batch(), leader_epoch=0, now=T0)


def test_a_directory_that_fails_takes_its_partitions_offline(disks: Disks) -> None:
    bad, good = disks.log("a"), disks.log("b")
    append(bad)
    disks.fail("a")
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        append(bad)
    assert [name for name, _ in disks.offline] == ["a"]
    assert len(disks.offline[0][1]) == 2
    assert set(disks.manager.failed_dirs) == {disks.dirs[0]}
    append(good)
    assert {log.directory.parent.name for log in disks.manager.logs.values()} == {"b"}


def test_kafka_10778_nothing_is_appended_after_a_failed_write(
    disks: Disks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk seems to work again, but what was written in between may be lost."""
    bad = disks.log("a")
    disks.fail("a", errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        append(bad)
    monkeypatch.undo()
    with pytest.raises(KafkaStorageError, match="No space left"):
        append(bad)
    with pytest.raises(KafkaStorageError, match="No space left"):
        bad.append_as_follower(record_batch(), now=T0)


def test_an_offline_partition_is_not_created_again_elsewhere(disks: Disks) -> None:
    bad = disks.log("a")
    disks.fail("a")
    with pytest.raises(KafkaStorageError):
        append(bad)
    with pytest.raises(KafkaStorageError, match=r"is offline: .*Input/output error"):
        disks.manager.create(bad.topic_partition, bad.topic_id, TopicConfig())
    assert disks.manager.create(TopicPartition("new", 0), uuid.uuid4(), TopicConfig()).directory.parent.name == "b"
    disks.manager.delete(bad.topic_partition)
    again = disks.manager.create(bad.topic_partition, uuid.uuid4(), TopicConfig())
    assert again.directory.parent.name == "b"


def test_a_failed_flush_takes_the_directory_offline(disks: Disks) -> None:
    async def run() -> None:
        bad = disks.log("a")
        append(bad)
        disks.fail("a")
        with pytest.raises(KafkaStorageError):
            await disks.manager.flusher.flushed(bad, 1)
        with pytest.raises(KafkaStorageError):
            await disks.manager.flusher.flushed(bad, 1)

    asyncio.run(run())
    assert [name for name, _ in disks.offline] == ["a"]


def test_a_failed_checkpoint_takes_the_directory_offline(disks: Disks) -> None:
    disks.fail("b")
    disks.manager.write_recovery_points()
    assert [name for name, _ in disks.offline] == ["b"]
    disks.manager.write_recovery_points()
    assert len(disks.offline) == 1


def test_without_a_working_directory_no_log_is_created(disks: Disks) -> None:
    disks.fail("")
    disks.manager.write_recovery_points()
    assert len(disks.offline) == 2
    with pytest.raises(KafkaStorageError, match="all data directories have failed"):
        disks.manager.create(TopicPartition("new", 0), uuid.uuid4(), TopicConfig())


def test_a_clean_shutdown_after_a_failure_is_clean_only_for_the_other_directory(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = disks.log("b"), disks.log("a")
    append(good)
    disks.fail("a")
    with pytest.raises(KafkaStorageError):
        append(bad)
    disks.manager.broker_epoch = 7
    disks.manager.close()
    monkeypatch.undo()
    assert [(path / CLEAN_SHUTDOWN).exists() for path in disks.dirs] == [False, True]
    report = disks.open()
    assert report.broker_epoch == -1
    assert offsets_of(read_records(disks.manager.logs[good.topic_partition])) == [0]


def test_without_a_listener_only_the_operation_fails(disks: Disks, monkeypatch: pytest.MonkeyPatch) -> None:
    disks.manager.on_directory_failed = None
    log = disks.log("a")
    with monkeypatch.context() as patch:
        disks._patch = patch
        disks.fail("a", errno.ENOSPC)
        with pytest.raises(KafkaStorageError):
            append(log)
    append(log)
    assert log.log_end_offset == 1
    assert disks.manager.failed_dirs == {}


# ── at the start ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_directory_that_cannot_be_locked_does_not_stop_the_others(
    disks: Disks, caplog: pytest.LogCaptureFixture
) -> None:
    good = disks.log("b").topic_partition
    disks.manager.broker_epoch = 42
    disks.manager.close()
    disks.fail("a")
    report = disks.open()
    assert (report.clean, report.broker_epoch) == (True, 42)
    assert set(disks.manager.failed_dirs) == {disks.dirs[0]}
    assert good in disks.manager.logs
    assert {log.directory.parent.name for log in disks.manager.logs.values()} == {"b"}
    assert f"cannot use {disks.dirs[0]} as a data directory: Input/output error; its partitions" in caplog.text


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_with_a_file_that_cannot_be_read_is_out_of_service(
    disks: Disks, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    bad = disks.log("a")
    append(bad)
    disks.manager.close(clean=clean)
    disks.fail(f"a/{bad.topic_partition}")
    disks.open()
    assert set(disks.manager.failed_dirs) == {disks.dirs[0]}
    assert {log.directory.parent.name for log in disks.manager.logs.values()} == {"b"}
    disks.manager.close()
    # After the repair everything is there again.
    monkeypatch.undo()
    report = disks.open()
    assert (report.clean, len(disks.manager.logs)) == (False, 4)
    assert offsets_of(read_records(disks.manager.logs[bad.topic_partition])) == [0]


def test_without_any_usable_directory_there_is_a_clear_error(disks: Disks) -> None:
    disks.manager.close()
    disks.fail("")
    with pytest.raises(DataDirUnusable, match=r"cannot use .*a as a data .* error; cannot use .*b as a data .* error"):
        disks.open()


def test_a_directory_of_another_broker_stops_the_start(disks: Disks) -> None:
    disks.manager.close()
    meta = disks.dirs[1] / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    with pytest.raises(DataDirMismatch):
        disks.open()


# ── the clean-shutdown file ─────────────────────────────────────────────────────────────────────────────────


def test_a_clean_shutdown_tells_the_broker_epoch(disks: Disks) -> None:
    disks.manager.broker_epoch = 42
    disks.manager.close()
    assert (disks.dirs[0] / CLEAN_SHUTDOWN).read_text() == '{"version":0,"brokerEpoch":42}'
    report = disks.open()
    assert (report.clean, report.broker_epoch) == (True, 42)


def test_after_a_crash_there_is_no_broker_epoch(disks: Disks) -> None:
    disks.manager.broker_epoch = 42
    disks.manager.close(clean=False)
    report = disks.open()
    assert (report.clean, report.broker_epoch) == (False, -1)


@pytest.mark.parametrize("text", ["", "{}", '{"brokerEpoch":41}', "[]", "\x00"])
def test_a_broker_epoch_counts_only_if_all_directories_agree(disks: Disks, text: str) -> None:
    disks.manager.broker_epoch = 42
    disks.manager.close()
    (disks.dirs[1] / CLEAN_SHUTDOWN).write_text(text)
    report = disks.open()
    assert (report.clean, report.broker_epoch) == (True, -1)
