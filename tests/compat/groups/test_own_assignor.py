"""A custom assignor assigns partitions to real clients of the consumer protocol."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from ottla.assignors import Assignment, Assignor, Subscription

from ..waiting import until


class EvenAndOdd(Assignor):
    """The first member gets the even partitions, the second the odd ones."""

    name = "even-and-odd"

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        members = sorted(subscriptions)
        return {
            member: Assignment({topic: range(at, count, len(members)) for topic, count in partitions_per_topic.items()})
            for at, member in enumerate(members)
        }


def test_partitions_are_shared_as_the_class_says() -> None:
    quick = {"group_consumer_min_heartbeat_interval_ms": 100, "group_consumer_heartbeat_interval_ms": 200}
    with ottla.Broker(group_consumer_assignors=[EvenAndOdd, "uniform"], **quick) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("orders", 6)])["orders"].result(30)
        settings = {**servers, "group.id": "readers", "group.protocol": "consumer", "auto.offset.reset": "earliest"}
        consumers = [Consumer(settings), Consumer(settings)]
        try:
            for consumer in consumers:
                consumer.subscribe(["orders"])

            def shares() -> list[list[int]]:
                for consumer in consumers:
                    consumer.poll(0.05)
                return sorted(sorted(tp.partition for tp in consumer.assignment()) for consumer in consumers)

            until(lambda: shares() == [[0, 2, 4], [1, 3, 5]], "the partitions are shared by even and odd", 60)
            assert all(isinstance(tp, TopicPartition) for consumer in consumers for tp in consumer.assignment())
        finally:
            for consumer in consumers:
                consumer.close()
