"""``roundrobin``: all partitions of all topics are dealt out one by one, like cards.

A member that does not subscribe to the topic of the next partition is skipped. With unequal subscriptions the
result may be far from even; the sticky assignors do better.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from ottla.assignors.base import Assignment, Assignor, Subscription, member_order, subscribers_by_topic


class RoundRobinAssignor(Assignor):
    """Kafka's ``roundrobin``, with the same result for every member."""

    name = "roundrobin"

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        members = member_order(subscriptions)
        given: list[dict[str, list[int]]] = [{} for _ in members]
        turn = 0
        for topic, subscribers in subscribers_by_topic(partitions_per_topic, subscriptions, members).items():
            count = partitions_per_topic[topic]
            if not subscribers or not count:
                continue
            # Within a topic the deal goes round its subscribers only, so each gets every n-th partition.
            first = bisect_left(subscribers, turn) % len(subscribers)
            order = subscribers[first:] + subscribers[:first]
            for start, position in enumerate(order[:count]):
                given[position][topic] = list(range(start, count, len(order)))
            turn = order[(count - 1) % len(order)] + 1
        return {member_id: Assignment(partitions) for member_id, partitions in zip(members, given, strict=True)}
