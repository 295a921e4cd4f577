"""Topics are described by brokers that know eligible leader replicas, and by those that do not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.clients.fake_cluster import FakeCluster

from ottla.broker.broker import Broker
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import NewTopic
from ottla.errors import UnknownTopicOrPartition


async def test_an_older_broker_describes_topics_without_eligible_leaders() -> None:
    async with FakeCluster().running() as cluster:
        cluster.add_topic("orders", [1, 0])
        address = "{}:{}".format(*cluster.bootstrap[0])
        async with AsyncAdmin(bootstrap_servers=address) as admin:
            found = (await admin.describe_topics("orders"))["orders"]
            assert [one.leader and one.leader.id for one in found.partitions] == [1, 0]
            assert [one.eligible_leader_replicas for one in found.partitions] == [None, None]
            with pytest.raises(UnknownTopicOrPartition, match="topic nowhere does not exist"):
                await admin.describe_topics("nowhere")
            assert (await admin.describe_cluster(include_fenced_brokers=True)).nodes


async def test_topics_with_more_partitions_than_a_page() -> None:
    config: dict[str, Any] = {"max.request.partition.size.limit": 3}
    async with Broker(config=config) as broker, AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("a", 2), NewTopic("b", 7), NewTopic("c", 1)])
        found = await admin.describe_topics(["c", "b", "a", "none"], raise_errors=False)
        assert {name: [one.partition for one in topic.partitions] for name, topic in found.items()} == {
            "c": [0],
            "b": [0, 1, 2, 3, 4, 5, 6],
            "a": [0, 1],
        }
        assert list(found) == ["c", "b", "a"]
        assert isinstance(found.errors["none"], UnknownTopicOrPartition)
