"""``cluster.faults`` and what is in the topics and groups of a cluster."""

from __future__ import annotations

import pytest
from tests.compat.waiting import until

from ottla import Admin, Cluster, Consumer, NewTopic, OttlaError, Producer, TopicPartition, errors


def test_faults_and_views_of_a_cluster(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    key = TopicPartition("cluster-faults", 0)
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(NewTopic(key.topic, 1, 3))
    cluster.wait_until_replicated(key.topic)
    with Producer(bootstrap_servers=servers, retry_backoff_ms=10) as producer:
        producer.send(key.topic, b"1").get(20)
        with cluster.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2, topic=key.topic) as fault:
            producer.send(key.topic, b"2").get(20)
            assert fault.hits == 2
        leader = cluster.leader_of(key.topic)
        with leader.faults.cut("Produce", times=1, after=True) as fault:
            assert producer.send(key.topic, b"3").get(20).offset == 2, "no duplicate"
            assert fault.hits == 1
        moved = cluster.faults.move_leader(key.topic)
        assert moved != leader.id
        until(lambda: cluster.leader_of(key.topic).id == moved, "all brokers know it")
        assert cluster.faults.move_leader(key.topic, to=leader.id) == leader.id
        producer.send(key.topic, b"4").get(20)
    assert cluster.topics[key.topic].values() == [b"1", b"2", b"3", b"4"]
    assert key.topic in cluster.topics
    with Consumer(bootstrap_servers=servers, group_id="cluster-faults", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([key.topic])
        until(lambda: consumer.poll(0.1) or consumer.assignment(), "partitions")
        consumer.commit({key: 1})
        group = cluster.groups["cluster-faults"]
        assert (group.lag, len(group.members), group.protocol) == (3, 1, "Classic")
        assert cluster.faults.expire_session("cluster-faults") == list(group.members)


def test_faults_for_fetches_spare_the_followers(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    topic = "cluster-fetches"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(NewTopic(topic, 1, 3))
    cluster.wait_until_replicated(topic)
    with cluster.faults.delay("Fetch", 0.1, topic=topic) as fault:
        with Producer(bootstrap_servers=servers) as producer:
            for value in (b"1", b"2"):
                producer.send(topic, value).get(20)
        assert fault.hits == 0, "the records were copied to the followers"
        with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            until(lambda: consumer.poll(0.1), "the records")
        assert fault.hits > 0


def test_mistakes(cluster: Cluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics(NewTopic("cluster-mistakes", 1, 1))
    with pytest.raises(OttlaError, match="has no other replica in sync that could lead"):
        cluster.faults.move_leader("cluster-mistakes")
    with pytest.raises(errors.UnknownTopicOrPartition):
        cluster.topics["nothing"].records()
    with pytest.raises(KeyError, match="there is no group nobody"):
        cluster.groups["nobody"]
