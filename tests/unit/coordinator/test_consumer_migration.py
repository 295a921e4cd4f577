"""Groups change from the classic to the consumer protocol and back while their members work."""

from __future__ import annotations

from typing import Any

import pytest

from ottla import errors
from ottla.assignors import Assignment, Subscription
from ottla.assignors.embedded import decode_assignment, encode_assignment, encode_subscription
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import Member, MemberState, to_partitions
from ottla.coordinator.consumer.migration import classic_record
from ottla.coordinator.consumer.topics import metadata_hash
from unit.coordinator.consumer_context import (
    ConsumerContext,
    current_record,
    epoch_record,
    having,
    member_record,
    session_timer,
    target_epoch_record,
    target_record,
    tombstones,
    topics,
)
from unit.coordinator.group_context import GROUP, REBALANCE, SESSION, Call


def subscription(*topics: str, **owned: list[int]) -> bytes:
    return encode_subscription(Subscription(topics or ("orders",), owned_partitions=owned))


def protocols(*names: str, metadata: bytes | None = None) -> tuple[m.MemberProtocol, ...]:
    return tuple(m.MemberProtocol(name, metadata or subscription()) for name in names or ("range",))


def classic_metadata(metadata: bytes | None = None) -> r.ClassicMemberMetadata:
    return r.ClassicMemberMetadata(SESSION, (r.ClassicProtocol("range", metadata or subscription()),))


def classic_group(*clients: str, config: GroupConfig | None = None) -> tuple[ConsumerContext, list[str]]:
    """A stable classic group in which each member has its share of orders."""
    context = ConsumerContext(config or GroupConfig())
    calls = [context.enter(client, protocols=protocols()) for client in clients]
    context.wait_for_generation()
    members = [member_id for member_id, _ in calls]
    share = 6 // len(members)
    given = tuple(
        m.MemberAssignment(member_id, encode_assignment(Assignment({"orders": range(n * share, (n + 1) * share)})))
        for n, member_id in enumerate(members)
    )
    for member_id in members:
        context.sync(member_id, assignments=given if member_id == context.group.leader else ())
    assert context.state == "Stable"
    return context, members


def rejoin(context: ConsumerContext, member_id: str, generation: int, **owned: list[int]) -> tuple[int, Any]:
    """Join and sync as a consumer that still has partitions; return its generation and its assignment."""
    joined = context.join(member_id, protocols=protocols(metadata=subscription(**owned)))
    assert joined.error_code == 0
    synced = context.sync(member_id, joined.response.generation_id)
    assert synced.error_code == 0
    return joined.response.generation_id, decode_assignment(synced.response.assignment).partitions


# ── up ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_member_of_the_consumer_protocol_makes_a_consumer_group_of_a_classic_one() -> None:
    context, [one] = classic_group("one")
    generation = context.group.generation
    call = context.enroll("new")
    assert (call.response.member_epoch, call.response.assignment) == (generation + 1, ())
    hash_now = metadata_hash(["orders"], context.topics)
    everything = having(orders=range(6))
    fields = {"client_id": "one", "classic_member_metadata": classic_metadata()}
    assert call.records == [
        r.CoordinatorRecord(r.GroupMetadataKey(GROUP), None),
        member_record(one, **fields),
        epoch_record(generation, hash_now),
        target_record(one, orders=range(6)),
        target_epoch_record(generation),
        current_record(one, generation, generation, assigned=everything),
        member_record("new"),
        epoch_record(generation + 1, hash_now),
        target_record(one, orders=[0, 1, 2]),
        target_record("new", orders=[3, 4, 5]),
        target_epoch_record(generation + 1),
        current_record("new", generation + 1, 0, state=MemberState.UNRELEASED_PARTITIONS),
    ]
    assert call.timers[("heartbeat", GROUP, one)] is None
    assert call.timers[session_timer(one)] == context.now + SESSION
    assert isinstance(context.coordinator.groups[GROUP], ConsumerGroup)


