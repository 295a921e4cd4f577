"""A member of a classic group in virtual time: join, lead, sync, heartbeats, rebalances, losses, leaving."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.consuming.consuming_values import T0, T1, answer, apis

from ottla import errors
from ottla.assignors import Assignment, Assignor, CooperativeStickyAssignor, RangeAssignor
from ottla.assignors.base import Subscription
from ottla.assignors.embedded import decode_assignment, decode_subscription, encode_assignment, encode_subscription
from ottla.consuming.classic import ClassicMember, State
from ottla.consuming.membership import Duty, DutyKind, Identity, MemberSettings, Request, Step, Topics
from ottla.protocol.apis import ApiKey
from ottla.types import TopicPartition

SETTINGS = MemberSettings("g", session_timeout_ms=45_000, heartbeat_interval_ms=3_000, max_poll_interval_ms=300_000)
TWO = {"t": [0, 1]}


class Scene:
    """A member, the clock, and a coordinator with scripted responses."""

    def __init__(self, *assignors: Assignor, settings: MemberSettings = SETTINGS) -> None:
        self.member = ClassicMember(settings, assignors or [RangeAssignor()])
        self.now = 0
        self.member.subscribe(["t"])
        self.member.polled(now=0)

    def send(self) -> tuple[Request, ...]:
        return self.member.poll(now=self.now).requests

    def one(self, api: ApiKey) -> Request:
        (request,) = self.send()
        assert request.api is api
        return request

    def answer(self, request: Request, **fields: Any) -> Any:
        return self.member.answered(request, answer(**fields), now=self.now)

    def reject(self, request: Request, error: type[errors.KafkaError]) -> Any:
        return self.answer(request, error_code=error.code, member_id="given")

    def joined(self, generation: int = 1, leader: str = "other", **fields: Any) -> dict[str, Any]:
        name = self.member._assignors[0].name
        more = {"protocol_name": name, "leader": leader, "skip_assignment": False, "members": [], **fields}
        return {"member_id": "me", "generation_id": generation, **more}

    def stable(self, partitions: dict[str, list[int]] = TWO, generation: int = 1) -> None:
        """Join as a follower and get these partitions."""
        assert self.member.due() is None
        self.answer(self.one(ApiKey.JOIN_GROUP), **self.joined(generation))
        self.sync(partitions)

    def sync(self, partitions: dict[str, list[int]]) -> None:
        self.answer(self.one(ApiKey.SYNC_GROUP), assignment=encode_assignment(Assignment(partitions)))
        while (duty := self.member.due()) is not None and self.member.state is State.COMPLETING:
            self.member.done(duty)

    def lose(self) -> Duty | None:
        duty = self.member.due()
        if duty is not None:
            self.member.done(duty)
        return duty

    def rejection(self) -> errors.KafkaError | None:
        """What the user's poll raises now."""
        return self.member.rejection(now=self.now)

    def wait(self, ms: int) -> None:
        self.now += ms

    def beat(self, error: type[errors.KafkaError] | None = None) -> None:
        self.wait(SETTINGS.heartbeat_interval_ms)
        request = self.one(ApiKey.HEARTBEAT)
        self.answer(request) if error is None else self.reject(request, error)


def test_it_joins_with_its_id_syncs_and_beats() -> None:
    scene = Scene()
    assert scene.send() == (), "a join begins in the user's poll only"
    assert scene.member.due() is None
    join = scene.one(ApiKey.JOIN_GROUP)
    assert (join.message["member_id"], join.message["session_timeout"]) == ("", 45_000)
    assert join.message["rebalance_timeout"] == 300_000
    assert join.timeout_ms == 305_000
    assert decode_subscription(join.message["protocols"][0]["metadata"]).topics == ("t",)
    assert scene.send() == (), "one at a time"
    scene.reject(join, errors.MemberIdRequired)
    join = scene.one(ApiKey.JOIN_GROUP)
    assert join.message["member_id"] == "given"
    scene.answer(join, **scene.joined())
    sync = scene.one(ApiKey.SYNC_GROUP)
    assert (sync.message["generation_id"], sync.message["assignments"]) == (1, [])
    scene.answer(sync, assignment=encode_assignment(Assignment(TWO)))
    assert scene.member.due() == Duty(DutyKind.ASSIGN, (T0, T1))
    assert scene.member.owned == frozenset()
    scene.member.done(Duty(DutyKind.ASSIGN, (T0, T1)))
    assert scene.member.owned == {T0, T1}
    assert scene.member.identity == Identity(1, "me", None)
    assert not scene.member.is_rebalancing
    assert scene.send() == ()
    assert scene.member.poll(now=0).wake_at == 3_000
    scene.beat()
    scene.beat()


