"""The interface of an assignor: a name, and a way to share partitions among the members of a group.

The same classes work in a consumer that leads a classic group and in the broker for the consumer protocol. To write
your own, subclass :class:`Assignor` with ``name`` and ``assign``; the rest has defaults.
Partitions are given per topic, as on the wire: ``{"orders": [0, 1], "users": [3]}``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

Partitions: TypeAlias = Mapping[str, Collection[int]]
"""Partition numbers by topic."""

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member subscribes to, and what it owns."""

    topics: Collection[str]
    user_data: bytes | None = None
    owned_partitions: Partitions = field(default_factory=dict)
    generation: int = NO_GENERATION
    group_instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member gets."""

    partitions: Partitions = field(default_factory=dict)
    user_data: bytes | None = None


class Assignor(ABC):
    """Shares partitions among members.

    ``cooperative`` means that members keep their partitions during a rebalance. Such an assignor must not give a
    partition to a member while another one owns it: it leaves it out, and assigns it in the next rebalance.
    """

    name: ClassVar[str]
    cooperative: ClassVar[bool] = False

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Return bytes that are sent with this member's subscription to the leader."""
        return None

    @abstractmethod
    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Return an assignment for every member id. A topic that does not exist is not in ``partitions_per_topic``."""

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Called with what this member was assigned."""
        return


def java_order(text: str) -> bytes:
    """Return a key that sorts strings as Java does, by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def member_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
    """Return the member ids as Kafka sorts them: static members first, by their instance id, then the others by id.

    >>> member_order({"b": Subscription([]), "a": Subscription([]), "z": Subscription([], group_instance_id="i1")})
    ['z', 'a', 'b']
    """

    def key(member_id: str) -> tuple[bool, bytes, bytes]:
        instance_id = subscriptions[member_id].group_instance_id
        own = java_order(member_id)
        return (True, own, b"") if instance_id is None else (False, java_order(instance_id), own)

    return sorted(subscriptions, key=key)


def subscribers_by_topic(
    partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription], members: Iterable[str]
) -> dict[str, list[int]]:
    """Return for each existing topic the positions of its subscribers in ``members``, topics sorted by name."""
    subscribers: dict[str, list[int]] = {topic: [] for topic in sorted(partitions_per_topic)}
    for position, member_id in enumerate(members):
        for topic in set(subscriptions[member_id].topics):
            if topic in subscribers:
                subscribers[topic].append(position)
    return subscribers
