"""Changes of groups and transactions wait for replicas only for some time, as in Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla import errors
from ottla.metadata.brokers import fence_broker
from ottla.protocol.apis import ApiKey
from unit.broker.leading import EPOCH, ME, OTHER, Leading, leading

GROUP = {"group_id": "readers", "member_id": "", "generation_id_or_member_epoch": -1}


async def with_state(broker: Leading, topic: str, replicas: tuple[int, ...] = (ME, OTHER)) -> None:
    """Let the coordinators have a follower, which does not follow yet."""
    await broker.create_topic(topic, replicas=(replicas,))
    await broker.node.groups.shards.settle(5)
    await broker.node.transactions.shards.settle(5)


async def commit(broker: Leading, offset: int) -> int:
    partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": None}]
    message = {**GROUP, "topics": [{"name": "orders", "partitions": partitions}]}
    answer = await broker.call(ApiKey.OFFSET_COMMIT, 6, message)
    return int(answer.topics[0].partitions[0].error_code)


async def pass_time(broker: Leading, waiting: asyncio.Future[Any]) -> None:
    while not waiting.done():
        broker.clock.advance(10)
        await asyncio.sleep(0.01)


async def follow(broker: Leading, topic: str) -> None:
    """Have all records at the follower."""
    partition = broker.partition(topic)
    end = partition.log.log_end_offset
    await broker.follow(end, topic=topic, last_fetched_epoch=partition.leader_epoch if end else -1)


@pytest.mark.timeout(20)
async def test_a_commit_of_offsets_that_is_not_replicated_in_time_is_tried_again(tmp_path: Path) -> None:
    async with leading(tmp_path, offsets_commit_timeout_ms=100) as broker:
        await broker.create_topic()
        await with_state(broker, "__consumer_offsets")
        waiting = asyncio.ensure_future(commit(broker, 7))
        await pass_time(broker, waiting)
        assert await waiting == errors.CoordinatorNotAvailable.code
        again = asyncio.ensure_future(commit(broker, 8))
        while broker.partition("__consumer_offsets").log.log_end_offset < 2:
            await asyncio.sleep(0.01)
        await follow(broker, "__consumer_offsets")
        assert await again == 0


@pytest.mark.timeout(20)
async def test_a_transaction_that_is_not_replicated_within_its_timeout_is_tried_again(tmp_path: Path) -> None:
    async with leading(tmp_path) as broker:
        await with_state(broker, "__transaction_state")
        message = {"transactional_id": "copy", "transaction_timeout": 200}
        answer = await broker.call(ApiKey.INIT_PRODUCER_ID, 2, message)
        assert answer.error_code == errors.CoordinatorNotAvailable.code
        await follow(broker, "__transaction_state")
        again = asyncio.ensure_future(broker.call(ApiKey.INIT_PRODUCER_ID, 2, {**message, "transaction_timeout": 9000}))
        while broker.partition("__transaction_state").log.log_end_offset < 2:
            await asyncio.sleep(0.01)
        await follow(broker, "__transaction_state")
        answer = await again
        assert (answer.error_code, answer.producer_epoch) == (0, 1)


@pytest.mark.timeout(20)
async def test_the_end_of_a_transaction_is_answered_though_its_markers_wait_for_replicas(tmp_path: Path) -> None:
    async with leading(tmp_path) as broker:
        await broker.create_topic()
        await with_state(broker, "__transaction_state")

        async def replicate() -> None:
            while True:
                await follow(broker, "__transaction_state")
                await asyncio.sleep(0.01)

        replicating = asyncio.ensure_future(replicate())
        made = await broker.call(ApiKey.INIT_PRODUCER_ID, 2, {"transactional_id": "copy", "transaction_timeout": 300})
        who = {
            "transactional_id": "copy",
            "producer_id": made.producer_id,
            "producer_epoch": made.producer_epoch,
        }
        topics = [{"name": "orders", "partitions": [0]}]
        added = await broker.call(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            {f"v3_and_below_{name}": value for name, value in who.items()} | {"v3_and_below_topics": topics},
        )
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        ended = await broker.call(ApiKey.END_TXN, 3, {**who, "committed": True})
        assert ended.error_code == 0
        assert broker.partition().high_watermark == 0
        await follow(broker, "orders")
        while (await state(broker)) != "CompleteCommit":
            await asyncio.sleep(0.01)
        replicating.cancel()


@pytest.mark.timeout(20)
async def test_offsets_of_a_transaction_that_too_few_replicas_would_have_are_tried_again(tmp_path: Path) -> None:
    """Any other error is fatal for the producer."""
    async with leading(tmp_path) as broker:
        await broker.create_topic()
        await broker.create_topic("__consumer_offsets", replicas=((ME, OTHER),), min_insync_replicas="2")
        await with_state(broker, "__transaction_state", (ME,))
        made = await broker.call(ApiKey.INIT_PRODUCER_ID, 2, {"transactional_id": "copy", "transaction_timeout": 9000})
        who = {
            "transactional_id": "copy",
            "group_id": "readers",
            "producer_id": made.producer_id,
            "producer_epoch": made.producer_epoch,
        }
        assert (await broker.call(ApiKey.ADD_OFFSETS_TO_TXN, 3, who)).error_code == 0
        await broker.node.controller.run(fence_broker, broker.node.metadata, OTHER, EPOCH, "broker 2 stopped")
        partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": None}]
        message = {**who, "topics": [{"name": "orders", "partitions": partitions}]}
        answer = await broker.call(ApiKey.TXN_OFFSET_COMMIT, 3, message)
        assert answer.topics[0].partitions[0].error_code == errors.CoordinatorNotAvailable.code


async def state(broker: Leading) -> str:
    described = await broker.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["copy"]})
    return str(described.transaction_states[0].transaction_state)
