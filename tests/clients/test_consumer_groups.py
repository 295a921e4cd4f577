"""Groups over real sockets, with both protocols: growth, shrinking, commits, listeners, static members, topics."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from compat.brokers import shared_broker
from ottla.assignors import Assignment, Assignor
from ottla.clients.blocking import IllegalUse
from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.clients.consumer.blocking import Consumer
from ottla.consuming.errors import CommitFailed
from ottla.consuming.values import OffsetAndMetadata, RebalanceListener
from ottla.errors import FencedInstanceId, InvalidSessionTimeout, OffsetMetadataTooLarge, UnknownTopicOrPartition
from ottla.types import TopicPartition

from .consumer_scenes import Log, new_group, numbers, partitions, poll_until, polling, read, sizes, values, write

Make = Callable[..., Consumer]
PROTOCOLS = ("classic", "consumer")
FAST = {"classic": {"session_timeout_ms": 6000, "heartbeat_interval_ms": 100}, "consumer": {}}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with short heartbeat intervals."""
    config = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.session.timeout.ms": "3000",
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.heartbeat.interval.ms": "100",
    }
    with shared_broker(config, tmp_path_factory.mktemp("consumers")) as servers:
        yield servers


@pytest.fixture
def topic(servers: str) -> str:
    return create(servers, 4)


def create(servers: str, count: int, name: str | None = None) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    name = name or f"topic-{new_group()}"
    admin.create_topics([NewTopic(name, count, 1)])[name].result(20)
    return name


@pytest.fixture
def make(servers: str) -> Iterator[Make]:
    made: list[Consumer] = []

    def consumer(group: str, protocol: str = "classic", **config: Any) -> Consumer:
        settings = {**FAST[protocol], "auto_offset_reset": "earliest", "metadata_max_age_ms": 200, **config}
        made.append(Consumer(bootstrap_servers=servers, group_id=group, group_protocol=protocol, **settings))
        return made[-1]

    yield consumer
    for one in made:
        one.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_and_groups_do_not(servers: str, topic: str, make: Make, protocol: str) -> None:
    for number in range(4):
        write(servers, topic, numbers(0, 10), number)
    group = new_group()
    first, second = make(group, protocol), make(group, protocol)
    for member in (first, second):
        member.subscribe([topic])
    with polling(first, second) as threads:
        wait(lambda: len(threads[0].seen) + len(threads[1].seen) >= 40)
        wait(lambda: sorted(len(thread.owned) for thread in threads) == [2, 2])
    other = make(new_group(), protocol)
    other.subscribe([topic])
    assert len(read(other, 40)) == 40


