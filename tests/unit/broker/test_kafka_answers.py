"""A single broker answers as Kafka does where a client would notice a difference."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

import ottla
from ottla import errors
from ottla.protocol.apis import ApiKey
from unit.broker.wire import Wire, batch

BROKER_LOGGER, CLIENT_METRICS = 8, 16


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.Broker]:
    with ottla.Broker() as broker:
        with Wire(broker.bootstrap_servers) as wire:
            wire.create_topic("orders", 2)
            wire.produce("orders", batch(b"a"))
        yield broker


# ── offsets and groups ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lone_consumer_with_a_pattern_has_its_topics_at_once_when_it_returns(wire: Wire) -> None:
    group = f"group-{uuid4().hex[:8]}"
    wire.call(ApiKey.FIND_COORDINATOR, 3, {"key": group})

    def heartbeat(member_id: str, epoch: int) -> Any:
        message = {
            "group_id": group, "member_id": member_id, "member_epoch": epoch, "rebalance_timeout": 10_000,
            "subscribed_topic_regex": "ord.*", "subscribed_topic_names": [], "topic_partitions": [],
        }  # fmt: skip
        answer = wire.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, message)
        assert answer.error_code == 0, answer.error_message
        return answer

    for _ in range(3):
        member_id = str(uuid4())
        joined = heartbeat(member_id, 0)
        answer = heartbeat(member_id, joined.member_epoch)
        assert len(answer.assignment.topic_partitions[0].partitions) == 2
        heartbeat(member_id, -1)


def test_kafka_knows_every_type_of_record_in_the_topic_of_offsets(wire: Wire, broker: ottla.Broker) -> None:
    """Rebalances, which ``ottla groups explain`` shows, look like the tombstones of an offset."""
    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="explained") as consumer:
        consumer.subscribe(["orders"])
        while not consumer.assignment():
            consumer.poll(0.1)
    with ottla.Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as reader:
        reader.assign([ottla.TopicPartition("__consumer_offsets", index) for index in range(50)])
        records = []
        while found := reader.poll(0.5):
            records += list(found)
    assert {int.from_bytes(record.key[:2], "big") for record in records} <= set(range(24))
    rebalances = [record for record in records if record.headers]
    assert rebalances
    assert {(record.value, record.key[:2]) for record in rebalances} == {(None, b"\0\1")}


# ── APIs that are not served ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("api_key", "version", "message"),
    [
        (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, {"client_instance_id": None}),
        (ApiKey.ALLOCATE_PRODUCER_IDS, 0, {"broker_id": 1, "broker_epoch": 1}),
        (
            ApiKey.INIT_PRODUCER_ID, 6,
            {"transactional_id": "t", "transaction_timeout": 1, "enable2_pc": True, "keep_prepared_txn": False},
        ),
    ],
)  # fmt: skip
def test_an_api_that_is_not_served_is_refused_and_the_connection_stays(
    wire: Wire, api_key: int, version: int, message: dict[str, Any]
) -> None:
    assert wire.call(api_key, version, message).error_code == errors.UnsupportedVersion.code
    assert wire.call(ApiKey.API_VERSIONS, 0, {}).error_code == 0


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b"\x00\x4c\x00\x01", "the API ShareGroupHeartbeat is not served"),
        (b"\x00\x58\x00\x00", "the API StreamsGroupHeartbeat is not served"),
        (b"\x12\x67\x00\x00", "the API with the key 4711, which Kafka does not have, is not served"),
        (b"\x00\x03\x00\x63", "Metadata v99 is not served, only v0 to v13"),
    ],
)
def test_what_no_response_can_say_closes_the_connection_with_a_name_in_the_log(
    wire: Wire, caplog: pytest.LogCaptureFixture, header: bytes, says: str
) -> None:
    with caplog.at_level(logging.WARNING, "ottla.net"):
        wire.socket.sendall(b"\x00\x00\x00\x0b" + header + b"\x00\x00\x00\x01" + b"\x00\x00" + b"\x00")
        assert wire.is_closed()
    assert says in caplog.text


# ── configs ───────────────────────────────────────────────────────────────────────────────────────────────────────


def describe(wire: Wire, kind: int, name: str, *names: str) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(names) or None}
    return wire.call(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]}).results[0]


def alter(wire: Wire, kind: int, name: str, config: str, value: str | None, operation: int = 0, **more: Any) -> Any:
    configs = [{"name": config, "config_operation": operation, "value": value}]
    message = {"resources": [{"resource_type": kind, "resource_name": name, "configs": configs}], **more}
    return wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, message).responses[0]


@pytest.fixture
def level() -> Iterator[None]:
    yield
    logging.getLogger("ottla.net").setLevel(logging.NOTSET)


def test_the_levels_of_loggers_can_be_read_and_changed(wire: Wire, level: None) -> None:
    found = describe(wire, BROKER_LOGGER, "1")
    assert found.error_code == 0
    assert {"ottla.broker", "ottla.net"} <= {each.name for each in found.configs}
    assert {each.value for each in found.configs} <= {"DEBUG", "INFO", "WARN", "ERROR", "FATAL"}
    assert {(each.config_source, each.read_only) for each in found.configs} == {(6, False)}
    assert alter(wire, BROKER_LOGGER, "1", "ottla.net", "FATAL", validate_only=True).error_code == 0
    assert logging.getLogger("ottla.net").level == logging.NOTSET
    assert alter(wire, BROKER_LOGGER, "1", "ottla.net", "FATAL").error_code == 0
    (changed,) = describe(wire, BROKER_LOGGER, "1", "ottla.net").configs
    assert (changed.name, changed.value) == ("ottla.net", "FATAL")
    assert logging.getLogger("ottla.net").level == logging.CRITICAL
    assert alter(wire, BROKER_LOGGER, "1", "ottla.net", None, operation=1).error_code == 0
    assert logging.getLogger("ottla.net").level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "logger", "value", "operation", "error", "says"),
    [
        ("2", "ottla.net", "INFO", 0, errors.InvalidRequest, "not here"),
        ("1", "ottla.nett", "INFO", 0, errors.InvalidConfig, "Did you mean ottla.net?"),
        ("1", "ottla.net", "LOUD", 0, errors.InvalidConfig, "TRACE, DEBUG"),
        ("1", "ottla.net", "INFO", 2, errors.InvalidRequest, "SET or DELETE"),
    ],
)
def test_a_wrong_level_is_refused(
    wire: Wire, name: str, logger: str, value: str, operation: int, error: type[errors.KafkaError], says: str
) -> None:
    answer = alter(wire, BROKER_LOGGER, name, logger, value, operation)
    assert answer.error_code == error.code
    assert says in answer.error_message


def test_old_requests_cannot_change_loggers(wire: Wire) -> None:
    resource = {
        "resource_type": BROKER_LOGGER,
        "resource_name": "1",
        "configs": [{"name": "ottla.net", "value": "INFO"}],
    }
    answer = wire.call(ApiKey.ALTER_CONFIGS, 2, {"resources": [resource]}).responses[0]
    assert answer.error_code == errors.InvalidRequest.code
    assert "IncrementalAlterConfigs" in answer.error_message


def test_client_metrics_are_refused_by_name(wire: Wire) -> None:
    for answer in (describe(wire, CLIENT_METRICS, "all"), alter(wire, CLIENT_METRICS, "all", "interval.ms", "1")):
        assert answer.error_code == errors.InvalidRequest.code
        assert "CLIENT_METRICS" in answer.error_message
    assert "no resource type 7" in describe(wire, 7, "x").error_message
    listed = wire.call(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [BROKER_LOGGER, CLIENT_METRICS]})
    assert [(each.resource_type, each.resource_name) for each in listed.config_resources] == [(BROKER_LOGGER, "1")]


# ── what only a cluster can change ────────────────────────────────────────────────────────────────────────────────


def test_a_replica_is_not_moved_to_another_directory(tmp_path: Any) -> None:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    with ottla.Broker(config={"log.dirs": ",".join(directories)}) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        codes = []
        for path in directories:
            dirs = [{"path": path, "topics": [{"name": "orders", "partitions": [0]}]}]
            answer = wire.call(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, {"dirs": dirs})
            codes.append(answer.results[0].partitions[0].error_code)
        assert sorted(codes) == [0, errors.InvalidRequest.code]


def test_features_have_the_level_of_the_release(wire: Wire) -> None:
    versions = wire.call(ApiKey.API_VERSIONS, 4, {"client_software_name": "test", "client_software_version": "1"})
    levels = {each.name: each.max_version_level for each in versions.finalized_features}
    assert levels["metadata.version"] >= 25
    supported = {each.name: (each.min_version, each.max_version) for each in versions.supported_features}
    assert supported["metadata.version"][1] == levels["metadata.version"]

    def update(feature: str, level: int) -> int:
        updates = [{"feature": feature, "max_version_level": level, "upgrade_type": 1}]
        return int(wire.call(ApiKey.UPDATE_FEATURES, 2, {"feature_updates": updates}).error_code)

    assert update("metadata.version", levels["metadata.version"]) == 0
    assert update("metadata.version", 99) == errors.InvalidUpdateVersion.code
    assert update("nothing.version", 1) == errors.InvalidUpdateVersion.code


def test_only_a_broker_that_is_away_can_be_unregistered(wire: Wire) -> None:
    unknown = wire.call(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 4711})
    assert unknown.error_code == errors.BrokerIdNotRegistered.code
    alive = wire.call(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 1})
    assert alive.error_code != 0
    assert alive.error_message
    assert wire.produce("orders", batch(b"b")).error_code == 0
