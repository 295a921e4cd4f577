"""The members of a classic group. Soft state: while the group rebalances, it is ahead of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.types import Millis

Problem: TypeAlias = type[errors.KafkaError]
"""Why a request is rejected."""


@dataclass(slots=True, eq=False)
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
    """Its first join has not been answered, so it cannot send heartbeats yet."""

    @classmethod
    def joining(cls, request: m.JoinRequest, member_id: str) -> Member:
        return cls(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout,
            request.session_timeout,
            request.protocols,
        )

    @classmethod
    def loaded(cls, recorded: r.MemberMetadata, protocol: str) -> Member:
        return cls(
            recorded.member_id,
            recorded.group_instance_id,
            recorded.client_id,
            recorded.client_host,
            _rebalance_timeout(recorded),
            recorded.session_timeout,
            (m.MemberProtocol(protocol, recorded.subscription),),
        )

    @property
    def who(self) -> r.Who:
        return r.Who(self.member_id, self.group_instance_id, self.client_id, self.client_host)

    def metadata(self, protocol: str) -> bytes:
        """Return its subscription. A member that has just joined again may not support the last protocol."""
        return dict(self.protocols).get(protocol, self.protocols[0].metadata)

    def joined(self, protocol: str) -> m.JoinedMember:
        return m.JoinedMember(self.member_id, self.group_instance_id, self.metadata(protocol))

    def described(self, protocol: str | None) -> m.DescribedMember:
        metadata = b"" if protocol is None else self.metadata(protocol)
        return m.DescribedMember(
            self.member_id, self.group_instance_id, self.client_id, self.client_host, metadata, self.assignment
        )

    def vote(self, candidates: Collection[str]) -> str:
        """Return the first of its protocols that is a candidate."""
        return next(name for name, _ in self.protocols if name in candidates)


class Roster:
    """The members of a group, its leader, and the protocols that the members support."""

    __slots__ = ("_support", "leader", "members", "pending", "replacement", "static")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        """In the order in which they joined."""
        self.static: dict[str, str] = {}
        """The member id of each instance id."""
        self.pending: dict[str, None] = {}
        """Pending members: they know their id and have not joined with it yet."""
        self.leader: str | None = None
        self.replacement: Member | None = None
        """A static member that has returned. It becomes a member when its record is replayed."""
        self._support: dict[str, int] = {}
        """How many members support a protocol."""

    @property
    def is_empty(self) -> bool:
        return not self.members and not self.pending

    @property
    def rebalance_timeout(self) -> Millis:
        return max((member.rebalance_timeout for member in self.members.values()), default=0)

    def add(self, member: Member) -> None:
        """Add a member. The first one is the leader."""
        self.pending.pop(member.member_id, None)
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._count(member.protocols, +1)

    def drop(self, member_id: str) -> None:
        """Remove a member. If it was the leader, the next member is."""
        self.pending.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member.protocols, -1)
        if member.group_instance_id is not None:
            self.static.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def swapped(self, old: Member, new: Member) -> list[Member]:
        """Return the members with a new one in an old one's place."""
        return [new if member is old else member for member in self.members.values()]

    def swap(self, old: Member, new: Member) -> None:
        """Put a new member in an old one's place."""
        self._replace_all(self.swapped(old, new), new.member_id if self.leader == old.member_id else self.leader)

    def replay(self, value: r.GroupMetadataValue) -> None:
        """Become what the log says."""
        known = dict(self.members)
        if self.replacement is not None:
            known[self.replacement.member_id] = self.replacement
            self.replacement = None
        members = []
        for recorded in value.members:
            member = known.get(recorded.member_id)
            # A live member supports more protocols than its record. But one from an earlier record may have changed.
            if member is None or (value.protocol, recorded.subscription) not in member.protocols:
                member = Member.loaded(recorded, value.protocol or "")
            member.assignment = recorded.assignment
            member.session_timeout = recorded.session_timeout
            member.rebalance_timeout = _rebalance_timeout(recorded)
            members.append(member)
        self._replace_all(members, value.leader)

    def _replace_all(self, members: Iterable[Member], leader: str | None) -> None:
        self.members.clear()
        self.static.clear()
        self._support.clear()
        for member in members:
            self.add(member)
        self.leader = leader

    def problem(self, member_id: str, group_instance_id: str | None) -> Problem | None:
        """Return why a request in the name of this member is rejected, or None."""
        if group_instance_id is not None:
            known = self.static.get(group_instance_id)
            if known is None:
                return errors.UnknownMemberId
            if known != member_id:
                return errors.FencedInstanceId
        return None if member_id in self.members else errors.UnknownMemberId

    def elect(self, present: Collection[str]) -> bool:
        """Make a present member the leader unless the leader is present. Return whether there is one."""
        if self.leader not in present:
            self.leader = next((member_id for member_id in self.members if member_id in present), self.leader)
        return self.leader in present

    # ── protocols ─────────────────────────────────────────────────────────────────────────────────────────────────

    def supports_one_of(self, protocols: Iterable[m.MemberProtocol]) -> bool:
        """Return whether all members support one of these protocols."""
        return any(self._support.get(protocol.name) == len(self.members) for protocol in protocols)

    def vote(self) -> str:
        """Return the protocol that most members prefer, among those that all of them support."""
        candidates = {name for name, supporters in self._support.items() if supporters == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def vote_with(self, old: Member, new: Member) -> str:
        """Return what the vote would be with a new member in an old one's place."""
        before = old.protocols
        self.set_protocols(old, new.protocols)
        try:
            return self.vote()
        finally:
            self.set_protocols(old, before)

    def set_protocols(self, member: Member, protocols: tuple[m.MemberProtocol, ...]) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(member.protocols, +1)

    def _count(self, protocols: tuple[m.MemberProtocol, ...], step: int) -> None:
        for name in {protocol.name for protocol in protocols}:
            self._support[name] = self._support.get(name, 0) + step


def _rebalance_timeout(recorded: r.MemberMetadata) -> Millis:
    """Version 0 of the record has none."""
    return recorded.session_timeout if recorded.rebalance_timeout == -1 else recorded.rebalance_timeout
