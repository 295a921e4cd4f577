"""``broadcast``: every member gets every partition of its topics. An example of a custom assignor.

Committed offsets belong to the group, not to a member. With this assignor all members commit to the same place, the
last one wins, and after a restart every member continues from there. A member that must see every record should keep
its own offsets, or have its own group.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.assignors.base import Assignment, Assignor, Subscription


class BroadcastAssignor(Assignor):
    """Gives everything to every member. Only for classic groups: in a consumer group a partition has one owner."""

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