def test_the_classic_members_go_on_and_hand_over_what_they_must() -> None:
    context, [one] = classic_group("one")
    generation = context.group.generation
    context.enroll("new")
    assert context.heartbeat(one, generation).error_code == errors.RebalanceInProgress.code
    # It has everything still: it is told to give up half, and to come again.
    assert rejoin(context, one, generation, orders=[0, 1, 2, 3, 4, 5]) == (generation, {"orders": [0, 1, 2]})
    assert context.heartbeat(one, generation).error_code == errors.RebalanceInProgress.code
    assert rejoin(context, one, generation, orders=[0, 1, 2]) == (generation + 1, {"orders": [0, 1, 2]})
    assert context.heartbeat(one, generation + 1).error_code == 0
    assert context.beat("new", generation + 1).response.assignment == having(orders=[3, 4, 5])
    assert context.described().group_state == "Stable"
    assert [member.member_type for member in context.described().members] == [0, 1]


def test_parked_joins_are_told_to_join_again() -> None:
    context, _ = classic_group("one")
    _, waiting = context.enter("two", protocols=protocols())
    assert waiting.is_parked
    context.enroll("new")
    assert waiting.error_code == errors.RebalanceInProgress.code


def test_a_member_that_is_rejected_leaves_the_classic_group_and_its_parked_requests_as_they_were() -> None:
    context, [one] = classic_group("one")
    two, waiting = context.enter("two", protocols=protocols())
    refused = context.enroll("new", subscribed_topic_names=None, subscribed_topic_regex="(")
    assert (refused.error_code, refused.outcome.records) == (errors.InvalidRegularExpression.code, ())
    assert waiting.is_parked
    context.join(one, protocols=protocols())
    assert (waiting.error_code, waiting.response.member_id) == (0, two)


def test_a_migration_that_was_not_written_leaves_the_classic_group_as_it_was() -> None:
    context, [one] = classic_group("one")
    with context.losing():
        context.enroll("new")
    assert isinstance(context.coordinator.groups[GROUP], ClassicGroup)
    assert context.heartbeat(one).error_code == 0
    assert context.enroll("new").error_code == 0


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets() -> None:
    context = ConsumerContext()
    context.commit()
    call = context.enroll("new")
    assert call.records[:2] == [r.CoordinatorRecord(r.GroupMetadataKey(GROUP), None), member_record("new")]
    assert context.committed().offset == 100
    context.restart()
    assert context.described().group_epoch == 1
    assert context.committed().offset == 100


@pytest.mark.parametrize("policy", ["disabled", "downgrade", "DISABLED"])
def test_a_classic_group_stays_one_if_the_policy_says_so(policy: str) -> None:
    context, _ = classic_group("one", config=GroupConfig(group_consumer_migration_policy=policy))
    call = context.enroll("new")
    assert (call.error_code, call.outcome.records) == (errors.GroupIdNotFound.code, ())
    assert call.response.error_message == (
        "Cannot upgrade classic group billing to consumer group because online upgrade is disabled."
    )


def test_a_group_that_is_too_large_for_a_consumer_group_stays_a_classic_one() -> None:
    context, _ = classic_group("one", "two", config=GroupConfig(group_consumer_max_size=1))
    assert "exceeds the consumer group maximum size" in context.enroll("new").response.error_message


@pytest.mark.parametrize(
    ("protocol_type", "protocol", "message"),
    [
        ("connect", m.MemberProtocol("sessioned", b"x"), "does not use the consumer embedded protocol"),
        ("consumer", m.MemberProtocol("range", b"\x00\x01garbage"), "the embedded consumer protocol is malformed"),
    ],
)
def test_a_group_whose_subscriptions_cannot_be_read_stays_a_classic_one(
    protocol_type: str, protocol: m.MemberProtocol, message: str
) -> None:
    context = ConsumerContext()
    context.enter("one", protocol_type=protocol_type, protocols=(protocol,))
    context.wait_for_generation()
    call = context.enroll("new")
    assert call.error_code == errors.GroupIdNotFound.code
    assert message in call.response.error_message


def test_a_group_with_user_data_in_its_assignment_stays_a_classic_one() -> None:
    context = ConsumerContext()
    member_id, _ = context.enter("one", protocols=protocols())
    context.wait_for_generation()
    assignment = encode_assignment(Assignment({"orders": [0]}, b"custom"))
    context.sync(member_id, assignments=(m.MemberAssignment(member_id, assignment),))
    call = context.enroll("new")
    assert call.error_code == errors.GroupIdNotFound.code
    assert "an unsupported custom assignor is in use" in call.response.error_message


