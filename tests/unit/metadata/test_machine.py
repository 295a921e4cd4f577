"""The metadata state machine: accepted and rejected requests, and a snapshot that replays to the same state."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla import errors
from ottla.metadata import Metadata, PartitionState
from ottla.metadata.machine import check_topic_name
from ottla.metadata.records import BrokerRegistered, LeaderEpochsRaised, from_json, to_json

NOW = 1_700_000_000_000


def run(machine: Metadata, operation: Any, *args: Any, **kwargs: Any) -> Any:
    outcome = operation(*args, **kwargs, now=NOW)
    for record in outcome.records:
        machine.replay(from_json(to_json(record)))
    return outcome.response


def with_broker() -> Metadata:
    machine = Metadata()
    machine.replay(BrokerRegistered(1, 0, ()))
    return machine


def with_topic(name: str = "orders", partitions: int = 2) -> Metadata:
    machine = with_broker()
    run(machine, machine.create_topic, name, uuid4(), partitions, {"retention.ms": "5"})
    return machine


def test_a_created_topic_is_found_by_name_and_by_id() -> None:
    machine = with_topic()
    topic = machine.topic("orders")
    assert (topic.partitions, topic.configs) == (2, {"retention.ms": "5"})
    assert topic.states == [PartitionState((1,), (1,), 1)] * 2
    assert machine.topics_by_id[topic.topic_id] is topic


def test_an_operation_alone_changes_nothing() -> None:
    machine = with_topic()
    machine.delete_topic("orders", now=NOW)
    assert "orders" in machine.topics


def test_a_topic_cannot_be_created_twice() -> None:
    machine = with_topic()
    with pytest.raises(errors.TopicAlreadyExists, match="orders"):
        machine.create_topic("orders", uuid4(), 1, {}, now=NOW)


def test_what_does_not_fit_into_a_node_of_zookeeper_is_refused() -> None:
    machine, long = with_topic(), "x" * 1_000_000
    for change in (
        partial(machine.create_topic, "payments", uuid4(), 1, {"retention.ms": long}),
        partial(machine.set_topic_configs, "orders", {"retention.ms": long}),
        partial(machine.set_broker_configs, {"max.connections": long}, broker_id=None),
        partial(machine.set_group_configs, long, {}),
        partial(machine.client_quotas.alter, (("user", long),), [("producer_byte_rate", 5.0)]),
    ):
        with pytest.raises(errors.PolicyViolation, match="at most 900000 fit"):
            change(now=NOW)


def test_names_that_differ_by_dot_and_underscore_collide() -> None:
    machine = with_topic("a.b")
    with pytest.raises(errors.InvalidTopicException, match=r"collides.*a\.b"):
        machine.create_topic("a_b", uuid4(), 1, {}, now=NOW)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b", "a\n"])
def test_names_that_kafka_does_not_allow_are_refused(name: str) -> None:
    with pytest.raises(errors.InvalidTopicException):
        check_topic_name(name)


@pytest.mark.parametrize("count", [0, -2, 10_001])
def test_a_topic_needs_a_sane_number_of_partitions(count: int) -> None:
    with pytest.raises(errors.InvalidPartitions):
        with_broker().create_topic("t", uuid4(), count, {}, now=NOW)


@pytest.mark.parametrize("count", [1, 2])
def test_partitions_only_grow(count: int) -> None:
    with pytest.raises(errors.InvalidPartitions):
        with_topic().add_partitions("orders", count, now=NOW)


def test_a_deleted_topic_is_gone_and_can_come_back_with_another_id() -> None:
    machine = with_topic()
    old = machine.topic("orders").topic_id
    run(machine, machine.delete_topic, "orders")
    with pytest.raises(errors.UnknownTopicOrPartition):
        machine.topic("orders")
    assert old not in machine.topics_by_id
    run(machine, machine.create_topic, "orders", UUID(int=7), 1, {})
    assert machine.topic("orders").topic_id == UUID(int=7)


def test_producer_ids_are_never_given_twice_even_if_a_block_was_not_used_up() -> None:
    machine = Metadata()
    first = run(machine, machine.take_producer_ids)
    second = run(machine, machine.take_producer_ids)
    assert set(first).isdisjoint(second)


def test_an_unclean_start_raises_the_leader_epochs() -> None:
    machine = with_topic()
    machine.replay(LeaderEpochsRaised())
    assert [state.leader_epoch for state in machine.topic("orders").states] == [1, 1]


def test_the_journal_of_an_old_broker_belongs_to_the_broker_that_opens_it() -> None:
    machine = Metadata()
    old = [
        {"type": "TopicCreated", "name": "orders", "topic_id": str(UUID(int=7)), "partitions": 2, "configs": {}},
        {"type": "LeaderEpochSet", "name": "orders", "leader_epoch": 3},
        {"type": "PartitionsAdded", "name": "orders", "partitions": 3},
        {"type": "BrokerConfigsSet", "cluster_wide": False, "configs": {"log.retention.ms": "7"}},
    ]
    for record in map(from_json, old):
        machine.replay(record)
    for record in list(machine.adopted_by(5)):
        machine.replay(from_json(to_json(record)))
    assert machine.topic("orders").states == [
        PartitionState((5,), (5,), 5, leader_epoch=3),
        PartitionState((5,), (5,), 5, leader_epoch=3),
        PartitionState((5,), (5,), 5),
    ]
    assert machine.broker_configs == {5: {"log.retention.ms": "7"}}


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["create", "grow", "delete", "config", "ids", "epochs", "broker", "quota"]),
        st.sampled_from("abc"),
    ),
    max_size=30,
)


@given(OPERATIONS)
def test_a_snapshot_replays_to_the_same_state(operations: list[tuple[str, str]]) -> None:
    machine = with_broker()
    for operation, name in operations:
        topic = machine.topics.get(name)
        try:
            if operation == "create":
                run(machine, machine.create_topic, name, uuid4(), 1, {})
            elif operation == "grow":
                run(machine, machine.add_partitions, name, (topic.partitions if topic else 0) + 1)
            elif operation == "delete":
                run(machine, machine.delete_topic, name)
            elif operation == "config":
                run(machine, machine.set_topic_configs, name, {"retention.ms": str(len(operations))})
            elif operation == "ids":
                run(machine, machine.take_producer_ids)
            elif operation == "epochs":
                machine.replay(LeaderEpochsRaised())
            elif operation == "quota":
                value = None if len(machine.client_quotas.values) > 1 else 5.0
                run(machine, machine.client_quotas.alter, (("user", name),), [("producer_byte_rate", value)])
            else:
                run(machine, machine.set_broker_configs, {"a": name}, broker_id=None if name == "a" else 1)
        except errors.KafkaError:
            continue
    copy = Metadata()
    for record in machine.snapshot():
        copy.replay(from_json(to_json(record)))
    assert vars(copy) == vars(machine)
