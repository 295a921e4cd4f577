"""Heartbeats that are written together give the same responses and records as one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator import records as r
from ottla.coordinator.consumer.member import to_topic_partitions
from ottla.coordinator.consumer.messages import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from ottla.coordinator.serde import decode, encode_batch
from ottla.records import decode_batch
from unit.coordinator.consumer_context import REBALANCE, ConsumerContext, current_record, group_of, having
from unit.coordinator.group_context import GROUP

MEMBERS = "abcdefgh"


def heartbeat(member_id: str, epoch: int, **said: Any) -> ConsumerHeartbeatRequest:
    return ConsumerHeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, client_id="client", client_host="/127.0.0.1", **said
    )


def joining(member_id: str) -> ConsumerHeartbeatRequest:
    return heartbeat(member_id, 0, rebalance_timeout=REBALANCE, subscribed_topic_names=("orders",), topic_partitions=())


@dataclass
class GatheringContext(ConsumerContext):
    """A context that gathers what it can, as the broker does."""

    refused: list[Exception] = field(default_factory=list)

    def ask(self, request: ConsumerHeartbeatRequest) -> ConsumerHeartbeatResponse:
        followed = self.driver.gather(self.coordinator.follow, request, self.refused.append)
        if followed is not None:
            assert isinstance(followed, ConsumerHeartbeatResponse)
            return followed
        response: ConsumerHeartbeatResponse = self.run(self.coordinator.consumer_heartbeat, request).response
        return response

    @property
    def gathered(self) -> list[Any]:
        return self.driver.gathered

    def write(self) -> None:
        self.driver.settle()
        assert not self.refused

    def fail(self) -> None:
        self.append_fails = True
        self.driver.settle()
        self.append_fails = False
        self.refused.clear()


@dataclass
class Clients:
    """What members know from the responses."""

    epochs: dict[str, int] = field(default_factory=dict)
    owned: dict[str, tuple[r.TopicPartitions, ...]] = field(default_factory=dict)

    def request(self, member_id: str, event: str) -> ConsumerHeartbeatRequest:
        epoch = self.epochs.get(member_id, 0)
        if event == "join" or epoch == 0:
            return joining(member_id)
        if event == "leave":
            return heartbeat(member_id, -1)
        return heartbeat(member_id, epoch, topic_partitions=self.owned.get(member_id) if event == "say" else None)

    def answered(self, member_id: str, response: ConsumerHeartbeatResponse) -> None:
        self.epochs[member_id] = 0 if response.error_code else max(response.member_epoch, 0)
        if response.assignment is not None:
            self.owned[member_id] = response.assignment


EVENTS = st.tuples(st.sampled_from(MEMBERS), st.sampled_from(["beat", "beat", "beat", "say", "join", "leave"]))


@settings(deadline=None)
@given(st.lists(st.one_of(EVENTS, st.sampled_from(["round", "round", "write", "grow", "time"])), max_size=60))
def test_it_makes_no_difference_whether_heartbeats_are_written_together(events: list[Any]) -> None:
    plain, gathering = ConsumerContext(), GatheringContext()
    clients = Clients()

    def ask(member_id: str, event: str) -> None:
        request = clients.request(member_id, event)
        expected = plain.run(plain.coordinator.consumer_heartbeat, request).response
        assert gathering.ask(request) == expected
        clients.answered(member_id, expected)

    for event in ["round", "round", "round", *events, "round"]:
        match event:
            case "round":
                for member_id in MEMBERS:
                    ask(member_id, "say")
            case "write":
                gathering.write()
            case "time":
                gathering.write()
                assert gathering.sleep(20_000) == plain.sleep(20_000)
            case "grow":
                gathering.write()
                for context in (gathering, plain):
                    context.grow(orders=context.topics["orders"].partitions + 1)
            case (member_id, what):
                ask(member_id, what)
    gathering.write()
    assert gathering.log == plain.log
    assert gathering.described() == plain.described()


def leave(context: ConsumerContext, member_id: str) -> None:
    """A member leaves, and a heartbeat of another computes the target without it."""
    context.beat(member_id, -1)
    other = next(iter(context.consumers.members.values()))
    context.beat(other.member_id, other.member_epoch)


def keeping(context: ConsumerContext) -> list[str]:
    """The members that have what the target gives them, in an earlier epoch."""
    group = context.consumers.logged
    on_their_way = [each for each in group.members.values() if each.member_epoch < group.assignment_epoch]
    return [each.member_id for each in on_their_way if group.target[each.member_id] == each.assigned]


def settled_group() -> GatheringContext:
    context = GatheringContext()
    context.grow(orders=16)
    for member_id in MEMBERS:
        context.enroll(member_id)
    context.settle_consumers()
    return context


def test_a_member_that_keeps_what_it_has_follows_to_the_epoch_of_the_target() -> None:
    context = settled_group()
    epoch = context.consumers.group_epoch
    assert context.coordinator.follow(heartbeat("d", epoch), now=context.now).records == ()
    leave(context, "a")
    first = keeping(context)[0]
    followed = context.coordinator.follow(heartbeat(first, epoch), now=context.now)
    assert followed.response is not None
    assert (followed.response.member_epoch, followed.response.assignment) == (epoch + 1, None)
    has = to_topic_partitions(context.consumers.members[first].assigned)
    assert followed.records == (current_record(first, epoch + 1, epoch, assigned=has),)


def test_a_step_that_is_not_written_yet_is_not_decided_again() -> None:
    context = settled_group()
    epoch = context.consumers.group_epoch
    leave(context, "a")
    first = keeping(context)[0]
    assert context.ask(heartbeat(first, epoch)).member_epoch == epoch + 1
    assert context.coordinator.follow(heartbeat(first, epoch), now=context.now).response is None
    context.write()
    again = context.coordinator.follow(heartbeat(first, epoch + 1), now=context.now)
    assert again.records == ()
    assert again.response is not None


def test_a_step_that_could_not_be_written_is_taken_again() -> None:
    context = settled_group()
    epoch = context.consumers.group_epoch
    leave(context, "a")
    first = keeping(context)[0]
    context.ask(heartbeat(first, epoch))
    context.fail()
    assert context.consumers.members[first].member_epoch == epoch
    assert context.ask(heartbeat(first, epoch)).member_epoch == epoch + 1
    context.write()
    assert context.consumers.members[first].member_epoch == epoch + 1


def test_what_is_not_like_most_heartbeats_is_asked_as_before() -> None:
    context = group_of("a", "b")
    epoch = context.consumers.group_epoch
    for request in (
        heartbeat("a", epoch - 1),
        heartbeat("a", epoch + 1),
        heartbeat("nobody", epoch),
        heartbeat("a", epoch, subscribed_topic_names=("users",)),
        heartbeat("a", epoch, instance_id="static"),
        heartbeat("a", epoch)._replace(client_id="other"),
        heartbeat("a", epoch)._replace(group_id="other"),
        heartbeat("a", epoch, topic_partitions=having(orders=[0]), rebalance_timeout=1),
    ):
        assert context.coordinator.follow(request, now=context.now).response is None
    assert context.coordinator.follow(heartbeat("a", epoch), now=context.now).response is not None
    context.grow(orders=7)
    assert context.coordinator.follow(heartbeat("a", epoch), now=context.now).response is None


def test_a_step_and_a_commit_can_be_in_one_batch() -> None:
    commit = r.CoordinatorRecord(r.OffsetCommitKey(GROUP, "orders", 3), r.OffsetCommitValue(7, 2, "text", 1_000))
    records = [commit, current_record("a", 3, 2, assigned=having(orders=[1, 2])), commit]
    written = decode_batch(encode_batch(records, 5_000))
    assert [decode(each.key or b"", each.value) for each in written] == records
