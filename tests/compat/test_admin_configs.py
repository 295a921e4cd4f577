"""Configs of topics and of the broker, described and changed by each library's admin client."""

from __future__ import annotations

import pytest

from .clients.base import Admin, Client, ClientError, Code
from .conftest import MakeTopic, unique_name
from .waiting import until

# Kafka's defaults; a broker with other values reports them as not default.
TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def value(admin: Admin, topic: str, name: str) -> str | None:
    return admin.describe_topic_configs(topic)[name].value


def test_the_settings_of_a_topic_and_their_defaults(client: Client, make_topic: MakeTopic) -> None:
    configs = client.admin().describe_topic_configs(make_topic(cleanup_policy="compact", segment_bytes="2097152"))
    assert TOPIC_DEFAULTS.keys() <= configs.keys()
    given = {"cleanup.policy": "compact", "segment.bytes": "2097152"}
    for name, default in TOPIC_DEFAULTS.items():
        if name in given:
            assert (configs[name].value, configs[name].is_default) == (given[name], False)
        elif configs[name].is_default:
            assert (name, configs[name].value) == (name, default)
    assert not any(config.read_only or config.sensitive for config in configs.values())


def test_the_settings_of_the_broker(client: Client) -> None:
    admin = client.admin()
    node = admin.describe_cluster().controller
    configs = admin.describe_broker_configs(node)
    expected = {"log.retention.ms", "num.partitions", "message.max.bytes", "auto.create.topics.enable", "log.dirs"}
    assert expected <= configs.keys()
    assert configs["message.max.bytes"].value == "1048588"
    assert configs["log.dirs"].read_only
    assert not configs["message.max.bytes"].read_only


@pytest.mark.needs("replace_configs")
def test_altering_replaces_all_settings(client: Client, make_topic: MakeTopic) -> None:
    topic, admin = make_topic(retention_ms="1000000", cleanup_policy="compact"), client.admin()
    admin.alter_topic_configs(topic, {"max.message.bytes": "5000"})
    until(lambda: value(admin, topic, "max.message.bytes") == "5000", "the new value is described")
    assert value(admin, topic, "retention.ms") == "604800000"
    assert value(admin, topic, "cleanup.policy") == "delete"


@pytest.mark.needs("incremental_alter_configs")
def test_changing_leaves_the_other_settings_alone(client: Client, make_topic: MakeTopic) -> None:
    topic, admin = make_topic(retention_ms="1000000", flush_ms="500"), client.admin()
    admin.change_topic_configs(topic, {"max.message.bytes": ("set", "5000"), "flush.ms": ("delete", None)})
    until(lambda: value(admin, topic, "max.message.bytes") == "5000", "the new value is described")
    assert value(admin, topic, "retention.ms") == "1000000"
    flush = admin.describe_topic_configs(topic)["flush.ms"]
    assert (flush.value, flush.is_default) == ("9223372036854775807", True)


@pytest.mark.needs("incremental_alter_configs")
def test_lists_are_appended_to_and_subtracted_from(client: Client, make_topic: MakeTopic) -> None:
    topic, admin = make_topic(), client.admin()
    admin.change_topic_configs(topic, {"cleanup.policy": ("append", "compact")})
    until(lambda: value(admin, topic, "cleanup.policy") == "delete,compact", "both policies are described")
    admin.change_topic_configs(topic, {"cleanup.policy": ("subtract", "delete")})
    until(lambda: value(admin, topic, "cleanup.policy") == "compact", "one policy is described")
    with pytest.raises(ClientError) as error:
        admin.change_topic_configs(topic, {"retention.ms": ("append", "1")})
    assert error.value.code == Code.INVALID_CONFIG


BAD_CHANGES = {
    "unknown name": ("retention.mss", "1"),
    "bad number": ("retention.ms", "soon"),
    "out of range": ("min.insync.replicas", "0"),
    "bad choice": ("compression.type", "rar"),
}


@pytest.mark.parametrize("case", BAD_CHANGES)
def test_a_bad_setting_is_refused_and_changes_nothing(client: Client, make_topic: MakeTopic, case: str) -> None:
    name, bad = BAD_CHANGES[case]
    topic, admin = make_topic(flush_ms="500"), client.admin()
    with pytest.raises(ClientError) as error:
        admin.alter_topic_configs(topic, {name: bad, "flush.ms": "700"})
    assert error.value.code == Code.INVALID_CONFIG
    if "incremental_alter_configs" not in client.lacks:
        with pytest.raises(ClientError) as error:
            admin.change_topic_configs(topic, {name: ("set", bad), "flush.ms": ("set", "700")})
        assert error.value.code == Code.INVALID_CONFIG
    assert value(admin, topic, "flush.ms") == "500"


@pytest.mark.needs("replace_configs")
def test_settings_of_a_topic_that_is_not_there(client: Client) -> None:
    admin, name = client.admin(), unique_name()
    with pytest.raises(ClientError) as describing:
        admin.describe_topic_configs(name)
    with pytest.raises(ClientError) as altering:
        admin.alter_topic_configs(name, {"flush.ms": "500"})
    assert describing.value.code == altering.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION
