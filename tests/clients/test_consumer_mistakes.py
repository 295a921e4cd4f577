"""Mistakes of a consumer's user or group: they raise clear errors, and the consumer recovers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat.waiting import until
from ottla import (
    Admin,
    Assignor,
    Consumer,
    IllegalUse,
    OffsetAndMetadata,
    Producer,
    RebalanceListener,
    TopicPartition,
    aio,
    errors,
)
from ottla.assignors import Assignment
from ottla.consuming.values import ConsumerGroupMetadata

from .consumer_scenes import Log, new_group, numbers, partitions, poll_until, read, values, write

Make = Callable[..., Consumer]
PROTOCOLS = ("classic", "consumer")


@pytest.fixture
def make(bootstrap_servers: str) -> Iterator[Make]:
    made: list[Consumer] = []

    def consumer(**config: Any) -> Consumer:
        made.append(Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", **config))
        return made[-1]

    yield consumer
    for one in made:
        one.close()


def members(servers: str, group: str) -> int:
    with Admin(bootstrap_servers=servers) as admin:
        return len(admin.describe_groups(group)[group].members)


# ── what the group refuses ────────────────────────────────────────────────────────────────────────────────────────


def test_a_member_without_an_assignor_in_common_gets_in_when_the_others_are_gone(make_topic: Any, make: Make) -> None:
    topic, group = make_topic(2), new_group()
    first = make(group_id=group, partition_assignment_strategy="range")
    second = make(group_id=group, partition_assignment_strategy="roundrobin")
    for one in (first, second):
        one.subscribe([topic])
    poll_until([first], first.assignment, "partitions")
    for _ in range(2):
        with pytest.raises(errors.InconsistentGroupProtocol):
            poll_until([second], lambda: False, "to be refused")
    first.close()
    poll_until([second], lambda: len(second.assignment()) == 2, "what the first one had")


def test_a_pattern_that_the_broker_cannot_read_does_not_spoil_the_next_subscription(
    make_topic: Any, make: Make
) -> None:
    topic = make_topic()
    consumer = make(group_id=new_group(), group_protocol="consumer")
    consumer.subscribe(pattern="((")
    with pytest.raises(errors.InvalidRegularExpression):
        poll_until([consumer], lambda: False, "to be refused")
    consumer.unsubscribe()
    consumer.subscribe([topic])
    poll_until([consumer], consumer.assignment, "partitions")


class Moody(Assignor):
    """Assigns everything to all members, unless it is told to fail."""

    name = "moody"
    fails = True

    def assign(self, partitions_per_topic: Any, subscriptions: Any) -> Any:
        if Moody.fails:
            raise LookupError("a mistake of the user's")
        return {
            member: Assignment({topic: list(range(count)) for topic, count in partitions_per_topic.items()})
            for member in subscriptions
        }


def test_an_assignor_that_raises_is_reported_with_its_cause_and_called_again(make_topic: Any, make: Make) -> None:
    Moody.fails = True
    consumer = make(group_id=new_group(), partition_assignment_strategy=[Moody])
    consumer.subscribe([make_topic()])
    with pytest.raises(errors.InconsistentGroupProtocol, match="the assignor moody failed") as caught:
        poll_until([consumer], lambda: False, "to fail")
    assert isinstance(caught.value.__cause__, LookupError)
    Moody.fails = False
    poll_until([consumer], consumer.assignment, "partitions")


def test_a_leader_whose_assignor_raised_leaves_when_it_is_closed(
    bootstrap_servers: str, make_topic: Any, make: Make
) -> None:
    Moody.fails = True
    topic, group = make_topic(), new_group()
    consumer = make(group_id=group, partition_assignment_strategy=[Moody])
    consumer.subscribe([topic])
    with pytest.raises(errors.InconsistentGroupProtocol):
        poll_until([consumer], lambda: False, "to fail")
    consumer.close()
    assert members(bootstrap_servers, group) == 0, "else the next one waits until the session ends"


# ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Raises(RebalanceListener):
    def on_partitions_revoked(self, partitions: Any) -> None:
        raise LookupError("of the listener")


def raise_in_callback(offsets: Any, error: Any) -> None:
    raise ZeroDivisionError("of the callback")


def committed(servers: str, group: str) -> list[int]:
    with Admin(bootstrap_servers=servers) as admin:
        return [one.offset for one in admin.list_group_offsets(group).values()]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_close_does_everything_before_it_raises_what_the_users_code_raised(
    bootstrap_servers: str, make_topic: Any, make: Make, protocol: str
) -> None:
    topic, group = make_topic(), new_group()
    write(bootstrap_servers, topic, numbers(0, 5))
    consumer = make(group_id=group, group_protocol=protocol)
    consumer.subscribe([topic], listener=Raises())
    assert values(read(consumer, 5)) == numbers(0, 5)
    with pytest.raises(LookupError, match="of the listener"):
        consumer.close()
    assert members(bootstrap_servers, group) == 0
    assert committed(bootstrap_servers, group) == [5]
    consumer.close()


def test_the_first_error_is_raised_and_the_others_are_logged(
    bootstrap_servers: str, make_topic: Any, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = make_topic(), new_group()
    consumer = make(group_id=group, enable_auto_commit=False)
    consumer.subscribe([topic], listener=Raises())
    poll_until([consumer], consumer.assignment, "partitions")
    consumer.commit_async({partitions(topic, 1)[0]: 0}, callback=raise_in_callback)
    with pytest.raises(ZeroDivisionError, match="of the callback"):
        consumer.close()
    assert "of the listener" in caplog.text
    assert members(bootstrap_servers, group) == 0


def test_unsubscribe_leaves_too_when_a_listener_raises(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    topic, group = make_topic(), new_group()
    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=Raises())
    poll_until([consumer], consumer.assignment, "partitions")
    with pytest.raises(LookupError):
        consumer.unsubscribe()
    assert members(bootstrap_servers, group) == 0
    assert consumer.assignment() == set()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_close_without_any_time_leaves_the_group(
    bootstrap_servers: str, make_topic: Any, make: Make, protocol: str
) -> None:
    topic, group, log = make_topic(), new_group(), Log()
    first = make(group_id=group, group_protocol=protocol)
    first.subscribe([topic], listener=log)
    poll_until([first], first.assignment, "partitions")
    start = time.monotonic()
    first.close(0)
    assert time.monotonic() - start < 5
    assert log.moved == [("assigned", [0]), ("revoked", [0])]
    until(lambda: members(bootstrap_servers, group) == 0, "the coordinator has heard of it")


@pytest.mark.parametrize("timeout", [0, 30, None])
async def test_the_end_of_an_asyncio_consumer_is_the_same(
    bootstrap_servers: str, make_topic: Any, timeout: Any
) -> None:
    topic, group = make_topic(), new_group()
    consumer = aio.Consumer(bootstrap_servers=bootstrap_servers, group_id=group)
    await consumer.subscribe([topic], listener=Raises())
    while not consumer.assignment():
        await consumer.poll(0.02)
    with pytest.raises(LookupError):
        await consumer.close(timeout)
    await consumer.close()
    until(lambda: members(bootstrap_servers, group) == 0, "the coordinator has heard of it")


async def test_a_listener_that_hangs_does_not_keep_the_consumer_from_leaving(
    bootstrap_servers: str, make_topic: Any
) -> None:
    topic, group = make_topic(), new_group()

    class Hangs(RebalanceListener):
        async def on_partitions_revoked(self, partitions: Any) -> None:
            await asyncio.sleep(1000)

    consumer = aio.Consumer(bootstrap_servers=bootstrap_servers, group_id=group)
    await consumer.subscribe([topic], listener=Hangs())
    while not consumer.assignment():
        await consumer.poll(0.02)
    await consumer.close(0.05)
    until(lambda: members(bootstrap_servers, group) == 0, "the coordinator has heard of it")


# ── what to read ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("nothing", ["subscribe", "assign"])
def test_to_read_nothing_means_to_unsubscribe(
    bootstrap_servers: str, make_topic: Any, make: Make, protocol: str, nothing: str
) -> None:
    topic, group, log = make_topic(), new_group(), Log()
    consumer = make(group_id=group, group_protocol=protocol)
    consumer.subscribe([topic], listener=log)
    poll_until([consumer], consumer.assignment, "partitions")
    getattr(consumer, nothing)([])
    assert log.moved == [("assigned", [0]), ("revoked", [0])]
    assert members(bootstrap_servers, group) == 0, "and nobody has what nobody reads"
    assert (consumer.assignment(), consumer.subscription()) == (set(), set())
    consumer.assign(partitions(topic, 1))
    consumer.assign([])
    consumer.subscribe([topic])
    poll_until([consumer], consumer.assignment, "partitions again")


async def test_to_read_nothing_in_asyncio_too(bootstrap_servers: str, make_topic: Any) -> None:
    topic = make_topic()
    async with aio.Consumer(bootstrap_servers=bootstrap_servers, group_id=new_group()) as consumer:
        await consumer.assign(one for one in partitions(topic, 1))
        assert consumer.assignment() == set(partitions(topic, 1))
        await consumer.assign([])
        await consumer.subscribe([topic])
        await consumer.subscribe([])
        await consumer.assign(partitions(topic, 1))


def test_a_name_that_no_broker_allows_is_rejected_at_once(make: Make) -> None:
    consumer = make(group_id=new_group())
    with pytest.raises(errors.InvalidTopicException, match="'bad topic!' may only contain ASCII letters and digits"):
        consumer.subscribe(["bad topic!"])
    with pytest.raises(errors.InvalidTopicException, match="has 300 characters; the limit is 249"):
        consumer.subscribe(["x" * 300])
    with pytest.raises(ValueError, match="not a topic name"):
        consumer.subscribe([b"t"])
    with pytest.raises(IllegalUse, match="nothing to read"):
        consumer.poll(0)


# ── numbers and lists ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_float_is_rejected_where_it_is_given_and_harms_nothing(
    bootstrap_servers: str, make_topic: Any, make: Make
) -> None:
    topic = make_topic()
    write(bootstrap_servers, topic, numbers(0, 5))
    (key,) = partitions(topic, 1)
    consumer = make(group_id=new_group())
    consumer.assign([key])
    assert values(read(consumer, 5)) == numbers(0, 5)
    wrong: list[Callable[[], object]] = [
        lambda: consumer.seek(key, 1.0),  # type: ignore[arg-type]
        lambda: consumer.commit({key: 1.0}),  # type: ignore[dict-item]
        lambda: consumer.commit({key: OffsetAndMetadata(1.0)}),  # type: ignore[arg-type]
        lambda: consumer.commit_async({key: 1.0}),  # type: ignore[dict-item]
        lambda: consumer.fetch_until(key, 1.0),  # type: ignore[arg-type]
    ]
    for call in wrong:
        with pytest.raises(TypeError, match=r"must be an int, not 1\.0: write int\(1\.0\)"):
            call()
    for call in (lambda: consumer.seek(key, -1), lambda: consumer.commit({key: -1}), lambda: OffsetAndMetadata(-1)):
        with pytest.raises(ValueError, match="at least 0, not -1"):
            call()
    assert consumer.position(key) == 5
    consumer.seek(key, 3)
    assert values(read(consumer, 2)) == numbers(3, 5)


@pytest.mark.parametrize("timeout", [None, "1", float("nan")])
def test_a_timeout_that_is_not_a_number_is_an_error(make_topic: Any, make: Make, timeout: Any) -> None:
    consumer = make()
    consumer.assign([TopicPartition(make_topic(1), 0)])
    for poll in (consumer.poll, consumer.poll_arrow):
        with pytest.raises(TypeError, match="the timeout must be a number of seconds, not"):
            poll(timeout)
    assert not consumer.poll(0)


def test_partitions_are_given_one_by_one_or_as_a_list(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    topic = make_topic(2)
    keys = partitions(topic, 2)
    consumer = make()
    consumer.assign(keys)
    consumer.pause(keys)
    assert consumer.paused() == set(keys)
    consumer.resume(keys[0], [keys[1]])
    assert consumer.paused() == set()
    consumer.seek_to_end(iter(keys))
    write(bootstrap_servers, topic, numbers(0, 1))
    consumer.seek_to_beginning([])
    assert values(read(consumer, 1)) == numbers(0, 1), "an empty list means all, as in Kafka"
    with pytest.raises(IllegalUse, match="is not assigned"):
        consumer.pause([TopicPartition(topic, 7)])


# ── what takes too long ───────────────────────────────────────────────────────────────────────────────────────────


def test_an_unavailable_position_says_why(make_topic: Any, make: Make) -> None:
    topic = make_topic(2)
    consumer = make(allow_auto_create_topics=False)
    far, nowhere = TopicPartition(topic, 9), TopicPartition(f"no-{topic}", 0)
    consumer.assign([far, nowhere])
    with pytest.raises(errors.RequestTimedOut, match=f"topic {topic} has only 2 partitions"):
        consumer.position(far, timeout=0.5)
    with pytest.raises(errors.RequestTimedOut, match=f"topic no-{topic}: .*no such topic"):
        consumer.position(nowhere, timeout=0.5)


def test_offsets_that_an_open_transaction_holds_say_so(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    topic, group = make_topic(), new_group()
    (key,) = partitions(topic, 1)
    consumer = make(group_id=group)
    with Producer(bootstrap_servers=bootstrap_servers, transactional_id=f"{topic}-open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({key: 1}, ConsumerGroupMetadata(group))
        told = "within 0.5 s: the last error was UNSTABLE_OFFSET_COMMIT: An open transaction"
        with pytest.raises(errors.RequestTimedOut, match=told):
            consumer.committed([key], timeout=0.5)
        consumer.assign([key])
        with pytest.raises(errors.RequestTimedOut, match=told):
            consumer.position(key, timeout=0.5)
        producer.commit_transaction()
    assert consumer.committed([key]) == {key: OffsetAndMetadata(1)}


# ── what others have too ──────────────────────────────────────────────────────────────────────────────────────────


async def test_an_asyncio_consumer_may_be_started_and_stopped(bootstrap_servers: str, make_topic: Any) -> None:
    topic = make_topic()
    write(bootstrap_servers, topic, numbers(0, 3))
    consumer = aio.Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        await consumer.assign(partitions(topic, 1))
        assert values(await consumer.poll(10)) == numbers(0, 3)
    finally:
        await consumer.stop()
        with pytest.raises(IllegalUse, match="closed"):
            await consumer.start()


def test_records_that_were_put_back_count_once(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    topic = make_topic()
    write(bootstrap_servers, topic, numbers(0, 10))
    consumer = make()
    consumer.assign(partitions(topic, 1))
    seen = []
    for record in consumer:
        seen.append(record.value)
        if len(seen) == 3:
            consumer.pause(partitions(topic, 1))
            assert consumer.metrics()["records-consumed-total"] == 3
            consumer.resume(partitions(topic, 1))
        if len(seen) == 10:
            break
    assert seen == numbers(0, 10)
    assert consumer.metrics()["records-consumed-total"] == 10


def test_close_may_have_all_the_time_there_is(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    topic, group = make_topic(), new_group()
    consumer = make(group_id=group)
    consumer.subscribe([topic])
    poll_until([consumer], consumer.assignment, "partitions")
    consumer.close(None)
    assert members(bootstrap_servers, group) == 0