# ── classic members in a consumer group ───────────────────────────────────────────────────────────────────────────


def enter(context: ConsumerContext, client: str, **changes: Any) -> tuple[str, Call]:
    return context.enter(client, **{"protocols": protocols(), **changes})


def test_a_classic_member_joins_a_consumer_group_and_is_answered_at_once() -> None:
    context = ConsumerContext()
    context.enroll("new")
    asked = context.join(client_id="one", protocols=protocols())
    assert (asked.error_code, asked.response.member_id) == (errors.MemberIdRequired.code, "id-1")
    call = context.join("id-1", client_id="one", protocols=protocols())
    assert call.response == m.JoinResponse(
        generation_id=2, protocol_type="consumer", protocol_name="range", member_id="id-1"
    )
    assert call.records[0] == member_record("id-1", client_id="one", classic_member_metadata=classic_metadata())
    assert call.timers == {
        session_timer("id-1"): context.now + SESSION,
        ("consumer-sync", GROUP, "id-1"): context.now + REBALANCE,
        ("consumer-join", GROUP, "id-1"): None,
    }
    synced = context.sync("id-1", 2, protocol_type="consumer", protocol_name="range")
    assert (synced.response.protocol_type, synced.response.protocol_name) == ("consumer", "range")
    assert decode_assignment(synced.response.assignment).partitions == {}
    assert synced.timers == {("consumer-sync", GROUP, "id-1"): None}


def test_partitions_that_came_before_an_upgrade_and_nobody_has_are_given_after_it() -> None:
    """The leader of the classic group had not rejoined yet. A static member that changes its protocol moves nothing."""
    context = ConsumerContext()
    context.join(client_id="x", protocols=protocols(), group_instance_id="x")
    context.wait_for_generation()
    [member_id] = context.group.members
    all_six = encode_assignment(Assignment({"orders": range(6)}))
    context.sync(member_id, assignments=(m.MemberAssignment(member_id, all_six),), group_instance_id="x")
    context.grow(orders=8)
    context.enroll("x-2", instance_id="x")
    context.settle_consumers()
    assert context.assigned() == {"x-2": {"orders": list(range(8))}}


def test_it_is_told_to_join_again_when_its_partitions_are_free() -> None:
    context = ConsumerContext()
    context.enroll("new")
    one, _ = enter(context, "one")
    context.sync(one, 2)
    assert context.heartbeat(one, 2).error_code == 0  # The other has them still.
    context.beat("new", 1)
    context.beat("new", 1, topic_partitions=having(orders=[0, 2, 4]))
    context.settle_consumers()
    told = context.heartbeat(one, 2)
    assert told.error_code == errors.RebalanceInProgress.code
    assert told.timers == {("consumer-join", GROUP, one): context.now + REBALANCE}
    assert context.heartbeat(one, 2).timers == {}  # Its time to join again runs from the first time.
    generation, assigned = rejoin(context, one, 2)
    assert (generation, len(assigned["orders"])) == (2, 3)


def test_it_is_removed_if_it_does_not_join_again_in_time() -> None:
    context, [one] = classic_group("one")
    generation = context.group.generation
    context.enroll("new")
    told_at = context.now
    context.heartbeat(one, generation)
    while context.now < told_at + REBALANCE - 10_000:
        context.now += 10_000
        context.beat("new", generation + 1)
        context.heartbeat(one, generation)
    [expired] = [each for each in context.sleep(10_000) if each.records]
    assert (expired.at, expired.key) == (told_at + REBALANCE, ("consumer-join", GROUP, one))
    assert expired.records[:3] == tombstones(one)


def test_it_is_removed_if_it_does_not_sync_in_time() -> None:
    context = ConsumerContext(GroupConfig(group_consumer_session_timeout_ms=60_000))
    context.enroll("new")
    one, _ = enter(context, "one", rebalance_timeout=20_000)
    [expired] = context.sleep(20_000)
    assert (expired.key, expired.records[:3]) == (("consumer-sync", GROUP, one), tombstones(one))


def test_it_is_removed_when_its_own_session_timeout_is_over() -> None:
    context = ConsumerContext()
    context.enroll("new")
    one, _ = enter(context, "one", session_timeout=10_000)
    context.sync(one, 2)
    [expired] = context.sleep(10_000)
    assert (expired.key, expired.records[:3]) == (session_timer(one), tombstones(one))


