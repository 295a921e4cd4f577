"""Requests to a leader with followers: ListOffsets and DeleteRecords."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from cluster.waiting import until
from ottla import errors
from ottla.broker.fetch_room import Unverified
from ottla.broker.handlers import fetch
from ottla.broker.partition import Partition
from ottla.metadata.brokers import fail_replicas, fence_broker
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from ottla.storage.segment import Segment
from ottla.types import TopicPartition
from unit.broker.leading import EPOCH, ME, OTHER, THIRD, Leading, leading

LATEST, EARLIEST = -1, -2


async def list_offset(broker: Leading, timestamp: int, *, version: int = 7) -> Struct:
    entry = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    message = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "orders", "partitions": [entry]}]}
    return (await broker.call(ApiKey.LIST_OFFSETS, version, message)).topics[0].partitions[0]


async def delete_records(broker: Leading, offset: int, *, timeout_ms: int = 10_000) -> Struct:
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": offset}]}]
    response = await broker.call(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": timeout_ms})
    return response.topics[0].partitions[0]


async def begun(broker: Leading, offset: int) -> asyncio.Task[Struct]:
    """Begin to delete records, and return when the leader has deleted them."""
    deleting = asyncio.ensure_future(delete_records(broker, offset))
    await until(lambda: broker.partition().log.log_start_offset == 1)
    return deleting


@asynccontextmanager
async def followed(tmp_path: Path) -> AsyncIterator[Leading]:
    """A broker with one record, which its follower has."""
    async with leading(tmp_path) as broker:
        await broker.create_topic()
        await broker.produce(b"1")
        await broker.follow(1)
        yield broker


@pytest.mark.parametrize(
    ("version", "error"),
    [(4, errors.LeaderNotAvailable), (5, errors.OffsetNotAvailable), (7, errors.OffsetNotAvailable)],
)
async def test_a_new_leader_does_not_tell_the_end_before_it_knows_it(
    tmp_path: Path, version: int, error: type[errors.KafkaError]
) -> None:
    async with leading(tmp_path) as broker:
        await broker.create_topic()
        await broker.follow(0)
        await broker.produce(b"1")
        # The same leader in a new epoch: the record may have been committed.
        partition = broker.partition()
        leader = partition.leader
        assert leader is not None
        leader.epoch_start_offset = 1
        assert (await list_offset(broker, LATEST, version=version)).error_code == error.code
        assert (await list_offset(broker, 1_700_000_000_001, version=version)).error_code == error.code
        assert (await list_offset(broker, EARLIEST, version=version)).error_code == 0
        await broker.follow(1)
        latest = await list_offset(broker, LATEST, version=version)
        assert (latest.error_code, latest.offset) == (0, 1)


async def test_records_are_deleted_when_all_live_followers_have_deleted_them(tmp_path: Path) -> None:
    async with leading(tmp_path) as broker:
        await broker.create_topic(replicas=((ME, OTHER, THIRD),))
        await broker.produce(b"1", b"2")
        await broker.follow(2, replica=OTHER)
        await broker.follow(2, replica=THIRD)
        deleting = await begun(broker, 1)
        assert (await broker.follow(2, replica=OTHER, log_start=1)).log_start_offset == 1
        done, _ = await asyncio.wait([deleting], timeout=0.05)
        assert not done
        await broker.follow(2, replica=THIRD, log_start=1)
        answer = await deleting
        assert (answer.error_code, answer.low_watermark) == (0, 1)


async def test_a_waiting_follower_is_told_of_a_deletion_at_once(tmp_path: Path) -> None:
    async with followed(tmp_path) as broker:
        following = asyncio.ensure_future(broker.follow(1, max_wait=60_000))
        deleting = await begun(broker, -1)
        assert (await following).log_start_offset == 1
        await broker.follow(1, log_start=1)
        assert (await deleting).low_watermark == 1


async def test_a_deletion_ends_with_its_time(tmp_path: Path) -> None:
    async with followed(tmp_path) as broker:
        answer = await delete_records(broker, 1, timeout_ms=20)
        assert (answer.error_code, answer.low_watermark) == (errors.RequestTimedOut.code, 0)


async def test_a_deletion_does_not_wait_for_a_dead_follower(tmp_path: Path) -> None:
    async with followed(tmp_path) as broker:
        deleting = await begun(broker, 1)
        node = broker.node
        assert await node.controller.run(fence_broker, node.metadata, OTHER, EPOCH, "broker 2 stopped")
        answer = await deleting
        assert (answer.error_code, answer.low_watermark) == (0, 1)


async def test_a_deletion_does_not_wait_for_a_follower_whose_disk_has_failed(tmp_path: Path) -> None:
    async with followed(tmp_path) as broker:
        deleting = await begun(broker, 1)
        node = broker.node
        await node.controller.run(fail_replicas, node.metadata, OTHER, EPOCH, [TopicPartition("orders", 0)])
        answer = await deleting
        assert (answer.error_code, answer.low_watermark) == (0, 1)


async def test_a_deletion_ends_when_the_leader_changes(tmp_path: Path) -> None:
    async with followed(tmp_path) as broker:
        deleting = await begun(broker, 1)
        state = broker.partition().state
        broker.partition().follow(replace(state, leader=OTHER, leader_epoch=1))
        answer = await deleting
        assert (answer.error_code, answer.low_watermark) == (errors.NotLeaderOrFollower.code, -1)


async def test_a_producer_that_went_away_is_no_error_when_the_leader_changes(tmp_path: Path) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    async with leading(tmp_path) as broker:
        await broker.create_topic()
        await broker.produce(b"1")
        assert broker.partition().committed(1) is not None
        broker.partition().follow(replace(broker.partition().state, leader=OTHER, leader_epoch=1))
        gc.collect()
    assert problems == []


async def test_a_follower_is_told_where_its_log_differs_even_if_a_segment_had_to_be_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would start again from nothing although it is in sync, or mix the records of two leaders."""
    read, calls = fetch.read, []

    def read_twice(*args: Any) -> Any:
        found = read(*args)
        calls.append(found)
        if len(calls) == 1:
            raise Unverified([cast("Segment", SimpleNamespace(verify=lambda: None))])
        return found

    async with leading(tmp_path) as broker:
        await broker.create_topic()
        await broker.produce(b"1")
        monkeypatch.setattr(fetch, "read", read_twice)
        answer = await broker.follow(5, last_fetched_epoch=0)
        assert len(calls) == 2
        assert (answer.error_code, answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 0, 1)


async def test_a_replica_that_cannot_take_its_role_does_not_keep_others_from_theirs(tmp_path: Path) -> None:
    lead = Partition.lead

    def failing(self: Partition, *args: Any, **kwargs: Any) -> bool:
        if self.topic == "broken":
            raise ValueError("an accident")
        return lead(self, *args, **kwargs)

    async with leading(tmp_path) as broker:
        await broker.create_topic("broken")
        await broker.create_topic("orders")
        node = broker.node
        with mock.patch.object(Partition, "lead", failing):
            assert await node.controller.run(fence_broker, node.metadata, OTHER, EPOCH, "broker 2 stopped")
        assert (broker.partition("broken").state.isr, broker.partition("orders").state.isr) == ((ME, OTHER), (ME,))
