"""A member of the consumer protocol in virtual time: heartbeats with epochs, reconciliation, fencing, leaving."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.consuming.consuming_values import T0, T1, T_ID, U_ID, answer

from ottla import errors
from ottla.consuming.consumer import ConsumerMember, State
from ottla.consuming.membership import Duty, DutyKind, Identity, MemberSettings, Request, Step, Topics

SETTINGS = MemberSettings("g", max_poll_interval_ms=300_000, server_assignor="uniform")
TOPICS = Topics({"t": 2, "u": 1}, {"t": T_ID, "u": U_ID}, None)


class Scene:
    def __init__(self, settings: MemberSettings = SETTINGS, pattern: str | None = None) -> None:
        self.member = ConsumerMember(settings, "me")
        self.now = 0
        self.member.learned(TOPICS)
        self.member.subscribe([] if pattern else ["t"], pattern)
        self.member.polled(now=0)

    def one(self) -> Request:
        (request,) = self.member.poll(now=self.now).requests
        return request

    def silent(self) -> None:
        assert self.member.poll(now=self.now).requests == ()

    def answer(self, request: Request, epoch: int = 1, target: dict[Any, list[int]] | None = None) -> None:
        parts = None
        if target is not None:
            pairs = [SimpleNamespace(topic_id=topic_id, partitions=numbers) for topic_id, numbers in target.items()]
            parts = SimpleNamespace(topic_partitions=pairs)
        fields = {"member_id": "me", "member_epoch": epoch, "heartbeat_interval": 5_000, "assignment": parts}
        assert self.member.answered(request, answer(**fields, error_message=None), now=self.now) is None

    def reject(self, request: Request, error: type[errors.KafkaError]) -> Any:
        return self.member.answered(request, answer(error_code=error.code, error_message="why"), now=self.now)

    def rejection(self) -> errors.KafkaError | None:
        """What the user's poll raises now."""
        return self.member.rejection(now=self.now)

    def do(self) -> Duty:
        duty = self.member.due()
        assert duty is not None
        self.member.done(duty)
        return duty

    def stable(self) -> None:
        self.answer(self.one(), 1, {T_ID: [0, 1]})
        assert self.do() == Duty(DutyKind.ASSIGN, (T0, T1))
        self.answer(self.one(), 1)


def test_it_joins_with_everything_and_then_tells_only_what_changed() -> None:
    scene = Scene()
    join = scene.one()
    assert join.message == {
        "group_id": "g",
        "member_id": "me",
        "instance_id": None,
        "member_epoch": 0,
        "rebalance_timeout": 300_000,
        "subscribed_topic_names": ["t"],
        "server_assignor": "uniform",
        "rack_id": None,
        "topic_partitions": [],
    }
    scene.silent()
    scene.answer(join, 1, {T_ID: [0, 1]})
    assert scene.do() == Duty(DutyKind.ASSIGN, (T0, T1))
    acknowledged = scene.one()
    assert acknowledged.message["member_epoch"] == 1
    assert acknowledged.message["topic_partitions"] == [{"topic_id": T_ID, "partitions": [0, 1]}]
    assert "subscribed_topic_names" not in acknowledged.message
    scene.answer(acknowledged, 1)
    scene.silent()
    assert scene.member.poll(now=0).wake_at == 5_000, "the broker says how often"
    scene.now = 5_000
    heartbeat = scene.one().message
    assert heartbeat["topic_partitions"] is None
    assert "rebalance_timeout" not in heartbeat
    assert scene.member.identity == Identity(1, "me", None)


def test_what_goes_is_revoked_first_and_what_comes_is_assigned_after_it() -> None:
    scene = Scene()
    scene.stable()
    scene.now = 5_000
    scene.answer(scene.one(), 2, {T_ID: [0], U_ID: [0]})
    assert scene.do() == Duty(DutyKind.REVOKE, (T1,))
    assert scene.member.owned == {T0}
    assert scene.do().kind is DutyKind.ASSIGN
    assert scene.member.due() is None
    told = scene.one().message
    assert told["topic_partitions"] == [{"topic_id": T_ID, "partitions": [0]}, {"topic_id": U_ID, "partitions": [0]}]
    assert told["member_epoch"] == 2


def test_the_listener_is_called_for_an_empty_assignment_too() -> None:
    scene = Scene()
    scene.answer(scene.one(), 1, {})
    assert scene.do() == Duty(DutyKind.ASSIGN, ())
    assert not scene.member.is_rebalancing


def test_a_topic_that_is_known_by_its_id_only_waits_for_metadata() -> None:
    scene = Scene()
    scene.member._names.clear()
    scene.answer(scene.one(), 1, {U_ID: [0]})
    assert scene.member.due() is None
    assert scene.member.poll(now=0).metadata == frozenset()
    scene.member.learned(TOPICS)
    assert scene.member.poll(now=0).metadata is None
    assert scene.do().kind is DutyKind.ASSIGN


@pytest.mark.parametrize("error", [errors.FencedMemberEpoch, errors.UnknownMemberId])
def test_a_fenced_member_loses_what_it_had_and_joins_again(error: type[errors.KafkaError]) -> None:
    scene = Scene()
    scene.stable()
    scene.now = 5_000
    scene.reject(scene.one(), error)
    assert not scene.member.is_member
    scene.silent()
    assert scene.do() == Duty(DutyKind.LOSE, (T0, T1))
    join = scene.one().message
    assert (join["member_epoch"], join["subscribed_topic_names"], join["topic_partitions"]) == (0, ["t"], [])


