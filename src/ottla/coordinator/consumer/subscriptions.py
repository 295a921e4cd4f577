"""The subscriptions of a consumer group, counted over its members.

The counts are part of what the log says (see ``logged.py``): they change with the members, in replay only. They exist
so that the heartbeat of one member does not look at all the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar
from uuid import UUID

from ottla.coordinator import records as r
from ottla.coordinator.consumer.member import Member, Subscription
from ottla.coordinator.group import TopicInfo

Item = TypeVar("Item")


class Subscriptions:
    """What the members of a group subscribe to, and which topics the regular expressions match."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()
        """How many members subscribe to a topic by name."""
        self.regexes: Counter[str] = Counter()
        """How many members subscribe to a regular expression."""
        self.resolved: dict[str, r.ConsumerGroupRegularExpressionValue] = {}
        """The topics that an expression matched when it was last resolved."""
        self.same: Counter[Subscription] = Counter()
        """How many members have the same subscription."""
        self.assignors: Counter[str] = Counter()
        """How many members ask for a server-side assignor."""
        self.classic_members = 0
        self.classic_protocols: Counter[str] = Counter()
        """How many members of the classic protocol support an assignor."""

    # ── replay ────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, member: Member) -> None:
        self.same[member.subscription] += 1
        for name in member.subscribed_topic_names:
            self.names[name] += 1
        if member.subscribed_topic_regex:
            self.regexes[member.subscribed_topic_regex] += 1
        if member.server_assignor is not None:
            self.assignors[member.server_assignor] += 1
        if member.classic is not None:
            self.classic_members += 1
            self.classic_protocols.update(protocol.name for protocol in member.classic.supported_protocols)

    def remove(self, member: Member) -> None:
        subtract(self.same, [member.subscription])
        subtract(self.names, member.subscribed_topic_names)
        subtract(self.regexes, [member.subscribed_topic_regex] if member.subscribed_topic_regex else [])
        subtract(self.assignors, [] if member.server_assignor is None else [member.server_assignor])
        if member.classic is not None:
            self.classic_members -= 1
            subtract(self.classic_protocols, [protocol.name for protocol in member.classic.supported_protocols])

    def resolve(self, regex: str, value: r.ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.resolved.pop(regex, None)
        else:
            self.resolved[regex] = value

    # ── topics ────────────────────────────────────────────────────────────────────────────────────────────────────

    def includes(self, topic: str) -> bool:
        return topic in self.names or any(topic in value.topics for value in self.resolved.values())

    def topics_of(self, member: Member) -> frozenset[str]:
        """Return the names that a member subscribes to. An unresolved expression matches nothing."""
        resolved = self.resolved.get(member.subscribed_topic_regex)
        return frozenset(member.subscribed_topic_names).union(resolved.topics if resolved is not None else ())

    def topics_of_all(self, members: Mapping[str, Member]) -> dict[str, frozenset[str]]:
        """Return the names that each member subscribes to. Equal subscriptions share one set."""
        known: dict[Subscription, frozenset[str]] = {}
        found = {}
        for member_id, member in members.items():
            subscription = member.subscription
            if subscription not in known:
                known[subscription] = self.topics_of(member)
            found[member_id] = known[subscription]
        return found

    def topic_ids_of(self, member: Member, topics: Mapping[str, TopicInfo]) -> frozenset[UUID]:
        """Return the ids of the existing topics that a member subscribes to."""
        names = self.topics_of(member) if member.subscribed_topic_regex else member.subscribed_topic_names
        return frozenset([topics[name].topic_id for name in names if name in topics])

    def topics(self, leaving: Iterable[Member] = (), joining: Member | None = None) -> set[str]:
        """Return all names that the group subscribes to after some members left and one joined or changed."""
        gone = list(leaving)
        lost = Counter([name for member in gone for name in member.subscribed_topic_names])
        found = {name for name, count in self.names.items() if count > lost[name]}
        if joining is not None:
            found.update(joining.subscribed_topic_names)
        if self.resolved:
            regexes = Counter(self.regexes)
            regexes.subtract([member.subscribed_topic_regex for member in gone])
            regexes.update([] if joining is None else [joining.subscribed_topic_regex])
            found.update(*(value.topics for regex, value in self.resolved.items() if regexes[regex] > 0))
        return found

    def all_like(self, joining: Member, leaving: Iterable[Member]) -> bool:
        """Return whether all subscriptions are equal after some members left and one joined or changed."""
        wanted = joining.subscription
        gone = [member.subscription for member in leaving]
        return all(each == wanted or count <= gone.count(each) for each, count in self.same.items())

    # ── assignors ─────────────────────────────────────────────────────────────────────────────────────────────────

    def preferred_assignor(self, leaving: Iterable[Member] = (), joining: Member | None = None) -> str | None:
        """Return the assignor that most members ask for; of several the first by name."""
        if not self.assignors and (joining is None or joining.server_assignor is None):
            return None
        counts = Counter(self.assignors)
        counts.subtract(member.server_assignor for member in leaving if member.server_assignor is not None)
        if joining is not None and joining.server_assignor is not None:
            counts[joining.server_assignor] += 1
        wanted = [name for name, count in counts.items() if count > 0]
        return min(wanted, key=lambda name: (-counts[name], name), default=None)


def subtract(counts: Counter[Item], items: Iterable[Item]) -> None:
    """Subtract items one by one, and remove those whose count becomes 0.

    >>> counts = Counter("aab")
    >>> subtract(counts, "ab")
    >>> counts
    Counter({'a': 1})
    """
    for item in items:
        counts[item] -= 1
        if counts[item] <= 0:
            del counts[item]
