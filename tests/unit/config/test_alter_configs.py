"""AlterConfigs and IncrementalAlterConfigs: the resulting settings, and rejected changes."""

import pytest

from ottla.config import Alteration, AlterOp, BrokerConfig, alter_broker, alter_group, alter_topic
from ottla.errors import ConfigError, InvalidRequest

BROKER = BrokerConfig()
SET, DELETE, APPEND, SUBTRACT = AlterOp


def test_set_and_delete() -> None:
    before = {"segment.ms": "5", "retention.ms": "7"}
    after = alter_topic(BROKER, before, [Alteration("segment.ms", DELETE, None), Alteration("flush.ms", SET, "9")])
    assert after == {"retention.ms": "7", "flush.ms": "9"}
    assert before == {"segment.ms": "5", "retention.ms": "7"}


def test_deleting_what_is_not_set_changes_nothing() -> None:
    assert alter_topic(BROKER, {}, [Alteration("segment.ms", DELETE, None)]) == {}


@pytest.mark.parametrize(
    ("before", "op", "value", "after"),
    [
        ({}, APPEND, "compact", "delete,compact"),
        ({"cleanup.policy": "compact"}, APPEND, "delete", "compact,delete"),
        ({"cleanup.policy": "compact"}, APPEND, "compact", "compact"),
        ({"cleanup.policy": "compact,delete"}, SUBTRACT, "delete", "compact"),
        ({"cleanup.policy": "compact"}, SUBTRACT, "delete", "compact"),
        ({"cleanup.policy": ""}, APPEND, "compact", "compact"),
    ],
)
def test_lists(before: dict[str, str], op: AlterOp, value: str, after: str) -> None:
    assert alter_topic(BROKER, before, [Alteration("cleanup.policy", op, value)]) == {"cleanup.policy": after}


@pytest.mark.parametrize(
    ("alteration", "error", "says"),
    [
        (Alteration("segment.ms", APPEND, "1"), ConfigError, "not a list"),
        (Alteration("segment.ms", SET, "0"), ConfigError, "at least 1"),
        (Alteration("segment.msx", SET, "1"), ConfigError, "Did you mean segment.ms?"),
        (Alteration("segment.ms", SET, None), InvalidRequest, "null"),
        (Alteration("segment.ms", 9, "1"), InvalidRequest, "Unknown operation 9"),
        (Alteration("leader.replication.throttled.replicas", SET, "0:1," * 9000), ConfigError, "longer than"),
    ],
)
def test_refused_for_topics(alteration: Alteration, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        alter_topic(BROKER, {}, [alteration])
    assert says in str(caught.value)


def test_a_list_cannot_grow_without_end() -> None:
    name, more = "leader.replication.throttled.replicas", ",".join(f"{index}:1" for index in range(4000))
    before = alter_topic(BROKER, {}, [Alteration(name, APPEND, more)])
    with pytest.raises(ConfigError, match="longer than 32767 bytes"):
        alter_topic(BROKER, before, [Alteration(name, APPEND, more.replace(":1", ":2"))])


def test_altering_a_name_twice_is_refused() -> None:
    twice = [Alteration("segment.ms", SET, "1"), Alteration("segment.ms", DELETE, None)]
    with pytest.raises(InvalidRequest, match=r"twice in one request: segment\.ms"):
        alter_topic(BROKER, {}, twice)


def test_settings_must_fit_each_other_after_the_alteration() -> None:
    with pytest.raises(ConfigError, match="must not be greater"):
        alter_topic(BROKER, {"max.compaction.lag.ms": "5"}, [Alteration("min.compaction.lag.ms", SET, "6")])


def test_replace_drops_what_is_not_named() -> None:
    assert alter_topic(BROKER, {"segment.ms": "5"}, {"flush.ms": "9"}) == {"flush.ms": "9"}
    with pytest.raises(InvalidRequest, match="null"):
        alter_topic(BROKER, {}, {"flush.ms": None})
    with pytest.raises(ConfigError, match=r"flush\.ms"):
        alter_topic(BROKER, {}, {"flush.ms": "-1"})


def test_broker_layers_are_apart() -> None:
    broker = BROKER.with_dynamic({"max.connections": "1"}, {"max.connections": "2"})
    change = [Alteration("message.max.bytes", SET, "3")]
    assert alter_broker(broker, change, for_all_brokers=False) == {"max.connections": "1", "message.max.bytes": "3"}
    assert alter_broker(broker, change, for_all_brokers=True) == {"max.connections": "2", "message.max.bytes": "3"}
    assert alter_broker(broker, {"log.roll.ms": "4"}, for_all_brokers=True) == {"log.roll.ms": "4"}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("num.partitions", "3", "Cannot be changed while the broker runs: num.partitions"),
        ("message.max.bytes", "-1", "at least 0"),
        ("message.max.byte", "1", "Did you mean message.max.bytes?"),
        ("log.retention.ms", "0", "-1 (no limit) or at least 1"),
        ("log.cleaner.dedupe.buffer.size", "1000", "more than 1 MiB"),
    ],
)
def test_refused_for_the_broker_as_an_invalid_request(name: str, value: str, says: str) -> None:
    with pytest.raises(InvalidRequest) as altered:
        alter_broker(BROKER, [Alteration(name, SET, value)], for_all_brokers=True)
    with pytest.raises(InvalidRequest) as replaced:
        alter_broker(BROKER, {name: value}, for_all_brokers=False)
    assert says in str(altered.value)
    assert str(replaced.value) == str(altered.value)


SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_the_settings_of_a_group() -> None:
    after = alter_group(BROKER, {HEARTBEAT: "6000"}, [Alteration(SESSION, SET, "50000")])
    assert after == {HEARTBEAT: "6000", SESSION: "50000"}
    assert alter_group(BROKER, after, [Alteration(HEARTBEAT, DELETE, None)]) == {SESSION: "50000"}
    assert alter_group(BROKER, {}, {SESSION: "50000"}) == {SESSION: "50000"}


@pytest.mark.parametrize(
    ("name", "op", "value", "error", "says"),
    [
        (SESSION, SET, "44999", ConfigError, "group.consumer.min.session.timeout.ms (45000)"),
        (SESSION, SET, "60001", ConfigError, "group.consumer.max.session.timeout.ms (60000)"),
        (HEARTBEAT, SET, "4999", ConfigError, "group.consumer.min.heartbeat.interval.ms (5000)"),
        (HEARTBEAT, SET, "15001", ConfigError, "group.consumer.max.heartbeat.interval.ms (15000)"),
        (SESSION, SET, "soon", ConfigError, "whole number"),
        (SESSION, APPEND, "1", ConfigError, "not a list"),
        ("session.timeout.ms", SET, "50000", ConfigError, "Did you mean consumer.session.timeout.ms?"),
        (SESSION, SET, None, InvalidRequest, "null"),
    ],
)
def test_refused_for_groups(name: str, op: AlterOp, value: str | None, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        alter_group(BROKER, {}, [Alteration(name, op, value)])
    assert says in str(caught.value)


def test_a_session_is_longer_than_a_heartbeat() -> None:
    broker = BrokerConfig.parse(
        {
            "group.consumer.session.timeout.ms": 20_000,
            "group.consumer.min.session.timeout.ms": 6_000,
            "group.consumer.heartbeat.interval.ms": 5_000,
        }
    )
    with pytest.raises(ConfigError, match=r"must be greater than consumer\.heartbeat\.interval\.ms"):
        alter_group(broker, {}, {SESSION: "10000", HEARTBEAT: "12000"})
