"""``range``: topic by topic, each subscriber gets a run of neighbouring partitions.

If the numbers do not divide evenly, the first members get one partition more. Topics with the same number of partitions
and the same subscribers are shared alike, so the same partition number of all of them goes to the same member.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.assignors.base import Assignment, Assignor, Subscription, member_order, subscribers_by_topic


class RangeAssignor(Assignor):
    """Kafka's ``range``, with the same result for every member, in the client and in the broker."""

    name = "range"

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        members = member_order(subscriptions)
        given: list[dict[str, list[int]]] = [{} for _ in members]
        for topic, subscribers in subscribers_by_topic(partitions_per_topic, subscriptions, members).items():
            if not subscribers:
                continue
            each, more = divmod(partitions_per_topic[topic], len(subscribers))
            start = 0
            for rank, position in enumerate(subscribers):
                end = start + each + (rank < more)
                if start < end:
                    given[position][topic] = list(range(start, end))
                start = end
        return {member_id: Assignment(partitions) for member_id, partitions in zip(members, given, strict=True)}