def wait(condition: Callable[[], object], timeout: float = 40.0) -> None:
    deadline = time.monotonic() + timeout
    gate = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        gate.wait(0.01)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_growth_and_shrink_lose_and_repeat_nothing(servers: str, topic: str, make: Make, protocol: str) -> None:
    group = new_group()
    first, second = make(group, protocol), make(group, protocol)
    first.subscribe([topic])
    second.subscribe([topic])
    with polling(first) as (one,):
        wait(lambda: len(one.owned) == 4)
        for number in range(4):
            write(servers, topic, numbers(0, 50), number)
        with polling(second) as (two,):
            wait(lambda: len(one.owned) == 2 and len(two.owned) == 2)
            for number in range(4):
                write(servers, topic, numbers(50, 100), number)
            wait(lambda: len(one.seen) + len(two.seen) >= 400)
        second.close()
        wait(lambda: len(one.owned) == 4)
        for number in range(4):
            write(servers, topic, numbers(100, 110), number)
        wait(lambda: len(one.seen) + len(two.seen) >= 440)
        assert one.error is None
    seen = [(record.partition, record.offset) for record in one.seen + two.seen]
    assert len(seen) == len(set(seen)) == 440


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commits_are_where_the_next_member_starts(servers: str, topic: str, make: Make, protocol: str) -> None:
    write(servers, topic, numbers(0, 20))
    group = new_group()
    (zero, *_) = partitions(topic, 4)
    with make(group, protocol, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        read(consumer, 20)
        consumer.commit({zero: OffsetAndMetadata(5, "mine")})
        assert consumer.committed([zero])[zero] == OffsetAndMetadata(5, "mine", None)
    with make(group, protocol, enable_auto_commit=False, max_poll_records=5) as consumer:
        consumer.subscribe([topic])
        assert values(read(consumer, 5)) == numbers(5, 10)
        heard: list[Any] = []
        for offset in (6, 7, 8):
            consumer.commit_async({zero: offset}, lambda offsets, error: heard.append((offsets[zero].offset, error)))
        consumer.commit()
        assert heard == [(6, None), (7, None), (8, None)]
    # Only what was handed out is committed on close.
    with make(group, protocol, max_poll_records=3) as consumer:
        consumer.subscribe([topic])
        assert values(read(consumer, 3)) == numbers(10, 13)
    with make(group, protocol, auto_commit_interval_ms=1) as consumer:
        consumer.subscribe([topic])
        assert values(read(consumer, 7)) == numbers(13, 20)
        wait(lambda: consumer.poll(0.01) == [] and _committed(consumer, zero) == 20)


def _committed(consumer: Consumer, key: TopicPartition) -> int:
    found = consumer.committed([key])[key]
    return -1 if found is None else found.offset


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_listeners_hear_in_order_on_the_thread_that_polls(topic: str, make: Make, protocol: str) -> None:
    group = new_group()
    log = Log()
    first, second = make(group, protocol), make(group, protocol)
    first.subscribe([topic], listener=log)
    poll_until([first], lambda: len(first.assignment()) == 4, "all partitions")
    # A broker may assign nothing at first, while it computes the target.
    assert [event for event in log.events if event[1]] == [("assigned", [0, 1, 2, 3])]
    log.events.clear()
    second.subscribe([topic])
    with polling(second):
        poll_until([first], lambda: len(first.assignment()) == 2, "half of them")
        revoked, assigned = log.events[0], log.events[1] if len(log.events) > 1 else ("", [])
        assert revoked[0] == "revoked"
        if protocol == "classic":
            assert revoked[1] == [0, 1, 2, 3]
            assert assigned[0] == "assigned"
            assert len(assigned[1]) == 2
        else:
            assert len(revoked[1]) == 2
        first.unsubscribe()
        assert log.events[-1][0] == "revoked"
        assert len(log.events[-1][1]) == 2
        assert first.assignment() == set()
    assert log.threads == {threading.get_ident()}


def test_a_cooperative_member_keeps_what_does_not_move(servers: str, topic: str, make: Make) -> None:
    group = new_group()
    log = Log()
    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    first, second = make(group, **settings), make(group, **settings)
    first.subscribe([topic], listener=log)
    poll_until([first], lambda: len(first.assignment()) == 4, "all partitions")
    second.subscribe([topic])
    with polling(second) as (other,):
        poll_until([first], lambda: len(first.assignment()) == 2 and len(other.owned) == 2, "two each")
    revoked = [event for event in log.events if event[0] == "revoked"]
    assert len(revoked) == 1
    assert len(revoked[0][1]) == 2
    assert [event for event in log.events[1:] if event[0] == "assigned" and event[1]] == []


def test_a_custom_assignor_with_user_data(topic: str, make: Make) -> None:
    class AllToTheGreedy(Assignor):
        name = "greedy"

        def __init__(self, greed: int) -> None:
            self.greed = greed

        def subscription_user_data(self, topics: Any) -> bytes:
            return bytes([self.greed])

        def assign(self, partitions_per_topic: Any, subscriptions: Any) -> Any:
            best = max(subscriptions, key=lambda member: subscriptions[member].user_data)
            everything = {name: list(range(count)) for name, count in partitions_per_topic.items()}
            return {member: Assignment(everything if member == best else {}) for member in subscriptions}

    group = new_group()
    modest = make(group, partition_assignment_strategy=[AllToTheGreedy(1)])
    greedy = make(group, partition_assignment_strategy=[AllToTheGreedy(2)])
    for member in (modest, greedy):
        member.subscribe([topic])
    with polling(modest, greedy) as (one, two):
        wait(lambda: len(one.owned) == 0 and len(two.owned) == 4)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_new_partitions_and_topics_that_match_are_read(servers: str, make: Make, protocol: str) -> None:
    stem = new_group()
    create(servers, 1, f"{stem}.a")
    # The broker matches its own patterns only from time to time, so the second one continues here.
    for pattern in (rf"{stem}\..*", re.compile(rf"{stem}\..*")):
        consumer = make(new_group(), protocol)
        consumer.subscribe(pattern=pattern)
        poll_until([consumer], lambda c=consumer: c.assignment(), "the first topic")
        kept = consumer
    create(servers, 2, f"{stem}.b{protocol}")
    poll_until([kept], lambda: len(kept.assignment()) == 3, "the new topic")
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(f"{stem}.a", 3)])[f"{stem}.a"].result(20)
    poll_until([kept], lambda: len(kept.assignment()) == 5, "the new partitions")
    write(servers, f"{stem}.a", [b"new"], 2)
    assert values(read(kept, 1)) == [b"new"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_restarts_without_a_rebalance(topic: str, make: Make, protocol: str) -> None:
    group = new_group()
    log = Log()
    first = make(group, protocol, group_instance_id="one")
    second = make(group, protocol, group_instance_id="two")
    first.subscribe([topic], listener=log)
    second.subscribe([topic])
    with polling(second) as (other,):
        poll_until([first], lambda: len(first.assignment()) == 2 and len(other.owned) == 2, "two each")
        before = first.assignment()
        first.close()
        again = make(group, protocol, group_instance_id="one")
        again.subscribe([topic])
        poll_until([again], again.assignment, "the same ones again")
        assert again.assignment() == before
        assert len(other.owned) == 2
        assert other.error is None


def test_a_second_instance_fences_the_first(topic: str, make: Make) -> None:
    group = new_group()
    first = make(group, group_instance_id="same")
    first.subscribe([topic])
    poll_until([first], lambda: len(first.assignment()) == 4, "all partitions")
    second = make(group, group_instance_id="same")
    second.subscribe([topic])
    with polling(second), pytest.raises(FencedInstanceId):
        poll_until([first], lambda: False, "to be fenced")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_does_not_poll_leaves_and_hears_why(servers: str, topic: str, make: Make, protocol: str) -> None:
    write(servers, topic, numbers(0, 5))
    group = new_group()
    log = Log()
    slow = make(group, protocol, max_poll_interval_ms=400, enable_auto_commit=False)
    slow.subscribe([topic], listener=log)
    read(slow, 5)
    other = make(group, protocol, max_poll_interval_ms=60_000)
    other.subscribe([topic])
    with polling(other) as (thread,):
        wait(lambda: len(thread.owned) == 4)
    with pytest.raises(CommitFailed, match=r"max\.poll\.interval\.ms \(400\).*max\.poll\.records \(500\)"):
        slow.commit()
    poll_until([slow], lambda: ("lost", [0, 1, 2, 3]) in log.events, "to hear of the loss")
    with polling(other):
        poll_until([slow], slow.assignment, "to be back")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_recreated_topic_is_read_from_its_beginning(
    servers: str, topic: str, make: Make, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = new_group()
    write(servers, topic, numbers(0, 10))
    # A commit names its topic, so a late one of the old topic would count for the new one. And a consumer that asks for
    # the deleted topic would create it.
    consumer = make(group, protocol, enable_auto_commit=False, allow_auto_create_topics=False)
    consumer.subscribe([topic])
    assert values(read(consumer, 10)) == numbers(0, 10)
    consumer.commit()
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(20)
    create(servers, 4, topic)
    write(servers, topic, numbers(100, 120))
    assert values(read(consumer, 20)) == numbers(100, 120)
    consumer.commit()
    assert consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)] == OffsetAndMetadata(20, "", 0)
    if protocol == "classic":  # otherwise the broker may notice first
        # Kafka takes its time, so that a consumer may ask between the two.
        between = "|does not exist" if os.environ.get("OTTLA_COMPAT_BROKER") == "kafka" else ""
        assert re.search(f"topic {topic} (was deleted and created again{between})", caplog.text)