def test_its_requests_are_checked() -> None:
    context = ConsumerContext()
    context.enroll("new")
    one, _ = enter(context, "one")
    illegal, unknown = errors.IllegalGeneration.code, errors.UnknownMemberId.code
    inconsistent, fenced = errors.InconsistentGroupProtocol.code, errors.FencedInstanceId.code
    assert context.heartbeat(one, 1).error_code == illegal
    assert context.heartbeat("nobody", 2).error_code == unknown
    assert context.sync(one, 1).error_code == illegal
    assert context.sync("new", 1).error_code == unknown
    assert context.sync(one, 2, protocol_name="sticky").error_code == inconsistent
    assert context.sync(one, 2, protocol_type="connect").error_code == inconsistent
    assert context.heartbeat(one, 2, group_instance_id="x").error_code == unknown
    static = context.join(group_instance_id="x", client_id="x", protocols=protocols()).response
    assert context.heartbeat(one, static.generation_id, group_instance_id="x").error_code == fenced
    with pytest.raises(errors.IllegalGeneration):
        context.commit(member_id=one, generation_id=1)
    assert context.commit(member_id=one, generation_id=2, api_version=5).response.error_codes == (0,)


def test_it_needs_an_assignor_that_the_other_classic_members_have() -> None:
    context = ConsumerContext()
    context.enroll("new")
    enter(context, "one", protocols=protocols("range", "sticky"))
    inconsistent = errors.InconsistentGroupProtocol.code
    assert context.join(client_id="two", protocols=protocols("roundrobin")).error_code == inconsistent
    assert context.join(client_id="two", protocol_type="connect").error_code == inconsistent
    assert context.join(client_id="two", protocols=protocols("sticky")).error_code == errors.MemberIdRequired.code


def test_a_subscription_that_cannot_be_read_is_rejected() -> None:
    context = ConsumerContext()
    context.enroll("new")
    call = context.join("one", protocols=(m.MemberProtocol("range", b"\0"),))
    assert (call.error_code, call.outcome.records) == (errors.UnknownServerError.code, ())


def test_a_full_group_takes_no_classic_member_either() -> None:
    context = ConsumerContext(GroupConfig(group_consumer_max_size=1))
    context.enroll("new")
    assert context.join(client_id="one", protocols=protocols()).error_code == errors.GroupMaxSizeReached.code


# ── down ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def mixed_group() -> tuple[ConsumerContext, str]:
    """A stable consumer group of a classic member, which has 0 to 2, and the member ``new``, which has the rest."""
    context, [one] = classic_group("one")
    generation = context.group.generation
    context.enroll("new")
    rejoin(context, one, generation, orders=[0, 1, 2, 3, 4, 5])
    rejoin(context, one, generation, orders=[0, 1, 2])
    context.settle_consumers()
    return context, one


def test_the_group_is_a_classic_one_again_when_the_last_consumer_member_leaves() -> None:
    context, one = mixed_group()
    epoch = context.consumers.group_epoch
    call = context.beat("new", -1)
    assert call.error_code == 0
    value = call.records[-1].value
    assert isinstance(value, r.GroupMetadataValue)
    assert (value.protocol_type, value.protocol, value.generation) == ("consumer", "range", epoch)
    assert value.leader is None  # Whoever loads it lets the group rebalance.
    [member] = value.members
    assert (member.member_id, member.session_timeout, member.rebalance_timeout) == (one, SESSION, REBALANCE)
    assert decode_assignment(member.assignment).partitions == {"orders": [0, 1, 2]}
    assert call.records[:-1] == [
        r.CoordinatorRecord(r.ConsumerGroupCurrentMemberAssignmentKey(GROUP, one), None),
        r.CoordinatorRecord(r.ConsumerGroupCurrentMemberAssignmentKey(GROUP, "new"), None),
        r.CoordinatorRecord(r.ConsumerGroupTargetAssignmentMemberKey(GROUP, one), None),
        r.CoordinatorRecord(r.ConsumerGroupTargetAssignmentMemberKey(GROUP, "new"), None),
        r.CoordinatorRecord(r.ConsumerGroupTargetAssignmentMetadataKey(GROUP), None),
        r.CoordinatorRecord(r.ConsumerGroupMemberMetadataKey(GROUP, one), None),
        r.CoordinatorRecord(r.ConsumerGroupMemberMetadataKey(GROUP, "new"), None),
        r.CoordinatorRecord(r.ConsumerGroupPartitionMetadataKey(GROUP), None),
        r.CoordinatorRecord(r.ConsumerGroupMetadataKey(GROUP), None),
    ]
    assert isinstance(context.coordinator.groups[GROUP], ClassicGroup)


