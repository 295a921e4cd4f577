"""Members of both protocols join and leave one group, which changes its kind with them.

At no time do two members have the same partition by what the coordinator told them last, and once everybody is left in
peace every partition has an owner.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla import errors
from ottla.assignors import Assignment, RangeAssignor, Subscription
from ottla.assignors.embedded import decode_assignment, decode_subscription, encode_assignment, encode_subscription
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.consumer.group import ConsumerGroup
from unit.coordinator.consumer_context import ORDERS, ConsumerContext
from unit.coordinator.group_context import GROUP, Call

NAMES = st.sampled_from(["a", "b", "c"])
FORGOTTEN = {errors.UnknownMemberId.code, errors.FencedMemberEpoch.code, errors.GroupIdNotFound.code}


@dataclass
class Client:
    """What a consumer knows."""

    name: str
    is_classic: bool
    member_id: str = ""
    epoch: int = 0
    owned: set[int] = field(default_factory=set)
    waits: Call | None = None
    """A join or sync that may be parked."""
    is_joined: bool = False


class MixedGroupMachine(RuleBasedStateMachine):
    """A few clients of both protocols. Each does its next step, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.context = ConsumerContext(GroupConfig(group_initial_rebalance_delay_ms=0))
        self.clients: dict[str, Client] = {}

    @rule(name=NAMES, is_classic=st.booleans())
    def start(self, name: str, is_classic: bool) -> None:
        if name not in self.clients:
            self.clients[name] = Client(name, is_classic)
            self.step(name)

    @rule(name=NAMES)
    def step(self, name: str) -> None:
        if name in self.clients:
            client = self.clients[name]
            (self.classic_step if client.is_classic else self.consumer_step)(client)

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        client = self.clients.pop(name, None)
        if client is None or not client.member_id:
            return
        if client.is_classic:
            self.context.leave(client.member_id)
        else:
            self.context.beat(client.member_id, -1)

    @rule(duration=st.sampled_from([0, 100, 3_000, 30_000]))
    def sleep(self, duration: int) -> None:
        self.context.sleep(duration)

    @rule()
    def restart(self) -> None:
        self.context.restart()
        for client in self.clients.values():
            client.waits, client.is_joined = None, client.is_joined and client.waits is None

    # ── the consumer protocol ─────────────────────────────────────────────────────────────────────────────────────

    def consumer_step(self, client: Client) -> None:
        if not client.member_id:
            client.member_id = f"{client.name}-{self.context.now}"
            client.owned.clear()
            call = self.context.enroll(client.member_id)
        else:
            owned = (r.TopicPartitions(ORDERS, tuple(sorted(client.owned))),) if client.owned else ()
            call = self.context.beat(client.member_id, client.epoch, topic_partitions=owned)
        response = call.response
        if response.error_code:
            assert response.error_code in FORGOTTEN, response
            client.member_id = ""
            client.owned.clear()
            return
        client.epoch = response.member_epoch
        if response.assignment is not None:
            client.owned = {number for topic in response.assignment for number in topic.partitions}

    # ── the classic protocol, eager ───────────────────────────────────────────────────────────────────────────────

    def classic_step(self, client: Client) -> None:
        if client.waits is not None:
            if not client.waits.is_parked:
                waits, client.waits = client.waits, None
                self.answered(client, waits.response)
        elif not client.is_joined:
            self.join(client)
        else:
            code = self.context.heartbeat(client.member_id, client.epoch).error_code
            if code:
                self.failed(client, code)

    def join(self, client: Client) -> None:
        client.owned.clear()
        metadata = encode_subscription(Subscription(["orders"]))
        protocols = (m.MemberProtocol("range", metadata),)
        client.waits = self.context.join(client.member_id, client_id=client.name, protocols=protocols)

    def answered(self, client: Client, response: m.JoinResponse | m.SyncResponse) -> None:
        if response.error_code:
            if isinstance(response, m.JoinResponse) and response.member_id:
                client.member_id = response.member_id
            self.failed(client, response.error_code)
        elif isinstance(response, m.JoinResponse):
            client.member_id, client.epoch = response.member_id, response.generation_id
            given = self.assign(response) if response.leader == client.member_id else ()
            client.waits = self.context.sync(client.member_id, client.epoch, assignments=given)
        else:
            client.is_joined = True
            partitions = decode_assignment(response.assignment).partitions if response.assignment else {}
            client.owned = set(partitions.get("orders", ()))

    def assign(self, response: m.JoinResponse) -> tuple[m.MemberAssignment, ...]:
        subscriptions = {member.member_id: decode_subscription(member.metadata) for member in response.members}
        assigned = RangeAssignor().assign({"orders": 6}, subscriptions)
        return tuple(
            m.MemberAssignment(member_id, encode_assignment(Assignment(each.partitions)))
            for member_id, each in assigned.items()
        )

    def failed(self, client: Client, code: int) -> None:
        allowed = {errors.RebalanceInProgress.code, errors.IllegalGeneration.code, errors.MemberIdRequired.code}
        assert code in FORGOTTEN | allowed, code
        client.is_joined = False
        client.owned.clear()
        if code == errors.UnknownMemberId.code:
            client.member_id = ""

    # ── what must hold ────────────────────────────────────────────────────────────────────────────────────────────

    def members(self) -> set[str]:
        group = self.context.coordinator.groups.get(GROUP)
        return set(group.members) if isinstance(group, ClassicGroup | ConsumerGroup) else set()

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        seen: dict[int, str] = {}
        members = self.members()
        for client in self.clients.values():
            if client.member_id in members:
                for number in client.owned:
                    assert number not in seen, (number, seen[number], client.name)
                    seen[number] = client.name

    @invariant()
    def a_restart_would_change_nothing(self) -> None:
        group = self.context.coordinator.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            again = ConsumerContext(topics=self.context.topics, log=self.context.log)
            again.restart()
            assert again.consumers.members == group.members
            assert again.consumers.logged.target == group.logged.target

    def teardown(self) -> None:
        for _ in range(60):
            for name in list(self.clients):
                self.step(name)
            self.context.sleep(1_000)
        owned = sorted(number for client in self.clients.values() for number in client.owned)
        assert owned == ([0, 1, 2, 3, 4, 5] if self.clients else [])
        kind = self.context.coordinator.groups.get(GROUP)
        if self.clients:
            is_classic = all(client.is_classic for client in self.clients.values())
            assert isinstance(kind, ClassicGroup if is_classic else ConsumerGroup)


TestMixedGroupMachine = MixedGroupMachine.TestCase
TestMixedGroupMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
