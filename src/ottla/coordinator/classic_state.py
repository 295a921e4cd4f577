"""A classic group as it is: members, leader, generation, and what follows from them. What happens to it is in
``classic_rebalance`` and ``classic``.

Durable is what the last GroupMetadata record says; :meth:`ClassicState.adopt` takes it over, when the group is loaded
and when a live one has written it. Between two records members and generation run ahead of the log, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass

from ottla import errors
from ottla.coordinator import history
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import CLASSIC, Shard, retention_expiry
from ottla.coordinator.offsets import IsExpired
from ottla.coordinator.transitions import State, check_transition
from ottla.protocol.codec import DecodeError, decode_data
from ottla.types import Millis

CONSUMER_PROTOCOL_TYPE = "consumer"


@dataclass(slots=True)
class Member:
    """A member of a classic group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: Millis
    session_timeout: Millis
    protocols: tuple[m.MemberProtocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    """Its first join has not been answered yet, so that it cannot send heartbeats."""
    deadline: Millis = -1
    """When its session ends unless it is heard of."""
    timer_at: Millis | None = None
    """When the timer of its session will next be looked at: at its deadline, or before."""

    @property
    def who(self) -> r.Who:
        return r.Who(self.member_id, self.group_instance_id, self.client_id, self.client_host)

    def metadata(self, protocol: str) -> bytes:
        """Return its subscription; one that has just joined again may not know the last generation's protocol."""
        return dict(self.protocols).get(protocol, self.protocols[0].metadata)

    def vote(self, candidates: Collection[str]) -> str:
        """Return the first of its own list that everybody supports."""
        return next(name for name, _ in self.protocols if name in candidates)


class ClassicState:
    """The state of a classic group, and what can be asked of it."""

    def __init__(self, shard: Shard, group_id: str, *, now: Millis) -> None:
        self.shard = shard
        self.group_id = group_id
        self.state = State.EMPTY
        self.state_since: Millis = now
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        """In the order in which they joined."""
        self.static_members: dict[str, str] = {}
        self.pending: dict[str, Member] = {}
        """Members that were told their id and have not joined with it yet."""
        self.joining: dict[str, Hashable] = {}
        """The tokens of the joins that wait."""
        self.syncing: dict[str, Hashable] = {}
        """The tokens of the syncs that wait."""
        self.pending_sync: set[str] = set()
        """Members that were told of the generation and have not synced yet."""
        self.replacing: dict[str, Member] = {}
        """Static members that come back; they become members once that is in the log."""
        self.trace: history.Trace | None = None
        self.assignments: dict[str, bytes] = {}
        """What the last record assigned; how the next one differs is the history."""
        self._support: Counter[str] = Counter()
        """How many members support a protocol."""

    # ── what it is ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def type(self) -> str:
        return CLASSIC

    @property
    def is_empty(self) -> bool:
        return not self.members and not self.pending

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout(self) -> Millis:
        return max((member.rebalance_timeout for member in self.members.values()), default=0)

    @property
    def everybody_joined(self) -> bool:
        return len(self.joining) == len(self.members) and not self.pending

    def listed(self) -> m.ListedGroup:
        return m.ListedGroup(self.group_id, self.protocol_type or "", str(self.state), CLASSIC)

    def described(self) -> m.DescribedGroup:
        """Return what DescribeGroups tells; subscriptions only while they are settled, as Kafka does."""
        protocol = self.protocol_name if self.state is State.STABLE else None
        return m.DescribedGroup(
            group_id=self.group_id,
            state=str(self.state),
            protocol_type=self.protocol_type or "",
            protocol_name=protocol or "",
            members=tuple(_described(member, protocol) for member in self.members.values()),
        )

    def awaited(self) -> Iterable[Member]:
        """Return those whose join, or whose assignment, the others wait for."""
        if self.state is State.PREPARING_REBALANCE:
            return [member for member in self.members.values() if member.member_id not in self.joining]
        if self.state is State.COMPLETING_REBALANCE and self.leader in self.members:
            return [self.members[self.leader]]
        return []

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads the topic; everything counts as read while that is not known."""
        topics = self._subscribed_topics()
        return self.uses_consumer_protocol if topics is None else topic in topics

    def _subscribed_topics(self) -> set[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return set()
        if self.protocol_name is None:
            return None
        try:
            return {topic for member in self.members.values() for topic in _topics(member, self.protocol_name)}
        except DecodeError:
            return None

    # ── protocols ─────────────────────────────────────────────────────────────────────────────────────────────────

    def supports(self, protocol_type: str, protocols: tuple[m.MemberProtocol, ...]) -> bool:
        """Whether a member with these protocols can be in the group with the others."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(
            self._support[protocol.name] == len(self.members) for protocol in protocols
        )

    def vote(self) -> str:
        """Return the protocol that most members want, among those that all of them support."""
        candidates = {name for name, supporters in self._support.items() if supporters == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def set_protocols(self, member: Member, protocols: tuple[m.MemberProtocol, ...]) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(member.protocols, +1)

    def _count(self, protocols: tuple[m.MemberProtocol, ...], step: int) -> None:
        for name in {protocol.name for protocol in protocols}:
            self._support[name] += step

    # ── members ───────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, member: Member) -> None:
        """Make somebody a member. The first one leads."""
        self.pending.pop(member.member_id, None)
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._count(member.protocols, +1)

    def drop(self, member_id: str) -> None:
        """Forget a member; if it led, the next one leads."""
        self.pending.pop(member_id, None)
        self.pending_sync.discard(member_id)
        self.joining.pop(member_id, None)
        self.syncing.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member.protocols, -1)
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise UnknownMemberId, or FencedInstanceId where another has come with the same instance id."""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                raise errors.UnknownMemberId(f"No member of group {self.group_id} has instance id {group_instance_id}.")
            if known != member_id:
                raise errors.FencedInstanceId(
                    f"The instance id {group_instance_id} of group {self.group_id} is used by member {known} now."
                )
        if member_id not in self.members:
            raise errors.UnknownMemberId(f"{member_id or 'A member without an id'} is not in group {self.group_id}.")

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────

    def check_fetch(self, request: m.FetchRequest) -> None:
        """Anybody may fetch the offsets of a classic group."""

    def check_delete_offsets(self) -> None:
        if self.state is not State.EMPTY and not self.uses_consumer_protocol:
            raise errors.NonEmptyGroup(f"Group {self.group_id} has members.")

    def check_delete(self) -> None:
        if self.state is not State.EMPTY and not self.is_empty:
            raise errors.NonEmptyGroup(f"Group {self.group_id} has members.")

    def offset_expiry(self, fx: Effects) -> IsExpired | None:
        """While the group reads, a topic that it no longer reads expires; when it is empty, everything does."""
        since = -1
        if self.protocol_type is not None and self.state is State.EMPTY:
            since = self.state_since
        elif self.protocol_type is not None and (self.state is not State.STABLE or self._subscribed_topics() is None):
            return None
        return retention_expiry(self.shard.config.offsets_retention_ms, since=since, now=fx.now)

    # ── the log ───────────────────────────────────────────────────────────────────────────────────────────────────

    def move_to(self, state: State, *, now: Millis) -> None:
        check_transition(self.state, state)
        self.state = state
        self.state_since = now

    def record(self, assignments: dict[str, bytes], members: Iterable[Member] | None = None) -> r.GroupMetadataValue:
        """Return the record of the group with these assignments."""
        assert self.protocol_name is not None
        chosen = self.members.values() if members is None else members
        return r.GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            current_state_timestamp=self.state_since,
            members=tuple(
                r.MemberMetadata(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout,
                    member.session_timeout,
                    member.metadata(self.protocol_name),
                    assignments.get(member.member_id, b""),
                )
                for member in chosen
            ),
        )

    def empty_record(self, generation: int, *, now: Millis) -> r.GroupMetadataValue:
        """Return the record of the group without members."""
        return r.GroupMetadataValue(self.protocol_type or "", generation, None, None, now, ())

    def adopt(self, value: r.GroupMetadataValue) -> None:
        """Take over what a record says."""
        if not value.members and self.state is not State.EMPTY and value.generation <= self.generation:
            return  # The record of a new group whose first rebalance has begun already.
        self.state = State.STABLE if value.members else State.EMPTY
        self.state_since = value.current_state_timestamp
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self._adopt_members(value)
        self.leader = value.leader
        self.assignments = {member.member_id: member.assignment for member in value.members}
        self.trace = None

    def _adopt_members(self, value: r.GroupMetadataValue) -> None:
        known = {**self.members, **self.replacing}
        self.replacing.clear()
        self.members.clear()
        self.static_members.clear()
        self._support.clear()
        for recorded in value.members:
            member = known.get(recorded.member_id)
            # A live member knows more protocols than the record; one that an earlier record told of may know another.
            if member is None or (value.protocol, recorded.subscription) not in member.protocols:
                member = _loaded(recorded, value.protocol or "")
            member.assignment = recorded.assignment
            member.session_timeout = recorded.session_timeout
            member.rebalance_timeout = _rebalance_timeout(recorded)
            self.add(member)
        self.pending_sync &= self.members.keys()


def _rebalance_timeout(recorded: r.MemberMetadata) -> Millis:
    """The first version of the record has none."""
    return recorded.session_timeout if recorded.rebalance_timeout == -1 else recorded.rebalance_timeout


def _loaded(recorded: r.MemberMetadata, protocol: str) -> Member:
    return Member(
        recorded.member_id,
        recorded.group_instance_id,
        recorded.client_id,
        recorded.client_host,
        _rebalance_timeout(recorded),
        recorded.session_timeout,
        (m.MemberProtocol(protocol, recorded.subscription),),
        recorded.assignment,
    )


def _described(member: Member, protocol: str | None) -> m.DescribedMember:
    metadata = b"" if protocol is None else member.metadata(protocol)
    return m.DescribedMember(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, metadata, member.assignment
    )


def _topics(member: Member, protocol: str) -> Iterable[str]:
    return _topics_of(member.metadata(protocol))


def _topics_of(metadata: bytes) -> Iterable[str]:
    # Every version begins with the fields of version 0.
    topics: Iterable[str] = decode_data("consumer_protocol_subscription", 0, metadata, 2).topics
    return topics


def subscribed_to(protocols: Iterable[m.MemberProtocol]) -> list[object]:
    """Return what a consumer asks for: its assignors, each with its topics, or with its bytes if they say no topics."""
    asked: list[object] = []
    for name, metadata in protocols:
        try:
            asked.append((name, sorted(_topics_of(metadata))))
        except DecodeError:
            asked.append((name, metadata))
    return asked
