"""Fetches by followers, and consumers that read from followers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cluster.waiting import until
from ottla import errors
from unit.broker.leading import ME, OTHER, THIRD, fetch_message, leading

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


async def test_a_fetch_of_a_follower_counts_when_it_arrives_and_not_when_its_wait_ends(tmp_path: Path) -> None:
    async with leading(tmp_path) as broker:
        await broker.create_topic()
        arrived = broker.clock.now()
        waiting = asyncio.ensure_future(broker.follow(0, max_wait=10_000))
        await until(lambda: broker.partition().waiters)
        broker.clock.advance(5_000)
        await broker.produce(b"1")
        answer = await waiting
        assert answer.error_code == 0
        assert len(answer.records) > 0
        # The follower may have died meanwhile: it was caught up when it asked, not later.
        leader = broker.partition().leader
        assert leader is not None
        assert (leader.followers[OTHER].caught_up_at, leader.followers[OTHER].fetched_at) == (arrived, arrived)


async def test_a_fetch_that_waited_into_another_epoch_is_refused(tmp_path: Path) -> None:
    async with leading(tmp_path) as broker:
        await broker.create_topic()
        waiting = asyncio.ensure_future(broker.follow(0, max_wait=10_000))
        await until(lambda: broker.partition().waiters)
        partition = broker.partition()
        partition.leader_epoch += 1
        partition.release_waiters()
        assert (await waiting).error_code == errors.FencedLeaderEpoch.code


async def test_a_consumer_is_sent_to_the_follower_in_its_rack(tmp_path: Path) -> None:
    async with leading(tmp_path, replica_selector_class=RACK_AWARE) as broker:
        await broker.create_topic(replicas=((ME, OTHER, THIRD),))
        await broker.produce(b"1")
        await broker.follow(1, replica=OTHER)
        answer = (await broker.fetch(0, rack_id="b", max_wait=10_000, min_bytes=1)).responses[0].partitions[0]
        assert (answer.error_code, answer.preferred_read_replica, len(answer.records)) == (0, OTHER, 0)


@pytest.mark.parametrize("rack", ["", "a", "z"])
async def test_a_consumer_of_another_rack_reads_from_the_leader(tmp_path: Path, rack: str) -> None:
    async with leading(tmp_path, replica_selector_class=RACK_AWARE) as broker:
        await broker.create_topic()
        await broker.produce(b"1")
        await broker.follow(1)
        answer = (await broker.fetch(0, rack_id=rack)).responses[0].partitions[0]
        assert answer.preferred_read_replica == -1
        assert len(answer.records) > 0


async def test_a_consumer_is_not_sent_to_a_follower_that_does_not_have_the_offset(tmp_path: Path) -> None:
    async with leading(tmp_path, replica_selector_class=RACK_AWARE) as broker:
        await broker.create_topic()
        await broker.produce(b"1", b"2", b"3")
        await broker.follow(3, log_start=2)
        before_its_start = (await broker.fetch(1, rack_id="b")).responses[0].partitions[0]
        assert before_its_start.preferred_read_replica == -1
        assert (await broker.fetch(2, rack_id="b")).responses[0].partitions[0].preferred_read_replica == OTHER


async def test_without_the_selector_racks_do_not_matter(tmp_path: Path) -> None:
    async with leading(tmp_path) as broker:
        await broker.create_topic()
        await broker.produce(b"1")
        await broker.follow(1)
        answer = (await broker.fetch(0, rack_id="b")).responses[0].partitions[0]
        assert answer.preferred_read_replica == -1
        assert len(answer.records) > 0


async def test_a_session_repeats_the_preferred_replica(tmp_path: Path) -> None:
    async with leading(tmp_path, replica_selector_class=RACK_AWARE) as broker:
        await broker.create_topic()
        await broker.produce(b"1")
        await broker.follow(1)
        client = await broker.connect()
        first = await client.call(1, 12, fetch_message(1, rack_id="b", session_epoch=0))
        again = fetch_message(1, rack_id="b", session_id=first.session_id, session_epoch=1)
        second = await client.call(1, 12, {**again, "topics": []})
        assert second.responses[0].partitions[0].preferred_read_replica == OTHER


async def test_an_error_about_the_leader_names_it(tmp_path: Path) -> None:
    async with leading(tmp_path) as broker:
        await broker.create_topic(replicas=((OTHER, ME),))
        produced = (await broker.produce(b"1", version=10)).responses[0].partition_responses[0]
        assert produced.error_code == errors.NotLeaderOrFollower.code
        assert (produced.current_leader.leader_id, produced.current_leader.leader_epoch) == (OTHER, 0)
        # Version 10 of Fetch cannot read from followers.
        fetched = (await broker.fetch(0, version=10)).responses[0].partitions[0]
        assert fetched.error_code == errors.NotLeaderOrFollower.code
        # Version 12 reads from a follower, which has nothing yet.
        assert (await broker.fetch(0, version=12)).responses[0].partitions[0].error_code == 0
        beyond = (await broker.fetch(5, version=12)).responses[0].partitions[0]
        assert beyond.error_code == errors.OffsetOutOfRange.code


async def test_a_follower_that_consumers_read_from_learns_the_high_watermark_at_once(tmp_path: Path) -> None:
    async with leading(tmp_path, replica_selector_class=RACK_AWARE) as broker:
        await broker.create_topic(replicas=((ME, OTHER, THIRD),))
        await broker.produce(b"1")
        client = await broker.connect()
        first = await client.follow(broker, 1, session_epoch=0, whole=True)
        again = {"session_id": first.session_id, "max_wait": 60_000, "whole": True}
        waiting = asyncio.ensure_future(client.follow(broker, 1, session_epoch=1, **again))
        await until(lambda: broker.partition().waiters)
        await broker.follow(1, replica=THIRD)
        assert (await waiting).responses[0].partitions[0].high_watermark == 1
        # What it was told is not repeated.
        waiting = asyncio.ensure_future(client.follow(broker, 1, session_epoch=2, **again))
        await until(lambda: broker.partition().waiters)
        await broker.produce(b"2")
        assert len((await waiting).responses[0].partitions[0].records) > 0