def test_the_leader_assigns_when_it_knows_the_topics_of_all() -> None:
    scene = Scene()
    scene.member.due()
    metadata = encode_subscription(Subscription(["t", "u"]))
    members = [SimpleNamespace(member_id=name, group_instance_id=None, metadata=metadata) for name in ("me", "you")]
    scene.answer(scene.one(ApiKey.JOIN_GROUP), **scene.joined(leader="me", members=members))
    assert scene.member.poll(now=0).metadata == {"t", "u"}
    scene.member.learned(Topics({"t": 2}, {}, frozenset({"t"})))
    assert scene.member.state is State.LEADING, "u was not asked for"
    scene.member.learned(Topics({"t": 2, "u": 1}, {}, frozenset({"t", "u"})))
    sync = scene.one(ApiKey.SYNC_GROUP)
    given = {one["member_id"]: decode_assignment(one["assignment"]).partitions for one in sync.message["assignments"]}
    assert given == {"me": {"t": [0], "u": [0]}, "you": {"t": [1]}}
    scene.answer(sync, assignment=encode_assignment(Assignment({"t": [0], "u": [0]})))
    while (duty := scene.member.due()) is not None:
        scene.member.done(duty)
    assert scene.member.reason is None
    scene.member.learned(Topics({"t": 2, "u": 1}, {}, None))
    assert scene.member.reason is None
    scene.member.learned(Topics({"t": 3, "u": 1}, {}, None))
    assert scene.member.reason == "the partitions of a subscribed topic changed"


def test_a_topic_that_changes_during_the_assignment_makes_it_run_again() -> None:
    scene = Scene()
    scene.member.due()
    mine = SimpleNamespace(member_id="me", group_instance_id=None, metadata=encode_subscription(Subscription(["t"])))
    scene.answer(scene.one(ApiKey.JOIN_GROUP), **scene.joined(leader="me", members=[mine]))
    scene.member.learned(Topics({"t": 2}, {}, None))
    sync = scene.one(ApiKey.SYNC_GROUP)
    scene.member.learned(Topics({"t": 4}, {}, None))
    scene.answer(sync, assignment=encode_assignment(Assignment(TWO)))
    scene.member.done(Duty(DutyKind.ASSIGN, (T0, T1)))
    assert scene.member.due() == Duty(DutyKind.REVOKE, (T0, T1)), "and joins again"


def test_an_eager_member_revokes_everything_before_it_joins_again() -> None:
    scene = Scene()
    scene.stable()
    scene.beat(errors.RebalanceInProgress)
    assert scene.send() == ()
    duty = scene.member.due()
    assert duty == Duty(DutyKind.REVOKE, (T0, T1))
    assert scene.member.state is State.STABLE, "commits still count"
    scene.member.done(duty)
    join = scene.one(ApiKey.JOIN_GROUP)
    assert (join.message["member_id"], join.message["reason"]) == ("me", "the group is rebalancing")
    scene.answer(join, **scene.joined(2))
    scene.sync({"t": [1]})
    assert (scene.member.owned, scene.member.generation) == ({T1}, 2)


def test_a_cooperative_member_revokes_what_moves_and_joins_again() -> None:
    scene = Scene(CooperativeStickyAssignor())
    scene.stable()
    scene.beat(errors.RebalanceInProgress)
    duty = scene.member.due()
    assert duty == Duty(DutyKind.REVOKE, ()), "only to commit"
    scene.member.done(duty)
    join = scene.one(ApiKey.JOIN_GROUP)
    told = decode_subscription(join.message["protocols"][0]["metadata"])
    assert (told.owned_partitions, told.generation) == ({"t": [0, 1]}, 1)
    scene.answer(join, **scene.joined(2))
    scene.answer(scene.one(ApiKey.SYNC_GROUP), assignment=encode_assignment(Assignment({"t": [0]})))
    duty = scene.member.due()
    assert duty == Duty(DutyKind.REVOKE, (T1,))
    scene.member.done(duty)
    duty = scene.member.due()
    assert duty == Duty(DutyKind.ASSIGN, ())
    scene.member.done(duty)
    assert scene.member.owned == {T0}
    duty = scene.member.due()
    assert duty == Duty(DutyKind.REVOKE, ())
    scene.member.done(duty)
    assert scene.one(ApiKey.JOIN_GROUP).message["reason"] == "partitions were revoked that go to other members"