def test_a_commit_may_be_the_first_to_hear_of_it() -> None:
    scene = Scene()
    scene.stable()
    scene.member.commit_rejected(errors.StaleMemberEpoch(), scene.member.identity)
    scene.answer(scene.one(), 7)
    assert scene.member.identity.generation == 7
    scene.member.commit_rejected(errors.FencedMemberEpoch(), Identity(1, "me", None))
    assert scene.member.is_member, "an earlier epoch"
    scene.member.commit_rejected(errors.FencedMemberEpoch(), scene.member.identity)
    assert scene.do().kind is DutyKind.LOSE


def test_after_a_lost_heartbeat_everything_is_sent_again() -> None:
    scene = Scene()
    scene.stable()
    scene.now = 5_000
    scene.member.failed(scene.one(), errors.NetworkException(), now=5_000)
    scene.silent()
    scene.now = 5_100
    message = scene.one().message
    assert message["subscribed_topic_names"] == ["t"]
    assert message["topic_partitions"] == [{"topic_id": T_ID, "partitions": [0, 1]}]
    assert message["member_epoch"] == 1


def test_a_moved_coordinator_is_reported() -> None:
    scene = Scene()
    assert isinstance(scene.reject(scene.one(), errors.NotCoordinator), errors.NotCoordinator)
    scene.now = 100
    scene.one()


def test_a_stuck_member_leaves_by_itself_and_comes_back_with_the_next_poll() -> None:
    scene = Scene()
    scene.stable()
    scene.now = 300_001
    leave = scene.one()
    assert leave.message["member_epoch"] == -1
    scene.answer(leave, -1)
    assert scene.member.state is State.STUCK
    scene.now += 60_000
    scene.silent()
    scene.member.polled(now=scene.now)
    assert scene.do() == Duty(DutyKind.LOSE, (T0, T1))
    assert scene.one().message["member_epoch"] == 0


def test_a_static_member_leaves_for_a_while() -> None:
    scene = Scene(MemberSettings("g", group_instance_id="one"))
    scene.stable()
    leave = scene.member.leave("closing")
    assert leave is not None
    assert (leave.message["member_epoch"], leave.message["instance_id"]) == (-2, "one")
    dynamic = Scene()
    dynamic.stable()
    leave = dynamic.member.leave("closing")
    assert leave is not None
    assert leave.message["member_epoch"] == -1
    dynamic.silent()
    assert ConsumerMember(SETTINGS, "new").leave("never joined") is None


def test_a_pattern_is_left_to_the_broker() -> None:
    scene = Scene(pattern="t.*")
    message = scene.one().message
    assert message["subscribed_topic_regex"] == "t.*"
    assert message["subscribed_topic_names"] == []


def test_a_new_subscription_is_sent_at_once() -> None:
    scene = Scene()
    scene.stable()
    scene.member.subscribe(["t", "u"])
    assert scene.one().message["subscribed_topic_names"] == ["t", "u"]


def test_a_subscription_that_changes_during_a_heartbeat_is_sent_with_the_next() -> None:
    scene = Scene()
    scene.stable()
    scene.now = 5_000
    request = scene.one()
    scene.member.subscribe(["u"])
    scene.answer(request, 1)
    assert scene.one().message["subscribed_topic_names"] == ["u"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.UnreleasedInstanceId, "group.instance.id"),
        (errors.UnsupportedVersion, "group.protocol=classic"),
        (errors.UnsupportedAssignor, "why"),
        (errors.GroupMaxSizeReached, "why"),
    ],
)
def test_an_error_is_raised_once_and_then_the_member_tries_again(error: type[errors.KafkaError], words: str) -> None:
    scene = Scene()
    for pause in (100, 200, 400, 800, 1_000, 1_000):
        scene.reject(scene.one(), error)
        scene.now += 60_000
        assert scene.member.poll(now=scene.now) == Step(rejected=True), "nothing is sent until the user has heard of it"
        told = scene.rejection()
        assert isinstance(told, error)
        assert words in str(told)
        assert scene.rejection() is None
        assert scene.member.poll(now=scene.now) == Step(wake_at=scene.now + pause), "a loop of polls does no harm"
        scene.now += pause
    scene.stable()


def test_leaving_or_another_subscription_drops_the_error() -> None:
    for leaves in (True, False):
        scene = Scene(pattern="((")
        scene.reject(scene.one(), errors.InvalidRegularExpression)
        if leaves:
            scene.member.leave("unsubscribed")
        scene.member.subscribe(["t"])
        scene.member.polled(now=0)
        assert scene.rejection() is None
        scene.stable()


def test_a_fenced_instance_stays_fenced() -> None:
    scene = Scene(MemberSettings("g", group_instance_id="one"))
    scene.reject(scene.one(), errors.FencedInstanceId)
    for _ in range(3):
        assert isinstance(scene.rejection(), errors.FencedInstanceId)
        scene.now += 100_000
        scene.silent()


def test_answers_of_an_earlier_life_mean_nothing() -> None:
    scene = Scene()
    request = scene.one()
    scene.member.leave("unsubscribed")
    scene.member.subscribe(["t"])
    scene.silent()
    scene.member.polled(now=0)
    scene.answer(request, 9, {T_ID: [0]})
    assert scene.member.due() is None
    assert scene.one().message["member_epoch"] == 0
