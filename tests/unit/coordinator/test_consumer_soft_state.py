"""Only replay changes the logged state of a consumer group, and lost records leave no trace in its soft state."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla import errors
from ottla.assignors import Assignment, Assignor, Subscription, UniformAssignor
from ottla.coordinator import history
from ottla.coordinator import records as r
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.messages import ConsumerHeartbeatRequest
from ottla.coordinator.serde import decode
from unit.coordinator.consumer_context import REBALANCE, SESSION, ConsumerContext, group_of, having
from unit.coordinator.group_context import GROUP, AppendFailed, protocols

MEMBERS = ["a", "b", "c", "d"]
NAMES = [("orders",), ("users",), ("orders", "users")]


def logged_state(context: ConsumerContext) -> object:
    group = context.coordinator.groups.get(GROUP)
    if not isinstance(group, ConsumerGroup):
        return None
    logged = group.logged
    return deepcopy(
        (
            {name: value for name, value in vars(logged).items() if name not in ("loads", "subscriptions")},
            vars(logged.subscriptions),
            list(logged.loads.fewest()),
        )
    )


def written(context: ConsumerContext) -> list[object]:
    """The log, without the time at which partitions were last given up, which a resumed rebalance forgets."""
    records = [decode(key, value) for key, value in context.log]
    return [
        (key, replace(value, revoked_at=-1) if isinstance(value, r.HistoryValue) else value) for key, value in records
    ]


class Clients:
    """Sends the requests of members to contexts that must agree."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[int, Any]] = {}
        """The epoch and the partitions of each member, from the last response."""

    def send(self, event: tuple[str, str, tuple[str, ...]], context: ConsumerContext) -> Any:
        member_id, what, names = event
        epoch, owned = self.known.get(member_id, (0, ()))
        if what == "static":
            instance = {"instance_id": f"instance-{member_id}"}
            return context.enroll(f"static-{member_id}", *names, **instance)
        if epoch == 0 or what == "join":
            return context.enroll(member_id, *names)
        if what == "leave":
            return context.beat(member_id, -1)
        if what == "classic":
            return context.join(member_id, protocols=protocols("range"), rebalance_timeout=REBALANCE)
        changes = {"subscribed_topic_names": names} if what == "subscribe" else {}
        return context.beat(member_id, epoch, topic_partitions=owned, **changes)

    def receive(self, member_id: str, response: Any) -> None:
        epoch = getattr(response, "member_epoch", 0)
        if response is None or response.error_code or epoch <= 0:
            self.known.pop(member_id, None)
        else:
            owned = self.known.get(member_id, (0, ()))[1] if response.assignment is None else response.assignment
            self.known[member_id] = (epoch, owned)


EVENTS = st.tuples(
    st.sampled_from(MEMBERS),
    st.sampled_from(["beat", "beat", "beat", "join", "leave", "subscribe", "static"]),
    st.sampled_from(NAMES),
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), EVENTS | st.just("grow")), max_size=40))
def test_a_request_whose_records_are_lost_leaves_no_trace(events: list[tuple[bool, Any]]) -> None:
    lossy, plain = ConsumerContext(), ConsumerContext()
    clients = Clients()
    for is_lost, event in events:
        if event == "grow":
            for context in (lossy, plain):
                context.grow(orders=context.topics["orders"].partitions + 1)
        else:
            before, call = logged_state(lossy), None
            lossy.append_fails = is_lost
            with suppress(AppendFailed):
                call = clients.send(event, lossy)
            lossy.append_fails = False
            if call is None:
                assert logged_state(lossy) == before
                continue
            # Also if the log fails: nothing is lost if there is nothing to write.
            expected = clients.send(event, plain).response
            assert call.response == expected
            clients.receive(event[0], expected)
            assert written(lossy) == written(plain)
    assert logged_state(lossy) == logged_state(plain)


CLASSIC_JOINS = st.tuples(st.sampled_from(MEMBERS), st.just("classic"), st.just(()))


@settings(deadline=None)
@given(st.lists(EVENTS | CLASSIC_JOINS, max_size=25))
def test_only_replay_changes_logged_state(events: list[tuple[str, str, tuple[str, ...]]]) -> None:
    context, clients = ConsumerContext(), Clients()
    run = context.run

    def checked(operation: Any, *args: Any, **kwargs: Any) -> Any:
        def unchanged(*inner: Any, **named: Any) -> Any:
            before = logged_state(context)
            outcome = operation(*inner, **named)
            assert logged_state(context) == before
            return outcome

        return run(unchanged, *args, **kwargs)

    context.run = checked  # type: ignore[method-assign]
    for event in events:
        clients.receive(event[0], clients.send(event, context).response)


