"""``random``: each partition goes to any one of its subscribers. An example of a custom assignor.

The source of randomness is a parameter, so that a test can repeat its results:
``RandomAssignor(random.Random(7).randrange)``, or ``RandomAssignor(secrets.randbelow)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.assignors.base import Assignment, Assignor, Subscription, member_order, subscribers_by_topic


class RandomAssignor(Assignor):
    """Draws an owner for each partition. ``below(n)`` returns an integer from 0 to n - 1."""

    name = "random"

    def __init__(self, below: Callable[[int], int]) -> None:
        self._below = below

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        members = member_order(subscriptions)
        given: list[dict[str, list[int]]] = [{} for _ in members]
        for topic, subscribers in subscribers_by_topic(partitions_per_topic, subscriptions, members).items():
            for partition in range(partitions_per_topic[topic] if subscribers else 0):
                position = subscribers[self._below(len(subscribers))]
                given[position].setdefault(topic, []).append(partition)
        return {member_id: Assignment(partitions) for member_id, partitions in zip(members, given, strict=True)}
