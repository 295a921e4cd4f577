"""The broker's table: Kafka's defaults, the limits of one node, and listeners."""

from pathlib import Path

import pytest

from ottla.config import BrokerConfig, Listener
from ottla.config.broker import broker_key
from ottla.config.foreign import is_ignored, rejection_of
from ottla.config.properties import parse_broker_properties, parse_properties
from ottla.config.table import rows
from ottla.config.unused import UNUSED
from ottla.errors import ConfigError

TABLE = [line.split() for line in (Path(__file__).parent / "kafka_broker_defaults.txt").read_text().splitlines()]
"""For every name that we share with Apache Kafka 4.2, as its own configuration reports it: whether it can change at
run time, and ``=default``, ``none``, or ``other`` if it makes sense only for Kafka. No listener can change here, only
the files of its certificates, and no secret, because the metadata would show it. Names that only a Kafka with ZooKeeper
had are those of Kafka 3.9, and those of the authorizer are its own."""


def test_the_table_is_kafkas() -> None:
    theirs = {name: default for name, _, default in TABLE}
    ours = {}
    for name, key in rows(BrokerConfig).items():
        if not name.startswith("ottla."):
            text = key.format(key.default)
            default = "other" if theirs.get(name) == "other" else "none" if text is None else f"={text}"
            ours[name] = ["dynamic" if key.dynamic else "fixed", default]
    assert ours == {name: [kind, default] for name, kind, default in TABLE}


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
        ("default.replication.factor", "3", "Set zookeeper.connect, or default.replication.factor=1"),
        ("default.replication.factor", "0", "at least 1"),
        ("offsets.topic.replication.factor", "40000", "does not fit into 16 bits"),
        ("inter.broker.listener.name", "PEERS", "there is no listener named PEERS"),
        ("leader.imbalance.per.broker.percentage", "101", "between 0 and 100"),
        ("replica.fetch.wait.max.ms", "30001", "replica.lag.time.max.ms (30000)"),
        ("replica.socket.timeout.ms", "499", "replica.fetch.wait.max.ms (500)"),
        ("replica.selector.class", "com.example.Nearest", "RackAwareReplicaSelector"),
        ("zookeeper.connect", "", "such as zk1:2181/ottla"),
        ("zookeeper.connect", "zk1", "such as zk1:2181/ottla"),
        ("zookeeper.connect", "zk1:2181,", "such as zk1:2181/ottla"),
        ("zookeeper.connect", "zk1:0", "such as zk1:2181/ottla"),
        ("zookeeper.set.acl", "true", "needs a login at ZooKeeper"),
        ("ottla.zookeeper.digest", "broker", "such as broker:secret"),
        ("ottla.zookeeper.jaas.config", "x required;", "the entry of a JAAS file with username and password"),
        ("zookeeper.connect", "zk1:2181/a,zk2:2181/a", "such as zk1:2181/ottla"),
        ("zookeeper.connect", "zk1:2181/a//b", "such as zk1:2181/ottla"),
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
        ("listeners", "SSL://:9092", "needs a certificate for TLS"),
        ("listeners", "INSIDE://:9092", "no protocol for the listener INSIDE"),
        ("listener.security.protocol.map", "INSIDE", "NAME:PROTOCOL"),
        ("listener.security.protocol.map", "INSIDE:TLS", "a protocol of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
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


@pytest.mark.parametrize("servers", ["zk1:2181", "zk1:2181,zk2:2181, [::1]:2182/a/b-c", "10.0.0.1:2181/ottla"])
def test_a_broker_of_a_cluster(servers: str) -> None:
    config = BrokerConfig.parse({"zookeeper.connect": servers, "default.replication.factor": "3"})
    assert config.is_clustered
    assert (config.offsets_topic_replicas, config.transaction_log_replicas, config.transaction_log_min_isr) == (3, 3, 2)


def test_a_broker_that_is_alone_keeps_one_replica() -> None:
    config = BrokerConfig.parse({"offsets.topic.replication.factor": "3"})
    assert not config.is_clustered
    assert (config.offsets_topic_replicas, config.transaction_log_replicas, config.transaction_log_min_isr) == (1, 1, 1)


@pytest.mark.parametrize("name", ["LeaderSelector", "RackAwareReplicaSelector"])
def test_kafkas_replica_selectors(name: str) -> None:
    selector = f"org.apache.kafka.common.replica.{name}"
    assert BrokerConfig.parse({"replica.selector.class": selector}).replica_selector_class == selector


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
        ("delegation.token.secret.key", "It requests delegation tokens"),
        ("zookeeper.ssl.crl.enable", "It requests lists of revoked certificates"),
        ("ssl.engine.factory.class", "Java"),
        ("listener.name.plaintext.ssl.engine.factory.class", "Java"),
        ("listener.name.plaintext.ssl.keystore.locaton", "Did you mean ssl.keystore.location?"),
        ("remote.log.storage.system.enable", "It enables remote storage"),
        ("principal.builder.class", "Java"),
        ("sasl.oauthbearer.jwt.validator.class", "Java"),
        ("create.topic.policy.class.name", "Java"),
        ("num.partitons", "Did you mean num.partitions?"),
    ],
)
def test_names_that_cannot_be_left_aside_are_refused(name: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.parse({name: "x"})
    assert name in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "delegation.token.expiry.time.ms",
        "delegation.token.max.lifetime.ms",
        "listener.name.plaintext.sasl.kerberos.service.name",
        "remote.log.manager.task.interval.ms",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.service.name",
        "sasl.oauthbearer.client.credentials.client.secret",
    ],
)
def test_the_details_of_what_is_not_enabled_have_no_effect(name: str) -> None:
    assert BrokerConfig.parse({name: "x"}).ignored == (name,)
    assert parse_broker_properties(f"{name}=x").ignored == (name,)


