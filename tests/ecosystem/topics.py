"""What is committed in a topic."""

from __future__ import annotations

from collections.abc import Iterator

import ottla


def create(address: str, *topics: ottla.NewTopic) -> None:
    with ottla.Admin(bootstrap_servers=address) as admin:
        admin.create_topics(topics)


def committed(address: str, topic: str) -> Iterator[ottla.ConsumerRecord]:
    """Yield the committed records of all partitions, from the beginning to the present end."""
    with ottla.Consumer(bootstrap_servers=address, isolation_level="read_committed") as consumer:
        partitions = [ottla.TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            yield from consumer.poll(1)