def test_the_classic_group_rebalances_so_that_nothing_is_left_over() -> None:
    context, one = mixed_group()
    epoch = context.consumers.group_epoch
    context.beat("new", -1)
    context.sleep(0)
    assert context.state == "PreparingRebalance"
    assert context.heartbeat(one, epoch).error_code == errors.RebalanceInProgress.code
    call = context.join(one, protocols=protocols())
    assert (call.response.generation_id, call.response.leader) == (epoch + 1, one)
    (trigger,) = context.under_way().triggers
    assert (trigger.kind, trigger.who and trigger.who.member_id) == ("member left", "new")


def test_a_downgrade_that_was_not_written_leaves_the_consumer_group_as_it_was() -> None:
    context, _ = mixed_group()
    with context.losing():
        context.beat("new", -1)
    assert context.described().group_state == "Stable"
    assert context.beat("new", context.consumers.group_epoch).error_code == 0


def test_a_restart_between_the_downgrade_and_its_rebalance_loses_nobody_and_no_partition() -> None:
    context, one = mixed_group()
    epoch = context.consumers.group_epoch
    context.beat("new", -1)
    context.restart()
    assert context.state == "PreparingRebalance"
    assert context.heartbeat(one, epoch).error_code == errors.RebalanceInProgress.code
    call = context.join(one, protocols=protocols())
    assert (call.response.generation_id, call.response.leader) == (epoch + 1, one)


def test_a_restart_between_the_downgrade_and_its_rebalance_does_not_lose_why() -> None:
    context, one = mixed_group()
    context.beat("new", -1)
    context.restart()
    context.join(one, protocols=protocols())
    context.sleep(1_000)
    kinds = [(trigger.kind, trigger.who and trigger.who.member_id) for trigger in context.under_way().triggers]
    assert kinds == [("member left", "new"), ("group protocol changed", None)]


def test_the_reason_of_a_rebalance_goes_with_the_group_to_the_consumer_protocol() -> None:
    context, _ = classic_group("one")
    two, _ = context.enter("two", protocols=protocols())
    context.enroll("new")
    kinds = [(trigger.kind, trigger.who and trigger.who.member_id) for trigger in context.under_way().triggers]
    assert kinds == [("member joined", two), ("member joined", "new")]


def test_a_member_that_changes_its_protocol_is_no_longer_asked_to_join_again() -> None:
    context, [one] = classic_group("one")
    generation = context.group.generation
    context.enroll("new")
    context.heartbeat(one, generation)
    timers = context.enroll(one, client_id="one").timers
    assert timers[("consumer-join", GROUP, one)] is None
    assert timers[session_timer(one)] == context.now + SESSION
    assert context.consumers.logged.subscriptions.classic_members == 0


def test_a_group_that_could_not_be_downgraded_is_deleted_as_any_other() -> None:
    context, one = mixed_group()
    with context.losing():
        context.beat("new", -1)
    context.leave(one)
    context.beat("new", -1)
    context.run(context.coordinator.delete_groups, [GROUP])
    assert context.coordinator.groups == {}


def test_the_end_of_a_session_downgrades_too() -> None:
    context, one = mixed_group()
    for _ in range(9):
        context.sleep(5_000)
        context.heartbeat(one, 2)
    assert isinstance(context.coordinator.groups[GROUP], ClassicGroup)
    assert list(context.group.members) == [one]


@pytest.mark.parametrize("config", [{"group_consumer_migration_policy": "upgrade"}, {"group_max_size": 0}])
def test_the_group_stays_a_consumer_group_if_it_may_not_be_a_classic_one(config: dict[str, Any]) -> None:
    context = ConsumerContext(GroupConfig(**config))
    context.enroll("new")
    one, _ = enter(context, "one")
    context.beat("new", -1)
    assert list(context.consumers.members) == [one]
    assert rejoin(context, one, 2)[1] == {"orders": [0, 1, 2, 3, 4, 5]}


