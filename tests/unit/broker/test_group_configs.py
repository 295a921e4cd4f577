"""Configs of groups: set over the wire, sent to members, kept after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ottla
from ottla import errors
from ottla.protocol.apis import ApiKey
from unit.broker.wire import Wire

GROUP_RESOURCE, TOPIC_RESOURCE = 32, 2
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
DEFAULT, OWN = 5, 8
MEMBER = "7b2f5c5e-5a2c-4d2c-9f4e-0c8f6f1d2a3b"


def alter(wire: Wire, group: str, name: str, value: str | None, **request: Any) -> tuple[int, str | None]:
    change = {"name": name, "config_operation": 0 if value is not None else 1, "value": value}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": [change]}
    (answer,) = wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], **request}).responses
    return answer.error_code, answer.error_message


def described(wire: Wire, group: str) -> dict[str, tuple[str, int]]:
    asked = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configuration_keys": None}
    (answer,) = wire.call(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [asked]}).results
    assert answer.error_code == 0
    return {config.name: (config.value, config.config_source) for config in answer.configs}


def beat(wire: Wire, group: str, epoch: int) -> Any:
    wire.call(ApiKey.FIND_COORDINATOR, 3, {"key": group, "key_type": 0})
    message = {"group_id": group, "member_id": MEMBER, "member_epoch": epoch, "topic_partitions": None}
    if epoch == 0:
        message |= {"rebalance_timeout": 10_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
    answer = wire.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, message)
    assert answer.error_code == 0
    return answer


def test_members_are_told_at_their_next_heartbeat() -> None:
    with ottla.Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        joined = beat(wire, "billing", 0)
        assert joined.heartbeat_interval == 5_000
        assert alter(wire, "billing", HEARTBEAT, "6000") == (0, None)
        assert beat(wire, "billing", joined.member_epoch).heartbeat_interval == 6_000
        assert alter(wire, "billing", HEARTBEAT, None) == (0, None)
        assert beat(wire, "billing", joined.member_epoch).heartbeat_interval == 5_000


def test_they_are_described_with_where_they_come_from_and_survive_a_restart(tmp_path: Path) -> None:
    with ottla.Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        assert described(wire, "billing") == {SESSION: ("45000", DEFAULT), HEARTBEAT: ("5000", DEFAULT)}
        assert alter(wire, "billing", SESSION, "50000") == (0, None)
        assert alter(wire, "billing", SESSION, "51000", validate_only=True) == (0, None)
    with ottla.Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        assert described(wire, "billing") == {SESSION: ("50000", OWN), HEARTBEAT: ("5000", DEFAULT)}
        assert described(wire, "other") == {SESSION: ("45000", DEFAULT), HEARTBEAT: ("5000", DEFAULT)}


def test_what_is_wrong_is_refused_as_kafka_does() -> None:
    with ottla.Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        assert alter(wire, "billing", SESSION, "1000")[0] == errors.InvalidConfig.code
        assert alter(wire, "billing", "nonsense", "1")[0] == errors.InvalidConfig.code
        assert alter(wire, "", SESSION, "50000")[0] == errors.InvalidRequest.code
        assert described(wire, "billing")[SESSION] == ("45000", DEFAULT)


def test_resources_with_configs_are_listed() -> None:
    with ottla.Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        alter(wire, "billing", SESSION, "50000")

        def listed(version: int, types: list[int]) -> Any:
            return wire.call(ApiKey.LIST_CONFIG_RESOURCES, version, {"resource_types": types})

        def found(version: int, types: list[int]) -> list[tuple[int, str]]:
            return [(one.resource_type, one.resource_name) for one in listed(version, types).config_resources]

        assert found(1, [GROUP_RESOURCE]) == [(GROUP_RESOURCE, "billing")]
        everything = found(1, [])
        assert {(GROUP_RESOURCE, "billing"), (TOPIC_RESOURCE, "orders"), (4, "1")} <= set(everything)
        assert found(0, []) == []  # v0 lists client metrics only.
        assert listed(1, [99]).error_code == errors.UnsupportedVersion.code