@pytest.mark.parametrize("error", [errors.UnknownMemberId, errors.IllegalGeneration])
def test_a_member_that_is_gone_loses_what_it_had_and_joins_again(error: type[errors.KafkaError]) -> None:
    scene = Scene()
    scene.stable()
    scene.beat(error)
    assert not scene.member.is_member
    duty = scene.member.due()
    assert duty == Duty(DutyKind.LOSE, (T0, T1))
    scene.member.done(duty)
    assert scene.member.due() is None
    expected = "" if error is errors.UnknownMemberId else "me"
    assert scene.one(ApiKey.JOIN_GROUP).message["member_id"] == expected


def test_a_commit_may_be_the_first_to_hear_of_it() -> None:
    scene = Scene()
    scene.stable()
    scene.member.commit_rejected(errors.IllegalGeneration(), Identity(0, "me", None))
    assert scene.member.due() is None, "of an earlier generation"
    scene.member.commit_rejected(errors.IllegalGeneration(), scene.member.identity)
    duty = scene.member.due()
    assert duty is not None
    assert duty.kind is DutyKind.LOSE
    other = Scene()
    other.stable()
    other.member.commit_rejected(errors.RebalanceInProgress(), other.member.identity)
    duty = other.member.due()
    assert duty is not None
    assert duty.kind is DutyKind.REVOKE


def test_a_stuck_member_leaves_by_itself_and_comes_back_with_the_next_poll() -> None:
    scene = Scene()
    scene.stable()
    while scene.now < 300_000:
        scene.beat()
    scene.wait(1)
    leave, *_ = scene.send()
    assert leave.api is ApiKey.LEAVE_GROUP
    assert leave.message["members"][0]["member_id"] == "me"
    assert "max.poll.interval.ms (300000)" in leave.message["members"][0]["reason"]
    assert scene.send() == (), "no heartbeats any more"
    scene.wait(60_000)
    scene.member.polled(now=scene.now)
    duty = scene.member.due()
    assert duty == Duty(DutyKind.LOSE, (T0, T1))
    scene.member.done(duty)
    scene.member.due()
    assert scene.one(ApiKey.JOIN_GROUP).message["member_id"] == ""


def test_a_static_member_does_not_leave() -> None:
    static = MemberSettings("g", group_instance_id="one", max_poll_interval_ms=300_000)
    scene = Scene(settings=static)
    scene.stable()
    assert scene.member.identity.group_instance_id == "one"
    assert scene.member.leave("closing") is None
    scene = Scene(settings=static)
    scene.stable()
    scene.wait(300_001)
    assert apis(scene.send()) == []


def test_a_moved_coordinator_is_reported_and_the_request_is_sent_again() -> None:
    scene = Scene()
    scene.stable()
    scene.wait(3_000)
    heartbeat = scene.one(ApiKey.HEARTBEAT)
    assert isinstance(scene.reject(heartbeat, errors.NotCoordinator), errors.NotCoordinator)
    assert scene.send() == ()
    scene.wait(100)
    scene.member.failed(scene.one(ApiKey.HEARTBEAT), errors.NetworkException(), now=scene.now)
    scene.wait(100)
    scene.one(ApiKey.HEARTBEAT)


def test_a_lost_sync_is_found_out_by_joining_again() -> None:
    scene = Scene()
    scene.member.due()
    scene.answer(scene.one(ApiKey.JOIN_GROUP), **scene.joined())
    scene.member.failed(scene.one(ApiKey.SYNC_GROUP), errors.NetworkException(), now=0)
    scene.wait(100)
    assert scene.one(ApiKey.JOIN_GROUP).message["member_id"] == "me"


def test_a_rebalance_during_the_sync_joins_again() -> None:
    scene = Scene()
    scene.member.due()
    scene.answer(scene.one(ApiKey.JOIN_GROUP), **scene.joined())
    scene.reject(scene.one(ApiKey.SYNC_GROUP), errors.RebalanceInProgress)
    scene.answer(scene.one(ApiKey.JOIN_GROUP), **scene.joined(2))
    scene.sync(TWO)
    assert scene.member.generation == 2