def test_what_enables_kerberos_is_refused() -> None:
    sasl = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.kerberos.service.name": "kafka"}
    with pytest.raises(ConfigError, match=r"requires GSSAPI \(Kerberos\), which this broker does not have"):
        BrokerConfig.parse(sasl)
    with pytest.raises(ConfigError, match=r"requires GSSAPI \(Kerberos\), which this broker does not have"):
        BrokerConfig.parse({**sasl, "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,GSSAPI"})
    assert "GSSAPI" in BrokerConfig.parse({"sasl.enabled.mechanisms": "GSSAPI"}).sasl_enabled_mechanisms


DEFAULTS = parse_properties((Path(__file__).parent / "kafka_broker.properties").read_text())


def test_kafkas_whole_default_configuration_is_accepted() -> None:
    assert len(DEFAULTS) > 250
    assert BrokerConfig.parse(DEFAULTS).num_partitions == 1
    for name in NAMES:
        value = DEFAULTS.get(name, "")
        if rejection_of(name) is not None:
            assert BrokerConfig.parse({name: value}).ignored == (name,)


def test_a_default_that_is_harmless_cannot_be_changed_to_what_is_not() -> None:
    assert BrokerConfig.parse({"zookeeper.ssl.crl.enable": False}).ignored
    with pytest.raises(ConfigError, match="It requests lists of revoked certificates"):
        BrokerConfig.parse({"zookeeper.ssl.crl.enable": True})
    with pytest.raises(ConfigError, match="It enables remote storage"):
        broker_key("remote.log.storage.system.enable")


NAMES = (Path(__file__).parent / "kafka_broker_names.txt").read_text().split()
"""Every name of the broker configuration of Apache Kafka 4.2."""


def test_every_name_of_kafka_is_known_left_aside_or_refused_for_a_reason() -> None:
    ways = {name: (name in rows(BrokerConfig), is_ignored(name), rejection_of(name) is not None) for name in NAMES}
    assert [name for name, way in ways.items() if sum(way) != 1] == []


def test_names_that_change_nothing_here_are_reported() -> None:
    config = BrokerConfig.parse({"num.io.threads": "8", "process.roles": "broker,controller", "num.partitions": "2"})
    assert config.ignored == ("num.io.threads", "process.roles")
    assert config.given == {"num.partitions": "2", "num.io.threads": "8"}


def test_names_that_change_nothing_here_still_have_a_type() -> None:
    with pytest.raises(ConfigError, match=r"num\.io\.threads: expected a whole number"):
        BrokerConfig.parse({"num.io.threads": "many"})
    assert set(UNUSED) <= set(NAMES), "they are Kafka's"
    assert not set(UNUSED) & set(rows(BrokerConfig))
    assert all(is_ignored(name) for name in UNUSED)


def test_no_name_of_kafka_is_called_unknown() -> None:
    refusals = [str(error) for name in NAMES if (error := _refusal(name)) is not None]
    assert len(refusals) > 50
    assert [text for text in refusals if "nknown" in text] == []


def _refusal(name: str) -> ConfigError | None:
    try:
        broker_key(name)
    except ConfigError as error:
        return error
    return None


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
