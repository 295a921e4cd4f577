"""``broadcast``: every member gets every partition of its topics. An example of an assignor of one's own.

Committed offsets belong to the group, not to a member: with this assignor all members commit to the same place, the
last one wins, and after a restart every member goes on from there. A member that must see everything should keep its
own offsets, or be a group of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.assignors.base import Assignment, Assignor, Subscription


class BroadcastAssignor(Assignor):
    """Gives everything to everybody. For classic groups: a consumer group's partition has one owner."""

    name = "broadcast"

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        return {
            member_id: Assignment(
                {
                    topic: list(range(partitions_per_topic[topic]))
                    for topic in sorted(set(subscription.topics))
                    if partitions_per_topic.get(topic)
                }
            )
            for member_id, subscription in subscriptions.items()
        }