REJECTIONS = [
    errors.InconsistentGroupProtocol,
    errors.InvalidSessionTimeout,
    errors.GroupAuthorizationFailed,
    errors.GroupMaxSizeReached,
]


@pytest.mark.parametrize("error", [errors.FencedInstanceId, *REJECTIONS])
def test_nothing_is_sent_until_poll_has_raised_the_error(error: type[errors.KafkaError]) -> None:
    scene = Scene()
    scene.member.due()
    scene.reject(scene.one(ApiKey.JOIN_GROUP), error)
    scene.wait(100_000)
    assert scene.member.poll(now=scene.now) == Step(rejected=True)
    assert scene.member.due() is None
    assert type(scene.rejection()) is error


@pytest.mark.parametrize("error", REJECTIONS)
def test_an_error_is_raised_once_and_then_the_member_tries_again(error: type[errors.KafkaError]) -> None:
    scene = Scene()
    assert scene.member.due() is None
    scene.reject(scene.one(ApiKey.JOIN_GROUP), errors.MemberIdRequired)
    for pause in (100, 200, 400, 800, 1_000, 1_000):
        join = scene.one(ApiKey.JOIN_GROUP)
        assert join.message["member_id"] == "given", "no second member beside the first"
        scene.reject(join, error)
        assert type(scene.rejection()) is error
        assert scene.rejection() is None
        assert scene.member.due() is None
        assert scene.member.poll(now=scene.now) == Step(wake_at=scene.now + pause), "a loop of polls does no harm"
        scene.wait(pause)
    scene.stable()
    scene.beat(error)
    assert scene.lose() == Duty(DutyKind.LOSE, (T0, T1))
    scene.rejection()
    scene.member.due()
    assert scene.member.poll(now=scene.now).wake_at == scene.now + 100, "it worked meanwhile"


def test_leaving_or_another_subscription_drops_the_error() -> None:
    for leaves in (True, False):
        scene = Scene()
        scene.member.due()
        scene.reject(scene.one(ApiKey.JOIN_GROUP), errors.GroupMaxSizeReached)
        if leaves:
            scene.member.leave("unsubscribed")
        scene.member.subscribe(["u"])
        assert scene.rejection() is None
        scene.stable()


def test_a_fenced_instance_stays_fenced() -> None:
    scene = Scene(settings=MemberSettings("g", group_instance_id="one"))
    scene.stable()
    scene.beat(errors.FencedInstanceId)
    assert scene.lose() == Duty(DutyKind.LOSE, (T0, T1))
    for _ in range(3):
        assert isinstance(scene.rejection(), errors.FencedInstanceId)
        scene.wait(100_000)
        assert scene.send() == ()
    scene.member.leave("unsubscribed")
    scene.member.subscribe(["t"])
    assert isinstance(scene.rejection(), errors.FencedInstanceId), "else the two would throw each other out for ever"


def test_answers_of_an_earlier_life_mean_nothing() -> None:
    scene = Scene()
    scene.stable()
    scene.wait(3_000)
    heartbeat = scene.one(ApiKey.HEARTBEAT)
    scene.member.leave("unsubscribed")
    scene.member.subscribe(["t"])
    scene.reject(heartbeat, errors.UnknownMemberId)
    scene.member.failed(heartbeat, errors.FencedInstanceId(), now=scene.now)
    assert scene.rejection() is None
    scene.stable(generation=9)
    assert scene.member.generation == 9


def test_leaving_says_so_and_forgets_everything() -> None:
    scene = Scene()
    scene.stable()
    leave = scene.member.leave("the consumer closed")
    assert leave is not None
    assert leave.message["members"] == [{"member_id": "me", "group_instance_id": None, "reason": "the consumer closed"}]
    assert (scene.member.owned, scene.member.is_member) == (frozenset(), False)
    assert scene.send() == ()
    assert Scene().member.leave("never joined") is None


def test_a_new_subscription_makes_it_join_again() -> None:
    scene = Scene(CooperativeStickyAssignor())
    scene.stable()
    scene.member.subscribe(["u"])
    duty = scene.member.due()
    assert duty == Duty(DutyKind.REVOKE, (T0, T1)), "of topics that it does not want any more"
    scene.member.done(duty)
    join = scene.one(ApiKey.JOIN_GROUP)
    assert decode_subscription(join.message["protocols"][0]["metadata"]).topics == ("u",)