def test_a_long_poll_is_not_stuck(topic: str, make: Make) -> None:
    log = Log()
    # Other events wake a poll less often than this.
    rare = {"heartbeat_interval_ms": 2000, "session_timeout_ms": 6000, "metadata_max_age_ms": 60_000}
    consumer = make(new_group(), max_poll_interval_ms=800, **rare)
    consumer.subscribe([topic], listener=log)
    poll_until([consumer], consumer.assignment, "partitions")
    assert consumer.poll(2.0) == []
    assert log.moved == [("assigned", [0, 1, 2, 3])]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_close_is_fast_and_leaves_at_once(topic: str, make: Make, protocol: str) -> None:
    group = new_group()
    first, second = make(group, protocol), make(group, protocol)
    for member in (first, second):
        member.subscribe([topic])
    with polling(second) as (other,):
        poll_until([first], lambda: len(first.assignment()) == 2 and len(other.owned) == 2, "two each")
        start = time.monotonic()
        first.close()
        assert time.monotonic() - start < 5
        wait(lambda: len(other.owned) == 4)


def test_enforce_rebalance_and_group_metadata(topic: str, make: Make) -> None:
    consumer = make(new_group())
    consumer.subscribe([topic])
    poll_until([consumer], consumer.assignment, "partitions")
    before = consumer.group_metadata()
    consumer.enforce_rebalance()
    poll_until([consumer], lambda: consumer.group_metadata().generation_id > before.generation_id, "a generation")
    assert consumer.group_metadata().member_id == before.member_id