class Failing(Assignor):
    """Assigns like ``uniform`` until it is told to fail."""

    name = "failing"

    def __init__(self) -> None:
        self.fails = False

    def assign(
        self, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        if self.fails:
            raise RuntimeError("no")
        return UniformAssignor().assign(partitions_per_topic, subscriptions)


def test_a_heartbeat_that_is_rejected_notes_nothing_in_the_history() -> None:
    assignor = Failing()
    context = ConsumerContext(assignors=[assignor])
    context.enroll("a")
    context.grow(orders=7)
    assignor.fails = True
    for _ in range(3):
        assert context.beat("a", 1).error_code == errors.UnknownServerError.code
    assignor.fails = False
    context.now += 10
    (value,) = context.beat("a", 1, topic_partitions=having(orders=range(6))).history
    assert value is not None
    assert [(trigger.kind, trigger.at) for trigger in value.triggers] == [(history.PARTITIONS_ADDED, context.now)]
    assert value.triggers[0].reason == "orders has 7 partitions instead of 6"


def test_a_static_member_that_is_rejected_keeps_its_session() -> None:
    context = ConsumerContext()
    context.enroll("a", instance_id="i")
    context.beat("a", -2, instance_id="i")
    again = context.beat(
        "b", 0, instance_id="i", rebalance_timeout=REBALANCE, subscribed_topic_regex="(", topic_partitions=()
    )
    assert again.error_code == errors.InvalidRegularExpression.code
    assert "a" in context.consumers.timers.sessions.by_member


def test_the_resolution_of_expressions_is_asked_for_again_if_its_timer_was_lost() -> None:
    context = group_of("a")
    with context.losing():
        context.beat("a", 1, subscribed_topic_names=(), subscribed_topic_regex="users")
    call = context.beat("a", 1, subscribed_topic_names=(), subscribed_topic_regex="users")
    assert call.timers[("consumer-regex", GROUP)] == context.now


def test_a_group_whose_first_records_were_lost_is_forgotten() -> None:
    context = ConsumerContext()
    with context.losing():
        context.enroll("a")
    assert GROUP not in context.coordinator.groups
    context.enroll("b")
    assert list(context.consumers.members) == ["b"]
    assert list(context.consumers.timers.sessions.by_member) == ["b"]


def test_the_topics_are_checked_again_if_the_result_of_the_check_was_lost() -> None:
    context = group_of("a")
    context.grow(orders=7)
    with context.losing():
        context.beat("a", 1)
    (value,) = context.beat("a", 1).history
    assert value is not None
    assert [trigger.reason for trigger in value.triggers] == ["orders has 7 partitions instead of 6"]
    assert context.consumers.group_epoch == 2


def test_a_member_whose_leave_was_lost_is_gone_after_its_session() -> None:
    context = group_of("a")
    with context.losing():
        context.beat("a", -1)
    assert context.described().group_state == "Stable"
    context.sleep(SESSION)
    assert context.described().group_state == "Empty"


def test_a_leave_that_was_lost_does_not_take_a_check_of_the_topics_back() -> None:
    context = group_of("a")
    with context.losing():
        context.beat("a", -1)
    context.grow(orders=7)
    (value,) = context.beat("a", 1).history
    assert value is not None
    assert [trigger.reason for trigger in value.triggers] == ["orders has 7 partitions instead of 6"]


def test_a_member_whose_step_was_lost_no_longer_counts_as_following() -> None:
    context = group_of("a", "b", "c", "d", "e", "f")
    group, epoch = context.consumers, context.consumers.group_epoch
    context.beat("f", -1)
    context.beat("a", epoch)
    request = ConsumerHeartbeatRequest(GROUP, "b", epoch, client_id="client", client_host="/127.0.0.1")
    lost = context.coordinator.follow(request, now=context.now)
    assert lost.records
    assert group.following == {"b"}
    context.coordinator.append_failed(lost, now=context.now)
    assert group.following == set()
    assert context.coordinator.follow(request, now=context.now) == lost


def test_the_member_that_asked_for_a_resolution_is_named_also_if_the_first_one_was_lost() -> None:
    context = group_of("a")
    context.beat("a", 1, subscribed_topic_names=(), subscribed_topic_regex="users")
    with context.losing():
        context.sleep(0)
    (value,) = context.run(context.coordinator.fire, ("consumer-regex", GROUP)).history
    assert value is not None
    asked = value.triggers[-1]
    assert (asked.kind, asked.who and asked.who.member_id) == (history.SUBSCRIPTION_CHANGED, "a")
