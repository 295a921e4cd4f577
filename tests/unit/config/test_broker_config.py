"""The broker's table: Kafka's defaults, the limits of one node, and listeners."""

from pathlib import Path

import pytest

from ottla.config import BrokerConfig, Listener
from ottla.config.foreign import is_ignored, rejection_of
from ottla.config.table import rows
from ottla.errors import ConfigError

# Defaults of Apache Kafka 4.2 for every name we share with it, as its own configuration reports them.
KAFKA = {
    "advertised.listeners": None,
    "auto.create.topics.enable": "true",
    "broker.id": "-1",
    "broker.rack": None,
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "connections.max.idle.ms": "600000",
    "default.replication.factor": "1",
    "delete.topic.enable": "true",
    "fetch.max.bytes": "57671680",
    "group.consumer.assignors": "uniform,range",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.max.heartbeat.interval.ms": "15000",
    "group.consumer.max.session.timeout.ms": "60000",
    "group.consumer.max.size": "2147483647",
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.min.heartbeat.interval.ms": "5000",
    "group.consumer.min.session.timeout.ms": "45000",
    "group.consumer.regex.refresh.interval.ms": "600000",
    "group.consumer.session.timeout.ms": "45000",
    "group.initial.rebalance.delay.ms": "3000",
    "group.max.session.timeout.ms": "1800000",
    "group.max.size": "2147483647",
    "group.min.session.timeout.ms": "6000",
    "listener.security.protocol.map": ("SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"),
    "listeners": "PLAINTEXT://:9092",
    "log.cleaner.backoff.ms": "15000",
    "log.cleaner.dedupe.buffer.size": "134217728",
    "log.cleaner.delete.retention.ms": "86400000",
    "log.cleaner.enable": "true",
    "log.cleaner.io.buffer.load.factor": "0.9",
    "log.cleaner.io.buffer.size": "524288",
    "log.cleaner.io.max.bytes.per.second": "1.7976931348623157E308",
    "log.cleaner.max.compaction.lag.ms": "9223372036854775807",
    "log.cleaner.min.cleanable.ratio": "0.5",
    "log.cleaner.min.compaction.lag.ms": "0",
    "log.cleanup.policy": "delete",
    "log.dirs": None,
    "log.flush.interval.messages": "9223372036854775807",
    "log.flush.interval.ms": None,
    "log.flush.offset.checkpoint.interval.ms": "60000",
    "log.flush.scheduler.interval.ms": "9223372036854775807",
    "log.index.interval.bytes": "4096",
    "log.index.size.max.bytes": "10485760",
    "log.initial.task.delay.ms": "30000",
    "log.local.retention.bytes": "-2",
    "log.local.retention.ms": "-2",
    "log.message.timestamp.after.max.ms": "3600000",
    "log.message.timestamp.before.max.ms": "9223372036854775807",
    "log.message.timestamp.type": "CreateTime",
    "log.preallocate": "false",
    "log.retention.bytes": "-1",
    "log.retention.check.interval.ms": "300000",
    "log.retention.hours": "168",
    "log.retention.minutes": None,
    "log.retention.ms": None,
    "log.roll.hours": "168",
    "log.roll.jitter.hours": "0",
    "log.roll.jitter.ms": None,
    "log.roll.ms": None,
    "log.segment.bytes": "1073741824",
    "log.segment.delete.delay.ms": "60000",
    "max.connections": "2147483647",
    "max.connections.per.ip": "2147483647",
    "max.connections.per.ip.overrides": "",
    "max.incremental.fetch.session.cache.slots": "1000",
    "max.request.partition.size.limit": "2000",
    "message.max.bytes": "1048588",
    "min.insync.replicas": "1",
    "num.partitions": "1",
    "offset.metadata.max.bytes": "4096",
    "offsets.retention.check.interval.ms": "600000",
    "offsets.retention.minutes": "10080",
    "offsets.topic.num.partitions": "50",
    "offsets.topic.segment.bytes": "104857600",
    "producer.id.expiration.check.interval.ms": "600000",
    "producer.id.expiration.ms": "86400000",
    "socket.listen.backlog.size": "50",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "socket.send.buffer.bytes": "102400",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
    "transaction.max.timeout.ms": "900000",
    "transaction.partition.verification.enable": "true",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "3600000",
    "transaction.state.log.num.partitions": "50",
    "transaction.state.log.segment.bytes": "104857600",
    "transactional.id.expiration.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
OTHER_DEFAULT = {"node.id", "log.dir"}
"""Kafka has no default, or one that makes sense only for Kafka."""

FIXED = {
    "advertised.listeners",
    "auto.create.topics.enable",
    "broker.id",
    "broker.rack",
    "connections.max.idle.ms",
    "default.replication.factor",
    "delete.topic.enable",
    "fetch.max.bytes",
    "group.consumer.assignors",
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
    "group.consumer.max.session.timeout.ms",
    "group.consumer.max.size",
    "group.consumer.migration.policy",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.min.session.timeout.ms",
    "group.consumer.regex.refresh.interval.ms",
    "group.consumer.session.timeout.ms",
    "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms",
    "group.max.size",
    "group.min.session.timeout.ms",
    "listener.security.protocol.map",
    "listeners",
    "log.cleaner.enable",
    "log.dir",
    "log.dirs",
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.scheduler.interval.ms",
    "log.initial.task.delay.ms",
    "log.retention.check.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.roll.hours",
    "log.roll.jitter.hours",
    "max.incremental.fetch.session.cache.slots",
    "max.request.partition.size.limit",
    "node.id",
    "num.partitions",
    "offset.metadata.max.bytes",
    "offsets.retention.check.interval.ms",
    "offsets.retention.minutes",
    "offsets.topic.num.partitions",
    "offsets.topic.segment.bytes",
    "producer.id.expiration.check.interval.ms",
    "socket.listen.backlog.size",
    "socket.receive.buffer.bytes",
    "socket.request.max.bytes",
    "socket.send.buffer.bytes",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "transaction.max.timeout.ms",
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    "transaction.state.log.num.partitions",
    "transaction.state.log.segment.bytes",
    "transactional.id.expiration.ms",
}
"""The names that Kafka cannot change at run time, and the listeners."""


def test_defaults_are_kafkas() -> None:
    ours = {key.name: key.format(key.default) for key in rows(BrokerConfig).values()}
    shared = {name: text for name, text in ours.items() if name not in OTHER_DEFAULT and not name.startswith("ottla.")}
    assert shared == KAFKA


def test_alterable_names_are_kafkas() -> None:
    fixed = {name for name, key in rows(BrokerConfig).items() if not key.dynamic and not name.startswith("ottla.")}
    assert fixed == FIXED


def test_what_was_given_is_remembered() -> None:
    config = BrokerConfig.parse({"num_partitions": 3, "log.dirs": "/a , /b"})
    assert config.given == {"num.partitions": "3", "log.dirs": "/a,/b"}
    assert config.data_dirs == ("/a", "/b")


def test_log_dir_stands_in_for_log_dirs() -> None:
    assert BrokerConfig.parse({"log.dir": "/a"}).data_dirs == ("/a",)


def test_id() -> None:
    assert BrokerConfig().id == 1
    assert BrokerConfig.parse({"broker.id": "7"}).id == 7
    assert BrokerConfig.parse({"node.id": "8"}).id == 8
    with pytest.raises(ConfigError, match=r"broker.id \(7\) and node.id \(8\) differ"):
        BrokerConfig.parse({"broker.id": "7", "node.id": "8"})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("default.replication.factor", "3", "there is only one broker"),
        ("fetch.max.bytes", "1023", "at least 1024"),
        ("socket.receive.buffer.bytes", "0", "-1 for the operating system"),
        ("log.retention.ms", "0", "-1 (no limit) or at least 1"),
        ("log.retention.hours", "0", "-1 (no limit) or at least 1"),
        ("log.roll.ms", "0", "at least 1"),
        ("log.dirs", "", "at least one directory"),
        ("log.dir", " ", "must not be empty"),
        ("max.connections.per.ip", "0", "lets nobody connect"),
        ("max.connections.per.ip.overrides", "10.0.0.1", "address:number"),
        ("max.connections.per.ip.overrides", "10.0.0.1:many", "address:number"),
        ("log.cleaner.dedupe.buffer.size", "1048576", "more than 1 MiB"),
        ("group.consumer.session.timeout.ms", "44999", "group.consumer.min.session.timeout.ms (45000)"),
        ("group.consumer.session.timeout.ms", "60001", "group.consumer.max.session.timeout.ms (60000)"),
        ("group.consumer.min.session.timeout.ms", "60001", "group.consumer.min.session.timeout.ms (60001)"),
        ("group.consumer.heartbeat.interval.ms", "4999", "group.consumer.min.heartbeat.interval.ms (5000)"),
        ("group.consumer.heartbeat.interval.ms", "15001", "group.consumer.max.heartbeat.interval.ms (15000)"),
        ("ottla.metrics.listener", "9090", "such as 127.0.0.1:9090"),
        ("ottla.metrics.listener", "localhost:99999", "such as 127.0.0.1:9090"),
        ("ottla.log.format", "xml", "one of text, json"),
        ("listeners", "", "at least one listener"),
        ("listeners", "localhost:9092", "such as PLAINTEXT://localhost:9092"),
        ("listeners", "PLAINTEXT://localhost:99999", "between 0 and 65535"),
        ("listeners", "PLAINTEXT://localhost:-1", "between 0 and 65535"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2", "two listeners have the same name"),
        ("listeners", "SSL://:9092", "supports only PLAINTEXT"),
        ("listeners", "INSIDE://:9092", "no protocol for the listener INSIDE"),
        ("listener.security.protocol.map", "INSIDE", "NAME:PROTOCOL"),
        ("advertised.listeners", "OTHER://host:1", "there is no listener named OTHER"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:1", "not an address that a client can connect to"),
        ("advertised.listeners", "PLAINTEXT://:1", "not an address that a client can connect to"),
    ],
)
def test_refused_with_the_name_and_the_reason(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({name: value})
    assert says in str(caught.value)


def test_a_session_of_a_consumer_group_is_longer_than_its_heartbeat_interval() -> None:
    times = {"group.consumer.session.timeout.ms": "10000", "group.consumer.min.session.timeout.ms": "10000"}
    BrokerConfig.parse({**times, "group.consumer.heartbeat.interval.ms": "9999"})
    with pytest.raises(ConfigError, match=r"must be greater than group.consumer.heartbeat.interval.ms \(10000\)"):
        BrokerConfig.parse({**times, "group.consumer.heartbeat.interval.ms": "10000"})


def test_listeners() -> None:
    config = BrokerConfig.parse(
        {
            "listeners": "inside://127.0.0.1:0, OUTSIDE://[::]:9093",
            "advertised.listeners": "OUTSIDE://kafka.example.org:443",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT, OUTSIDE:PLAINTEXT",
        }
    )
    assert config.listeners == (Listener("INSIDE", "127.0.0.1", 0), Listener("OUTSIDE", "::", 9093))
    assert config.advertised_listeners == (Listener("OUTSIDE", "kafka.example.org", 443),)
    assert config.given["listeners"] == "INSIDE://127.0.0.1:0,OUTSIDE://[::]:9093"


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ("A://127.0.0.1:9092", "B://127.0.0.2:9092", False),
        ("A://127.0.0.1:9092", "B://[::1]:9092", True),
        ("A://localhost:9092", "B://[::1]:9092", False),
        ("A://127.0.0.1:0", "B://127.0.0.1:0", True),
        ("A://127.0.0.1:9092", "B://127.0.0.1:9093", True),
    ],
)
def test_two_listeners_on_one_port(first: str, second: str, fits: bool) -> None:
    values = {"listeners": f"{first},{second}", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    if fits:
        assert len(BrokerConfig.parse(values).listeners) == 2
    else:
        with pytest.raises(ConfigError, match="two listeners use port 9092"):
            BrokerConfig.parse(values)


def test_limits_of_single_addresses() -> None:
    config = BrokerConfig.parse(
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:5, [::1]:7"}
    )
    assert config.max_connections_from("10.0.0.1") == 5
    assert config.max_connections_from("::1") == 7
    assert config.max_connections_from("10.0.0.2") == 0


def test_a_name_of_topics_is_led_to_the_brokers() -> None:
    with pytest.raises(ConfigError, match=r"retention\.ms.*use log\.retention\.ms"):
        BrokerConfig.parse({"retention.ms": "1"})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ssl.keystore.location", "supports only PLAINTEXT"),
        ("sasl.enabled.mechanisms", "supports only PLAINTEXT"),
        ("listener.name.inside.ssl.keystore.location", "supports only PLAINTEXT"),
        ("authorizer.class.name", "supports only PLAINTEXT"),
        ("super.users", "supports only PLAINTEXT"),
        ("remote.log.storage.system.enable", "remote storage"),
        ("create.topic.policy.class.name", "Java"),
        ("num.partitons", "Did you mean num.partitions?"),
    ],
)
def test_names_that_cannot_be_left_aside_are_refused(name: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({name: "x"})
    assert name in str(caught.value)
    assert says in str(caught.value)


NAMES = (Path(__file__).parent / "kafka_broker_names.txt").read_text().split()
"""Every name of the broker configuration of Apache Kafka 4.2."""


def test_every_name_of_kafka_is_known_left_aside_or_refused_for_a_reason() -> None:
    ways = {name: (name in rows(BrokerConfig), is_ignored(name), rejection_of(name) is not None) for name in NAMES}
    assert [name for name, way in ways.items() if sum(way) != 1] == []


def test_names_that_change_nothing_here_are_reported() -> None:
    config = BrokerConfig.parse({"num.io.threads": "8", "process.roles": "broker,controller", "num.partitions": "2"})
    assert config.ignored == ("num.io.threads", "process.roles")
    assert config.given == {"num.partitions": "2"}


def test_listeners_of_controllers_are_left_aside() -> None:
    config = BrokerConfig.parse(
        {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}
    )
    assert config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.with_dynamic({}).listeners == config.listeners


def test_with_dynamic() -> None:
    static = BrokerConfig.parse({"message.max.bytes": "100", "num.partitions": "4"})
    now = static.with_dynamic({"message.max.bytes": "300"}, {"message.max.bytes": "200", "max.connections": "5"})
    assert (now.message_max_bytes, now.max_connections, now.num_partitions) == (300, 5, 4)
    assert now.with_dynamic({}, now.dynamic_default).message_max_bytes == 200
    assert now.with_dynamic({}).message_max_bytes == 100
