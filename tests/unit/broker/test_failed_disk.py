"""A disk that fails takes only its partitions offline."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla import errors
from ottla.protocol.apis import ApiKey
from unit.broker.leading import ME, Leading, leading
from unit.broker.wire import batch

FailDisk = Callable[[str], None]


@pytest.fixture
def fail_disk(monkeypatch: pytest.MonkeyPatch) -> FailDisk:
    """Make all writes to files below a directory fail from now on."""
    broken: list[str] = []

    def failing(name: str) -> None:
        original = getattr(os, name)

        def call(file: Any, *args: Any, **kwargs: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else str(file)
            if any(path.startswith(each) for each in broken):
                raise OSError(errno.EIO, "Input/output error", path)
            return original(file, *args, **kwargs)

        monkeypatch.setattr(os, name, call)

    for name in ("write", "pwrite", "pwritev", "writev", "fsync", "makedirs"):
        failing(name)
    return broken.append


async def with_two_disks(broker: Leading) -> tuple[int, int]:
    """Create a topic with partitions on both disks; return one on the disk b, which will fail, and one on the other."""
    await broker.create_topic(replicas=((ME,),) * 4)
    parents = [partition.log.directory.parent.name for partition in broker.node.local("orders")]
    return parents.index("b"), parents.index("a")


async def produce(broker: Leading, partition: int) -> int:
    data = [{"name": "orders", "partition_data": [{"index": partition, "records": batch(b"1")}]}]
    message = {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": data}
    answer = await broker.call(ApiKey.PRODUCE, 9, message)
    return int(answer.responses[0].partition_responses[0].error_code)


async def test_a_failed_disk_takes_its_partitions_offline_and_the_rest_goes_on(
    tmp_path: Path, fail_disk: FailDisk
) -> None:
    async with leading(tmp_path, log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}") as broker:
        broken, healthy = await with_two_disks(broker)
        assert await produce(broker, broken) == 0
        fail_disk(str(tmp_path / "b"))
        assert await produce(broker, broken) == errors.KafkaStorageError.code
        assert await produce(broker, broken) == errors.KafkaStorageError.code
        assert await produce(broker, healthy) == 0

        metadata = await broker.call(ApiKey.METADATA, 9, {"topics": [{"name": "orders"}]})
        partitions = metadata.topics[0].partitions
        assert (partitions[broken].error_code, partitions[broken].leader_id) == (errors.LeaderNotAvailable.code, -1)
        assert partitions[broken].offline_replicas == (ME,)
        assert (partitions[healthy].error_code, partitions[healthy].leader_id) == (0, ME)

        dirs = (await broker.call(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})).results
        assert {Path(each.log_dir).name: each.error_code for each in dirs} == {
            "a": 0,
            "b": errors.KafkaStorageError.code,
        }


async def test_new_partitions_go_to_the_disks_that_work(tmp_path: Path, fail_disk: FailDisk) -> None:
    async with leading(tmp_path, log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}") as broker:
        fail_disk(str(tmp_path / "b"))
        await broker.create_topic(replicas=((ME,),) * 3)
        assert {each.log.directory.parent.name for each in broker.node.local("orders")} == {"a"}
        assert [await produce(broker, index) for index in range(3)] == [0, 0, 0]


async def test_a_topic_with_offline_partitions_can_be_deleted_and_created_again(
    tmp_path: Path, fail_disk: FailDisk
) -> None:
    async with leading(tmp_path, log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}") as broker:
        broken, _ = await with_two_disks(broker)
        fail_disk(str(tmp_path / "b"))
        assert await produce(broker, broken) == errors.KafkaStorageError.code
        await broker.call(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["orders"], "timeout": 1000})
        await broker.create_topic(replicas=((ME,),) * 4)
        assert [await produce(broker, index) for index in range(4)] == [0] * 4


async def test_what_waits_for_a_commit_is_told_of_the_failure(tmp_path: Path, fail_disk: FailDisk) -> None:
    async with leading(tmp_path, log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}") as broker:
        await broker.create_topic()
        waiting = asyncio.ensure_future(broker.produce(b"1", acks=-1))
        while broker.partition().log.log_end_offset == 0:
            await asyncio.sleep(0.001)
        fail_disk(str(broker.partition().log.directory.parent))
        assert (await broker.produce(b"2")).responses[0].partition_responses[
            0
        ].error_code == errors.KafkaStorageError.code
        assert (await waiting).responses[0].partition_responses[0].error_code == errors.KafkaStorageError.code


async def test_a_broker_starts_without_a_disk_that_it_cannot_open(tmp_path: Path) -> None:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    async with leading(tmp_path, log_dirs=dirs) as broker:
        broken, healthy = await with_two_disks(broker)
        assert await produce(broker, broken) == 0
    (tmp_path / "b").rename(tmp_path / "gone")
    (tmp_path / "b").write_text("not a directory")
    async with leading(tmp_path, log_dirs=dirs) as broker:
        assert await produce(broker, broken) == errors.KafkaStorageError.code
        assert await produce(broker, healthy) == 0
        # New partitions go to the other disk.
        await broker.create_topic("new", replicas=((ME,),) * 2)
        assert {each.log.directory.parent.name for each in broker.node.local("new")} == {"a"}
    (tmp_path / "b").unlink()
    (tmp_path / "gone").rename(tmp_path / "b")
    async with leading(tmp_path, log_dirs=dirs) as broker:
        assert await produce(broker, broken) == 0
        assert broker.partition(index=broken).log.log_end_offset == 2


async def test_a_broker_that_is_alone_does_not_start_without_its_first_disk(tmp_path: Path) -> None:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    async with leading(tmp_path, log_dirs=dirs) as broker:
        await with_two_disks(broker)
    (tmp_path / "a").rename(tmp_path / "gone")
    (tmp_path / "a").write_text("not a directory")
    with pytest.raises(errors.OttlaError, match=r"cannot use .*a as a data directory: .*its topics and configs"):
        async with leading(tmp_path, log_dirs=dirs):
            pass
