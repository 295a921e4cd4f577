"""Hand-made requests of the consumer protocol (KIP-848), and requests of one protocol in groups of the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ..clients.base import TP
from ..conftest import MakeTopic
from ..waiting import until
from .conftest import ConnectRaw
from .raw import (
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    GROUP_ID_NOT_FOUND,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_REGULAR_EXPRESSION,
    INVALID_REQUEST,
    OK,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
    UNSUPPORTED_ASSIGNOR,
    UNSUPPORTED_VERSION,
    RawConsumer,
    committed,
    id_of,
)

Connect = Callable[..., RawConsumer]


@pytest.fixture
def connect(bootstrap_servers: str, group: str) -> Iterator[Connect]:
    made: list[RawConsumer] = []

    def make(*topics: str, **fields: Any) -> RawConsumer:
        made.append(RawConsumer(bootstrap_servers, group, topics or ("topic",), **fields))
        return made[-1]

    yield make
    for member in made:
        member.vanish()


def test_a_member_joins_and_leaves(connect: Connect, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    there = connect(topic)
    there.settle()
    assert there.assignment == {id_of(there.wire, topic): [0, 1, 2]}
    assert there.epoch > 0
    assert there.heartbeat(member_epoch=-1) == OK
    there.epoch = 5
    assert there.heartbeat() == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("strange", "code"),
    [
        ({"group_id": ""}, INVALID_REQUEST),
        ({"member_id": ""}, INVALID_REQUEST),
        ({"instance_id": ""}, INVALID_REQUEST),
        ({"rack_id": ""}, INVALID_REQUEST),
        ({"rebalance_timeout": -1}, INVALID_REQUEST),
        ({"topic_partitions": None}, INVALID_REQUEST),
        ({"subscribed_topic_names": None}, INVALID_REQUEST),
        ({"member_epoch": -2}, INVALID_REQUEST),
        ({"member_epoch": -3}, INVALID_REQUEST),
        ({"server_assignor": "no-such-assignor"}, UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 7}, GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, GROUP_ID_NOT_FOUND),
    ],
    ids=str,
)
def test_a_first_heartbeat_that_is_refused(connect: Connect, strange: dict[str, Any], code: int) -> None:
    newcomer = connect()
    assert newcomer.heartbeat(**strange) == code
    newcomer.settle()


def test_epochs_that_are_not_the_members(connect: Connect) -> None:
    there, nobody = connect(), connect()
    there.settle()
    assert there.heartbeat(member_epoch=there.epoch + 1) == FENCED_MEMBER_EPOCH
    assert nobody.heartbeat(member_epoch=there.epoch) == UNKNOWN_MEMBER_ID
    assert nobody.heartbeat(member_epoch=-1) == UNKNOWN_MEMBER_ID
    assert there.heartbeat() == OK


def test_an_instance_id_that_is_in_use(connect: Connect) -> None:
    there, other = connect(instance_id="same"), connect(instance_id="same")
    there.settle()
    assert other.heartbeat() == UNRELEASED_INSTANCE_ID
    assert there.heartbeat() == OK
    assert there.heartbeat(member_epoch=-2) == OK  # a static member leaves temporarily
    other.settle()
    assert there.heartbeat(member_epoch=other.epoch) == FENCED_INSTANCE_ID


def test_commits_and_fetches_of_other_epochs(connect: Connect, make_topic: MakeTopic) -> None:
    topic = make_topic()
    there, nobody = connect(topic), connect(topic)
    there.settle()
    place = TP(topic, 0)
    assert there.commit({place: 5}) == [OK]
    assert there.fetch(place) == OK
    assert there.commit({place: 6}, generation_id_or_member_epoch=there.epoch + 1) == [STALE_MEMBER_EPOCH]
    assert there.commit({place: 6}, generation_id_or_member_epoch=there.epoch + 1, version=8) == [UNSUPPORTED_VERSION]
    assert there.fetch(place, member_epoch=there.epoch + 1) == STALE_MEMBER_EPOCH
    assert nobody.commit({place: 6}, generation_id_or_member_epoch=there.epoch) == [UNKNOWN_MEMBER_ID]
    assert nobody.commit({place: 6}, member_id="", generation_id_or_member_epoch=-1) == [UNKNOWN_MEMBER_ID]
    assert nobody.fetch(place, member_epoch=there.epoch) == UNKNOWN_MEMBER_ID
    assert nobody.fetch(place, member_id=None, member_epoch=-1) == OK
    assert committed(there.wire, there.group, [place]) == {place: (5, "")}
    assert there.heartbeat() == OK


def test_a_member_falls_silent(connect: Connect, make_topic: MakeTopic) -> None:
    """When its session has expired the other member gets everything."""
    topic = make_topic(2)
    silent, there = connect(topic), connect(topic)
    silent.settle()
    everything = {id_of(there.wire, topic): [0, 1]}
    assert there.heartbeat() == OK

    def has_everything() -> bool:
        owned = [{"topic_id": each, "partitions": numbers} for each, numbers in there.assignment.items()]
        assert there.heartbeat(topic_partitions=owned) == OK
        return there.assignment == everything

    until(has_everything, "the other is given everything", 60)
    assert silent.heartbeat() == UNKNOWN_MEMBER_ID


# ── groups of the other type ───────────────────────────────────────────────────────────────────────────────────────


def test_a_consumer_in_a_group_of_workers(connect: Connect, connect_raw: ConnectRaw) -> None:
    worker = connect_raw(protocol_type="connect", protocols=[{"name": "sessioned", "metadata": b""}])
    worker.settle_alone()
    consumer = connect()
    assert consumer.heartbeat() == GROUP_ID_NOT_FOUND
    assert worker.heartbeat() == OK
    assert worker.leave() == OK
    consumer.settle()  # an empty group may change its type


def test_a_worker_in_a_group_of_consumers(connect: Connect, connect_raw: ConnectRaw) -> None:
    consumer = connect()
    consumer.settle()
    worker = connect_raw(protocol_type="connect", protocols=[{"name": "sessioned", "metadata": b""}])
    assert worker.join() == INCONSISTENT_GROUP_PROTOCOL
    assert consumer.heartbeat() == OK
    assert consumer.heartbeat(member_epoch=-1) == OK
    worker.settle_alone()


def test_requests_of_the_other_protocol(connect: Connect, connect_raw: ConnectRaw) -> None:
    """Classic requests do not know a consumer's id, but an administrator can remove it by id."""
    consumer, classic = connect(), connect_raw()
    consumer.settle()
    classic.member_id, classic.generation = consumer.member_id, consumer.epoch
    assert classic.heartbeat() == UNKNOWN_MEMBER_ID
    assert classic.sync() == UNKNOWN_MEMBER_ID
    assert consumer.heartbeat() == OK
    assert classic.leave() == OK
    assert consumer.heartbeat() == UNKNOWN_MEMBER_ID


def test_groups_are_described_by_their_own_kind(connect: Connect, connect_raw: ConnectRaw) -> None:
    consumer = connect()
    consumer.settle()
    (told,) = consumer.wire.call("describe_groups", 6, {"groups": [consumer.group]}).groups
    assert (int(told.error_code), told.group_state) == (GROUP_ID_NOT_FOUND, "Dead")
    (told,) = consumer.wire.call("consumer_group_describe", 1, {"group_ids": [consumer.group]}).groups
    assert (int(told.error_code), told.group_state) == (OK, "Stable")
    assert [member.member_id for member in told.members] == [consumer.member_id]
    assert consumer.heartbeat(member_epoch=-1) == OK
    connect_raw().settle_alone()
    answer = consumer.wire.call("consumer_group_describe", 1, {"group_ids": [consumer.group, ""]})
    assert {told.group_id: int(told.error_code) for told in answer.groups} == {
        consumer.group: GROUP_ID_NOT_FOUND,
        "": INVALID_GROUP_ID,
    }
