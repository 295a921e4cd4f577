"""The parts of a classic group, without the group."""

from __future__ import annotations

from group_context import GROUP, REBALANCE, SESSION, START, protocols

from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic.history import RebalanceHistory
from ottla.coordinator.classic.logged import Logged
from ottla.coordinator.classic.members import Member, Roster
from ottla.coordinator.classic.rebalance import Rebalance
from ottla.coordinator.classic.states import Status
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Shard
from ottla.coordinator.sessions import Sessions


def member(name: str, *supported: str, instance_id: str | None = None, rebalance_timeout: int = REBALANCE) -> Member:
    request = m.JoinRequest(GROUP, SESSION, rebalance_timeout, "consumer", protocols(*supported or ["range"]))
    return Member.joining(request._replace(group_instance_id=instance_id, client_id=name), f"{name}-1")


def roster_of(*members: Member) -> Roster:
    roster = Roster()
    for each in members:
        roster.add(each)
    return roster


class Parts:
    """A rebalance and the parts that it works on."""

    def __init__(self, *members: Member) -> None:
        self.shard = Shard(GroupConfig(), lambda: "id", dict, lambda _: None)
        self.logged, self.status, self.roster = Logged(), Status(now=START), roster_of(*members)
        self.status.protocol_type = "consumer"
        self.history = RebalanceHistory(self.shard.histories, GROUP, self.logged, self.status, self.roster)
        self.rebalance = Rebalance(
            self.shard, GROUP, self.status, self.roster, Sessions("heartbeat", GROUP), self.history
        )

    def effects(self, after: int = 0) -> Effects:
        return Effects(now=START + after)


def trigger(kind: str = "member joined", after: int = 0) -> r.Trigger:
    return r.Trigger(kind, START + after)