def test_a_member_that_wants_nothing_any_more_tells_the_group() -> None:
    scene = Scene()
    scene.stable()
    scene.member.subscribe([])
    duty = scene.member.due()
    assert duty == Duty(DutyKind.REVOKE, (T0, T1))
    scene.member.done(duty)
    join = scene.one(ApiKey.JOIN_GROUP)
    assert decode_subscription(join.message["protocols"][0]["metadata"]).topics == ()


def lead(scene: Scene) -> None:
    mine = SimpleNamespace(member_id="me", group_instance_id=None, metadata=encode_subscription(Subscription(["t"])))
    scene.answer(scene.one(ApiKey.JOIN_GROUP), **scene.joined(leader="me", members=[mine]))
    scene.member.learned(Topics({"t": 2}, {}, None))


@pytest.mark.parametrize("method", ["subscription_user_data", "assign", "on_assignment"])
def test_an_error_of_an_assignor_reaches_the_user_with_its_traceback(method: str) -> None:
    class Broken(RangeAssignor):
        broken = True

        def fail(self, *given: Any) -> Any:
            if self.broken:
                raise ZeroDivisionError("mine")
            return getattr(super(), method)(*given)

    setattr(Broken, method, Broken.fail)
    scene = Scene(Broken())
    scene.member.due()
    if method == "subscription_user_data":
        assert scene.send() == ()
    else:
        lead(scene)
        if method == "on_assignment":
            scene.answer(scene.one(ApiKey.SYNC_GROUP), assignment=encode_assignment(Assignment(TWO)))
    assert scene.member.poll(now=scene.now) == Step(rejected=True)
    told = scene.rejection()
    assert isinstance(told, errors.InconsistentGroupProtocol)
    assert "the assignor range failed: ZeroDivisionError('mine')" in str(told)
    assert isinstance(told.__cause__, ZeroDivisionError)
    assert told.__cause__.__traceback__ is not None
    Broken.broken = False
    scene.member.due()
    scene.wait(100)
    lead(scene)
    scene.sync(TWO)
    assert scene.member.owned == {T0, T1}


def test_a_leader_whose_assignor_raised_can_still_leave() -> None:
    class Broken(RangeAssignor):
        def assign(self, *_: Any) -> Any:
            raise ZeroDivisionError

    scene = Scene(Broken())
    scene.member.due()
    lead(scene)
    leave = scene.member.leave("the consumer closed")
    assert leave is not None
    assert leave.message["members"][0]["member_id"] == "me"


def test_it_hears_what_it_was_given() -> None:
    class Hears(RangeAssignor):
        heard: Any = None

        def on_assignment(self, assignment: Assignment, generation: int) -> None:
            self.heard = (assignment.partitions, generation)

    assignor = Hears()
    scene = Scene(assignor)
    scene.stable({"t": [1]}, 4)
    assert assignor.heard == ({"t": [1]}, 4)
    assert scene.member.owned == {TopicPartition("t", 1)}


def test_a_static_leader_that_keeps_its_assignment_remembers_what_it_was_for() -> None:
    scene = Scene(settings=MemberSettings("g", group_instance_id="one"))
    scene.member.due()
    mine = SimpleNamespace(member_id="me", group_instance_id="one", metadata=encode_subscription(Subscription(["t"])))
    scene.answer(scene.one(ApiKey.JOIN_GROUP), **scene.joined(leader="me", members=[mine]))
    scene.member.learned(Topics({"t": 2}, {}, None))
    scene.sync(TWO)
    scene.beat(errors.UnknownMemberId)
    scene.member.done(Duty(DutyKind.LOSE, (T0, T1)))
    scene.member.due()
    again = scene.joined(leader="me", members=[mine], skip_assignment=True)
    scene.answer(scene.one(ApiKey.JOIN_GROUP), **again)
    scene.member.learned(Topics({"t": 3}, {}, None))
    assert scene.one(ApiKey.SYNC_GROUP).message["assignments"] == []
    scene.member._in_flight.clear()
    scene.sync(TWO)
    assert scene.member.reason is not None, "the topic grew meanwhile"