def test_a_static_member_that_returns_with_the_classic_protocol_downgrades_and_somebody_comes_to_lead() -> None:
    context = ConsumerContext()
    context.enroll("x-1", instance_id="x")
    one, _ = enter(context, "one")
    context.settle_consumers()
    rejoin(context, one, 2)
    assert context.described().group_state == "Stable"
    epoch = context.consumers.group_epoch
    call = context.join(group_instance_id="x", client_id="x", protocols=protocols())
    assert (call.error_code, call.response.generation_id) == (0, epoch)
    context.sleep(0)
    assert context.state == "PreparingRebalance"
    synced = context.sync(call.response.member_id, epoch, group_instance_id="x")
    assert synced.error_code == errors.RebalanceInProgress.code
    context.join(call.response.member_id, group_instance_id="x", client_id="x", protocols=protocols())
    context.join(one, protocols=protocols())
    assert context.group.leader in (one, call.response.member_id)


def test_if_others_are_on_their_way_the_classic_group_rebalances() -> None:
    context = ConsumerContext()
    context.enroll("x-1", instance_id="x")
    enter(context, "one")
    context.join(group_instance_id="x", client_id="x", protocols=protocols())
    context.sleep(0)
    assert context.state == "PreparingRebalance"


def test_with_another_subscription_it_makes_the_classic_group_rebalance() -> None:
    context = ConsumerContext()
    context.enroll("x-1", instance_id="x")
    enter(context, "one")
    context.join(group_instance_id="x", client_id="x", protocols=protocols(metadata=subscription("users")))
    context.sleep(0)
    assert context.state == "PreparingRebalance"


def test_a_static_member_changes_to_the_consumer_protocol_and_keeps_its_partitions() -> None:
    context = ConsumerContext()
    context.enroll("new")
    call = context.join(group_instance_id="x", client_id="x", protocols=protocols())
    old = call.response.member_id
    context.sync(old, 2, group_instance_id="x")
    call = context.enroll("x-2", instance_id="x")
    assert call.error_code == 0
    assert call.records[:3] == tombstones(old)
    assert (context.consumers.logged.subscriptions.classic_members, context.consumers.group_epoch) == (0, 2)


def test_an_empty_consumer_group_becomes_a_classic_one() -> None:
    context = ConsumerContext()
    context.enroll("new")
    context.commit(member_id="new", generation_id=1)
    context.beat("new", -1)
    enter(context, "one")
    assert isinstance(context.coordinator.groups[GROUP], ClassicGroup)
    context.restart()
    assert isinstance(context.coordinator.groups[GROUP], ClassicGroup)
    assert context.committed().offset == 100


def test_a_group_goes_up_and_down_and_up_again() -> None:
    context, one = mixed_group()
    context.beat("new", -1)
    context.sleep(0)
    epoch = context.group.generation
    context.join(one, protocols=protocols())
    call = context.enroll("again")
    assert call.response.member_epoch == epoch + 2
    assert set(context.consumers.members) == {one, "again"}
    context.restart()
    assert set(context.consumers.members) == {one, "again"}


def test_the_protocol_of_a_downgraded_group_is_what_most_prefer_of_what_all_support() -> None:
    def member(member_id: str, *names: str) -> Member:
        supported = tuple(r.ClassicProtocol(name, subscription()) for name in names)
        return Member(
            member_id,
            assigned=to_partitions(having(orders=[1, 0])),
            classic=r.ClassicMemberMetadata(SESSION, supported),
        )

    members = [member("a", "mine", "range"), member("b", "sticky", "range"), member("c", "range", "sticky")]
    for joined, protocol in ((members, "range"), (members[1:], "sticky")):
        record = classic_record(joined, 7, topics(orders=2), now=5_000)
        assert (record.protocol_type, record.generation, record.protocol, record.leader) == (
            "consumer",
            7,
            protocol,
            None,
        )
        assert record.current_state_timestamp == 5_000
        assert [each.member_id for each in record.members] == [each.member_id for each in joined]
        assert {each.session_timeout for each in record.members} == {SESSION}
        assert decode_assignment(record.members[0].assignment).partitions == {"orders": [0, 1]}
