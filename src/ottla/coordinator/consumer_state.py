"""A consumer group as it is: what its records say, and what follows from them. What happens to it is in ``consumer``.

Everything durable changes in the ``replay_`` methods only. Counts and indexes over the members are kept up to date with
them, so that a heartbeat of one member does not look at all the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar
from uuid import UUID

from ottla import errors
from ottla.coordinator import records as r
from ottla.coordinator.consumer_member import NO_PARTITIONS, Member, Partitions, to_partitions
from ottla.coordinator.consumer_messages import LEAVE_EPOCH
from ottla.coordinator.consumer_shares import Loads
from ottla.coordinator.group import CONSUMER, Shard
from ottla.types import Millis

NO_EPOCH = -1
Name = TypeVar("Name")


class ConsumerState:
    """The state of a consumer group, and what can be asked of it."""

    def __init__(self, shard: Shard, group_id: str) -> None:
        self.shard = shard
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        """Of the topics that the group subscribes to, when the epoch was last raised."""
        self.assignment_epoch = 0
        """The group epoch that the target was computed for."""
        self.target: dict[str, Partitions] = {}
        self.members: dict[str, Member] = {}
        self.resolved: dict[str, r.ConsumerGroupRegularExpressionValue] = {}
        self.has_partition_metadata = False
        """A record of brokers before 4.1 is still in the log."""

        self.static_members: dict[str, str] = {}
        self.regexes: Counter[str] = Counter()
        """How many members subscribe to a regular expression."""
        self.server_assignors: Counter[str] = Counter()
        self.classic_members = 0
        self.classic_protocols: Counter[str] = Counter()
        """How many members of the classic protocol support an assignor."""
        self.names: Counter[str] = Counter()
        """How many members subscribe to a topic by its name."""
        self.subscriptions: Counter[tuple[tuple[str, ...], str]] = Counter()
        """How many members subscribe to the same names and expression."""
        self.settled: dict[int | None, set[str]] = {}
        """Which members have come to rest in an epoch, and with None those that are on their way."""
        self.loads = Loads()
        """How many partitions the target gives to each member."""
        self.target_topics: Counter[UUID] = Counter()
        """How many members have partitions of a topic in the target."""
        self._owners: dict[UUID, dict[int, str]] = {}
        self.following: set[str] = set()
        """Members that the next records take to the epoch of the target, with all that they have. Soft."""

    # ── what it is ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def type(self) -> str:
        return CONSUMER

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        """By Kafka's names."""
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def member(self, member_id: str) -> Member:
        """Return a member, or raise UnknownMemberId."""
        member = self.members.get(member_id)
        if member is None:
            raise errors.UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def owner_of(self, topic_id: UUID, partition: int) -> str | None:
        """Return which member has a partition, or has to give it up."""
        return self.owners_of(topic_id).get(partition)

    def owners_of(self, topic_id: UUID) -> Mapping[int, str]:
        """Return which members have partitions of a topic, or have to give them up."""
        return self._owners.get(topic_id, {})

    def target_of(self, member: Member) -> Partitions:
        """Return the target of a member; a static one that has just come back has that of its predecessor."""
        member_id = member.member_id if member.instance_id is None else self.static_members.get(member.instance_id)
        return self.target.get(member_id, {}) if member_id is not None else {}

    # ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────

    def topics_of(self, member: Member) -> frozenset[str]:
        """Return the names that a member subscribes to; an expression that is not resolved yet matches nothing."""
        resolved = self.resolved.get(member.subscribed_topic_regex)
        return frozenset(member.subscribed_topic_names).union(resolved.topics if resolved is not None else ())

    def all_subscribe_like(self, joining: Member, leaving: Iterable[Member]) -> bool:
        """Whether all members subscribe to the same once some have left and one has joined or changed."""
        wanted = joining.subscription
        gone = [member.subscription for member in leaving if member.member_id in self.members]
        return all(each == wanted or count <= gone.count(each) for each, count in self.subscriptions.items())

    def topics_of_all(self, members: Mapping[str, Member]) -> dict[str, frozenset[str]]:
        """Return the names that each member subscribes to; members that subscribe to the same share one set."""
        known: dict[tuple[tuple[str, ...], str], frozenset[str]] = {}
        found = {}
        for member_id, member in members.items():
            subscription = member.subscription
            if subscription not in known:
                known[subscription] = self.topics_of(member)
            found[member_id] = known[subscription]
        return found

    def topic_ids_of(self, member: Member) -> frozenset[UUID]:
        topics = self.shard.topics()
        names = self.topics_of(member) if member.subscribed_topic_regex else member.subscribed_topic_names
        return frozenset([topics[name].topic_id for name in names if name in topics])

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.names or any(topic in value.topics for value in self.resolved.values())

    def subscribed_topics(self, leaving: Iterable[Member] = (), joining: Member | None = None) -> set[str]:
        """Return all names that the group subscribes to once some members have left and one has joined or changed."""
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

    def preferred_assignor(self, leaving: Iterable[Member] = (), joining: Member | None = None) -> str | None:
        """Return the assignor that most members ask for, of equals the first by name."""
        if not self.server_assignors and (joining is None or joining.server_assignor is None):
            return None
        counts = Counter(self.server_assignors)
        counts.subtract(member.server_assignor for member in leaving if member.server_assignor is not None)
        if joining is not None and joining.server_assignor is not None:
            counts[joining.server_assignor] += 1
        wanted = [name for name, count in counts.items() if count > 0]
        return min(wanted, key=lambda name: (-counts[name], name), default=None)

    # ── replay ────────────────────────────────────────────────────────────────────────────────────────────────────

    def replay_metadata(self, value: r.ConsumerGroupMetadataValue) -> None:
        self.group_epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def replay_member(self, member_id: str, value: r.ConsumerGroupMemberMetadataValue | None) -> None:
        if value is None:
            self._put(self.members.pop(member_id, None), None)
        else:
            old = self.members.get(member_id)
            self._put(old, (old or Member(member_id)).with_metadata(value))

    def replay_current(self, member_id: str, value: r.ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        self.following.discard(member_id)
        old = self.members.get(member_id)
        if old is None:
            if value is not None:
                self._put(None, Member(member_id).with_current(value))
        elif value is not None:
            self._move(old, old.with_current(value))
        else:
            gone = old._replace(
                member_epoch=LEAVE_EPOCH,
                previous_member_epoch=LEAVE_EPOCH,
                assigned={},
                pending_revocation={},
            )
            self._move(old, gone)

    def replay_target(self, member_id: str, value: r.ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        self.set_target(member_id, None if value is None else to_partitions(value.topic_partitions))

    def replay_target_metadata(self, value: r.ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        self.assignment_epoch = NO_EPOCH if value is None else value.assignment_epoch

    def replay_regex(self, regex: str, value: r.ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.resolved.pop(regex, None)
        else:
            self.resolved[regex] = value

    # ── counts and indexes ────────────────────────────────────────────────────────────────────────────────────────

    def _put(self, old: Member | None, new: Member | None) -> None:
        if old is not None:
            self._forget(old)
        if new is not None:
            if old is None:
                self.loads.set(new.member_id, _load(self.target.get(new.member_id, NO_PARTITIONS)))
            self.members[new.member_id] = new
            self._remember(new)
        elif old is not None:
            self.loads.drop(old.member_id)

    def set_target(self, member_id: str, partitions: Partitions | None) -> None:
        before, after = self.target.get(member_id, NO_PARTITIONS), partitions or NO_PARTITIONS
        if partitions is not None:
            self.target[member_id] = partitions
        else:
            self.target.pop(member_id, None)
        if after.keys() != before.keys():
            _subtract(self.target_topics, before)
            self.target_topics.update(after.keys())
        if member_id in self.members:
            self.loads.set(member_id, _load(after))

    def _move(self, old: Member, new: Member) -> None:
        """Put a member in place that only is at another step of its way."""
        self._unsettle(old)
        if new.assigned != old.assigned or new.pending_revocation != old.pending_revocation:
            self._disown(old)
        self.members[new.member_id] = new
        self._settle(new)
        self._own(new)

    def _forget(self, member: Member) -> None:
        self._unsettle(member)
        self._disown(member)
        _subtract(self.subscriptions, [member.subscription])
        _subtract(self.names, member.subscribed_topic_names)
        _subtract(self.regexes, [member.subscribed_topic_regex] if member.subscribed_topic_regex else [])
        _subtract(self.server_assignors, [] if member.server_assignor is None else [member.server_assignor])
        if member.classic is not None:
            self.classic_members -= 1
            _subtract(self.classic_protocols, [protocol.name for protocol in member.classic.supported_protocols])
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _remember(self, member: Member) -> None:
        self._settle(member)
        self._own(member)
        self.subscriptions[member.subscription] += 1
        for name in member.subscribed_topic_names:
            self.names[name] += 1
        if member.subscribed_topic_regex:
            self.regexes[member.subscribed_topic_regex] += 1
        if member.server_assignor is not None:
            self.server_assignors[member.server_assignor] += 1
        if member.classic is not None:
            self.classic_members += 1
            self.classic_protocols.update(protocol.name for protocol in member.classic.supported_protocols)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def _settle(self, member: Member) -> None:
        self.settled.setdefault(member.settled_in, set()).add(member.member_id)

    def _unsettle(self, member: Member) -> None:
        settled = self.settled[member.settled_in]
        settled.discard(member.member_id)
        if not settled:
            del self.settled[member.settled_in]

    def _own(self, member: Member) -> None:
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, numbers in partitions.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(numbers, member.member_id))

    def _disown(self, member: Member) -> None:
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, numbers in partitions.items():
                owners = self._owners.get(topic_id, {})
                for number in numbers:
                    if owners.get(number) == member.member_id:
                        del owners[number]

    def session_timeout_of(self, member: Member) -> Millis:
        if member.classic is not None:
            return member.classic.session_timeout
        return self.shard.times_of(self.group_id).session_timeout


def _load(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


def _subtract(counts: Counter[Name], names: Iterable[Name]) -> None:
    for name in names:
        counts[name] -= 1
        if counts[name] <= 0:
            del counts[name]