def test_a_listener_may_use_the_consumer(servers: str, topic: str, make: Make) -> None:
    write(servers, topic, numbers(0, 20))
    group = new_group()

    class Seeks(Log):
        consumer: Consumer

        def on_partitions_assigned(self, given: Any) -> None:
            super().on_partitions_assigned(given)
            self.consumer.seek(TopicPartition(topic, 0), 15)

        def on_partitions_revoked(self, given: Any) -> None:
            self.consumer.commit()
            super().on_partitions_revoked(given)

    log = Seeks()
    log.consumer = consumer = make(group, enable_auto_commit=False)
    consumer.subscribe([topic], listener=log)
    assert values(read(consumer, 5)) == numbers(15, 20)
    consumer.close()
    assert [event[0] for event in log.events] == ["assigned", "revoked"]
    again = make(group)
    again.subscribe([topic])
    poll_until([again], again.assignment, "partitions")
    assert again.position(TopicPartition(topic, 0)) == 20


def test_what_the_coordinator_rejects_reaches_the_user(topic: str, make: Make) -> None:
    consumer = make(new_group(), session_timeout_ms=400)
    consumer.subscribe([topic])
    told = r"session\.timeout\.ms=400: .*group\.min\.session\.timeout\.ms and group\.max\.session\.timeout\.ms"
    with pytest.raises(InvalidSessionTimeout, match=told):
        poll_until([consumer], lambda: False, "to be refused")
    assert sizes(consumer) == [0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_unsubscribe_leaves_and_subscribe_comes_back(servers: str, topic: str, make: Make, protocol: str) -> None:
    group = new_group()
    write(servers, topic, numbers(0, 10))
    first, second = make(group, protocol), make(group, protocol)
    first.subscribe([topic])
    assert values(read(first, 10)) == numbers(0, 10)
    first.unsubscribe()
    assert first.subscription() == set()
    with pytest.raises(IllegalUse, match="nothing to read"):
        first.poll(0)
    second.subscribe([topic])
    with polling(second) as (other,):
        wait(lambda: len(other.owned) == 4)
        first.subscribe([topic])
        poll_until([first], lambda: len(first.assignment()) == 2, "half of them")
        wait(lambda: len(other.owned) == 2)
    write(servers, topic, numbers(10, 20))
    with polling(second) as (other,):
        mine = []
        wait(lambda: mine.extend(values(first.poll(0.05))) or len(mine) + len(other.seen) >= 10)
    assert sorted(mine + values(other.seen)) == sorted(numbers(10, 20)), "what was read is not read again"


def test_a_consumer_without_a_subscription_cannot_commit_to_a_group_that_has_members(topic: str, make: Make) -> None:
    group = new_group()
    member, stranger = make(group), make(group)
    member.subscribe([topic])
    poll_until([member], member.assignment, "partitions")
    stranger.assign(partitions(topic, 1))
    with pytest.raises(CommitFailed, match=r"its own group\.id"):
        stranger.commit({TopicPartition(topic, 0): 1})


def test_a_commit_that_is_wrong_in_itself_says_what_is_wrong(topic: str, make: Make) -> None:
    alone = make(new_group())
    alone.assign(partitions(topic, 1))
    with pytest.raises(UnknownTopicOrPartition, match="partition no-such-topic-0"):
        alone.commit({TopicPartition("no-such-topic", 0): 1})
    with pytest.raises(OffsetMetadataTooLarge, match=f"partition {topic}-0: The metadata of .* is longer"):
        alone.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "x" * 5000)})
    alone.commit({TopicPartition(topic, 0): 1})


async def test_asyncio_listeners_may_be_coroutines(servers: str, topic: str) -> None:
    write(servers, topic, numbers(0, 3))
    heard = []
    async with AsyncConsumer(bootstrap_servers=servers, group_id=new_group(), auto_offset_reset="earliest") as ours:

        class Listener(RebalanceListener):
            async def on_partitions_assigned(self, given: Any) -> None:
                heard.append("assigned")
                await ours.seek(TopicPartition(topic, 0), 2)

            async def on_partitions_revoked(self, given: Any) -> None:
                await ours.commit()
                heard.append("revoked")

        await ours.subscribe([topic], listener=Listener())
        async for record in ours:
            heard.append(record.value.decode())
            break
    assert heard == ["assigned", "2", "revoked"]
