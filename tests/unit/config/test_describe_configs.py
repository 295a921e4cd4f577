"""DescribeConfigs: values, sources and synonyms of topics and the broker."""

from ottla.config import (
    BrokerConfig,
    ConfigEntry,
    ConfigSource,
    ConfigType,
    Synonym,
    TopicConfig,
    describe_broker,
    describe_broker_default,
    describe_topic,
)
from ottla.config.table import rows


def topic_entry(name: str, broker: BrokerConfig, **overrides: str) -> ConfigEntry:
    dotted = {key.replace("_", "."): value for key, value in overrides.items()}
    (entry,) = describe_topic(broker, dotted, names=[name])
    return entry


def broker_entry(name: str, broker: BrokerConfig) -> ConfigEntry:
    (entry,) = describe_broker(broker, names=[name])
    return entry


def test_topic_default() -> None:
    entry = topic_entry("segment.bytes", BrokerConfig())
    assert entry == ConfigEntry(
        name="segment.bytes",
        value="1073741824",
        source=ConfigSource.DEFAULT,
        read_only=False,
        is_sensitive=False,
        synonyms=(Synonym("log.segment.bytes", "1073741824", ConfigSource.DEFAULT),),
        type=ConfigType.INT,
        documentation=rows(TopicConfig)["segment.bytes"].doc,
    )


def test_topic_layers_are_listed_strongest_first() -> None:
    static = BrokerConfig.parse({"message.max.bytes": "100"})
    broker = static.with_dynamic({"message.max.bytes": "300"}, {"message.max.bytes": "200"})
    entry = topic_entry("max.message.bytes", broker, max_message_bytes=" 400 ")
    assert (entry.value, entry.source) == ("400", ConfigSource.TOPIC)
    assert entry.synonyms == (
        Synonym("max.message.bytes", "400", ConfigSource.TOPIC),
        Synonym("message.max.bytes", "300", ConfigSource.DYNAMIC_BROKER),
        Synonym("message.max.bytes", "200", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Synonym("message.max.bytes", "100", ConfigSource.STATIC_BROKER),
        Synonym("message.max.bytes", "1048588", ConfigSource.DEFAULT),
    )
    assert topic_entry("max.message.bytes", broker).source is ConfigSource.DYNAMIC_BROKER


def test_topic_retention_names_all_of_the_brokers_names() -> None:
    entry = topic_entry("retention.ms", BrokerConfig.parse({"log.retention.minutes": "2"}))
    assert (entry.value, entry.source) == ("120000", ConfigSource.STATIC_BROKER)
    assert entry.synonyms == (
        Synonym("log.retention.minutes", "2", ConfigSource.STATIC_BROKER),
        Synonym("log.retention.hours", "168", ConfigSource.DEFAULT),
    )


def test_topic_without_a_name_on_the_broker() -> None:
    entry = topic_entry("remote.storage.enable", BrokerConfig())
    assert (entry.value, entry.source, entry.synonyms) == ("false", ConfigSource.DEFAULT, ())


def test_lists_are_shown_in_the_order_given() -> None:
    assert topic_entry("cleanup.policy", BrokerConfig(), cleanup_policy="delete , compact").value == "delete,compact"


def test_all_names_are_described_but_not_the_internal_ones() -> None:
    names = [entry.name for entry in describe_topic(BrokerConfig(), {"internal.segment.bytes": "100"})]
    assert len(names) == 33
    assert "internal.segment.bytes" not in names
    assert [entry.name for entry in describe_topic(BrokerConfig(), {}, names=[])] == names
    assert describe_topic(BrokerConfig(), {}, names=["no.such.name"]) == []


def test_every_entry_is_documented() -> None:
    entries = describe_topic(BrokerConfig(), {}) + describe_broker(BrokerConfig())
    assert all(entry.documentation.endswith(".") for entry in entries)


def test_broker_sources() -> None:
    broker = BrokerConfig.parse({"message.max.bytes": "100"}).with_dynamic({}, {"message.max.bytes": "200"})
    entry = broker_entry("message.max.bytes", broker)
    assert (entry.value, entry.source) == ("200", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert [synonym.source for synonym in entry.synonyms] == [3, 4, 5]


def test_broker_tells_what_can_be_altered() -> None:
    assert not broker_entry("message.max.bytes", BrokerConfig()).read_only
    assert broker_entry("num.partitions", BrokerConfig()).read_only
    assert broker_entry("listeners", BrokerConfig()).value == "PLAINTEXT://:9092"


def test_both_names_of_the_id_show_it() -> None:
    for given in ({"node.id": "7"}, {"broker.id": "7"}):
        broker = BrokerConfig.parse(given)
        assert [broker_entry(name, broker).value for name in ("node.id", "broker.id")] == ["7", "7"]


def test_broker_name_that_another_one_stands_in_for() -> None:
    broker = BrokerConfig.parse({"log.retention.hours": "2"})
    ms, hours = broker_entry("log.retention.ms", broker), broker_entry("log.retention.hours", broker)
    assert (ms.value, ms.source, ms.synonyms) == (None, ConfigSource.DEFAULT, ())
    assert (hours.value, hours.source) == ("2", ConfigSource.STATIC_BROKER)
    set_in_ms = broker_entry("log.retention.ms", broker.with_dynamic({"log.retention.ms": "9"}))
    assert [(synonym.name, synonym.value) for synonym in set_in_ms.synonyms] == [
        ("log.retention.ms", "9"),
        ("log.retention.hours", "2"),
        ("log.retention.hours", "168"),
    ]


def test_default_for_all_brokers_tells_only_what_was_altered() -> None:
    broker = BrokerConfig.parse({"num.partitions": "2"}).with_dynamic({"max.connections": "1"}, {"log.roll.ms": "5"})
    (entry,) = describe_broker_default(broker)
    assert (entry.name, entry.value, entry.source) == ("log.roll.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert not entry.read_only
