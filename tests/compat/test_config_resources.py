"""Loggers of the broker and metrics of clients as config resources, and APIs that clients are not meant to use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from ottla import errors

from .conftest import unique_name
from .wire import API_KEYS, Content, Disconnected, Wire

BROKER, BROKER_LOGGER, CLIENT_METRICS = 4, 8, 16  # types of resources
NO_TYPE = 7
SET, DELETE, APPEND = 0, 1, 2  # operations
DYNAMIC_BROKER_LOGGER, DYNAMIC_CLIENT_METRICS = 6, 7  # sources of values
LEVELS = {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"}


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[Wire]:
    with Wire(bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def node(wire: Wire) -> str:
    (broker,) = wire.call("metadata", 12, {"topics": [], "allow_auto_topic_creation": False}).brokers
    return str(broker.node_id)


@pytest.fixture
def names(wire: Wire, node: str) -> list[str]:
    """The loggers of the broker."""
    return sorted(config.name for config in describe(wire, BROKER_LOGGER, node).configs)


@pytest.fixture
def logger(wire: Wire, node: str, names: list[str]) -> Iterator[str]:
    yield names[0]
    alter(wire, BROKER_LOGGER, node, names[0], None, DELETE)


@pytest.fixture
def is_ottla(names: list[str]) -> bool:
    """Whether it is ottla, where that is not what Kafka is. Each use says why."""
    return "ottla.broker" in names


def describe(wire: Wire, kind: int, name: str, *keys: str) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    return wire.call("describe_configs", 4, {"resources": [resource]}).results[0]


def alter(wire: Wire, kind: int, name: str, key: str, value: str | None, operation: int = SET, **more: Any) -> Any:
    configs = [{"name": key, "config_operation": operation, "value": value}]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return wire.call(
        "incremental_alter_configs", 1, {"resources": [resource], "validate_only": False, **more}
    ).responses[0]


def alter_all(wire: Wire, kind: int, name: str, key: str, value: str) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configs": [{"name": key, "value": value}]}
    return wire.call("alter_configs", 2, {"resources": [resource], "validate_only": False}).responses[0]


def listed(wire: Wire, *kinds: int) -> set[tuple[int, str]]:
    answer = wire.call("list_config_resources", 1, {"resource_types": list(kinds)})
    assert answer.error_code == 0
    return {(each.resource_type, each.resource_name) for each in answer.config_resources}


# ── loggers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_levels_of_all_loggers(wire: Wire, node: str) -> None:
    found = describe(wire, BROKER_LOGGER, node)
    assert found.error_code == 0
    assert found.configs
    assert {config.value for config in found.configs} <= LEVELS
    assert {(config.config_source, config.read_only) for config in found.configs} == {(DYNAMIC_BROKER_LOGGER, False)}
    nothing = describe(wire, BROKER_LOGGER, node, "no.such.logger")
    assert (nothing.error_code, list(nothing.configs)) == (0, [])


def test_a_level_is_changed_and_reset(wire: Wire, node: str, logger: str) -> None:
    def level() -> str:
        (config,) = describe(wire, BROKER_LOGGER, node, logger).configs
        assert config.name == logger
        return str(config.value)

    before = level()
    for wanted in ("DEBUG", "ERROR", "FATAL"):  # Not TRACE, which is DEBUG in Python.
        assert alter(wire, BROKER_LOGGER, node, logger, wanted).error_code == 0
        assert level() == wanted
    assert alter(wire, BROKER_LOGGER, node, logger, "INFO", validate_only=True).error_code == 0
    assert level() == "FATAL"
    assert alter(wire, BROKER_LOGGER, node, logger, None, DELETE).error_code == 0
    assert level() == before


def test_a_wrong_level_is_refused(wire: Wire, node: str, logger: str) -> None:
    assert alter(wire, BROKER_LOGGER, node, logger, "LOUD").error_code == errors.InvalidConfig.code
    assert alter(wire, BROKER_LOGGER, node, logger, "OFF").error_code == errors.InvalidConfig.code
    assert alter(wire, BROKER_LOGGER, node, logger, "INFO", APPEND).error_code == errors.InvalidRequest.code
    assert alter(wire, BROKER_LOGGER, node, "no.such.logger", "INFO").error_code == errors.InvalidConfig.code


def test_loggers_are_those_of_the_broker_that_is_asked(wire: Wire, node: str, logger: str) -> None:
    for name in ("4711", ""):
        assert describe(wire, BROKER_LOGGER, name).error_code == errors.InvalidRequest.code
        assert alter(wire, BROKER_LOGGER, name, logger, "INFO").error_code == errors.InvalidRequest.code
    assert listed(wire, BROKER_LOGGER) == {(BROKER_LOGGER, node)}
    assert {(BROKER, node), (BROKER_LOGGER, node)} <= listed(wire)


def test_old_requests_cannot_change_loggers(wire: Wire, node: str, logger: str) -> None:
    assert alter_all(wire, BROKER_LOGGER, node, logger, "INFO").error_code == errors.InvalidRequest.code


# ── metrics of clients ────────────────────────────────────────────────────────────────────────────────────────────


def test_metrics_of_clients(wire: Wire, is_ottla: bool) -> None:
    """Kafka keeps subscriptions to metrics, also without a receiver. ottla collects none, and says so."""
    name = unique_name("metrics")
    if is_ottla:
        for answer in (
            describe(wire, CLIENT_METRICS, name),
            alter(wire, CLIENT_METRICS, name, "interval.ms", "60000"),
            alter_all(wire, CLIENT_METRICS, name, "interval.ms", "60000"),
        ):
            assert answer.error_code == errors.InvalidRequest.code
            assert "CLIENT_METRICS" in answer.error_message
        assert listed(wire, CLIENT_METRICS) == set()
        return
    assert alter(wire, CLIENT_METRICS, name, "interval.ms", "60000").error_code == 0
    (interval,) = describe(wire, CLIENT_METRICS, name, "interval.ms").configs
    assert (interval.value, interval.config_source) == ("60000", DYNAMIC_CLIENT_METRICS)
    assert (CLIENT_METRICS, name) in listed(wire, CLIENT_METRICS)
    assert alter(wire, CLIENT_METRICS, name, "interval.ms", None, DELETE).error_code == 0


def test_wrong_metrics_of_clients_are_refused(wire: Wire) -> None:
    for name, key in (("wrong", "no.such.config"), ("", "interval.ms")):
        assert alter(wire, CLIENT_METRICS, name, key, "60000").error_code == errors.InvalidRequest.code


# ── what is not served ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_type_of_resource_that_does_not_exist(wire: Wire) -> None:
    assert describe(wire, NO_TYPE, "x").error_code == errors.InvalidRequest.code
    assert alter(wire, NO_TYPE, "x", "a", "b").error_code == errors.InvalidRequest.code
    answer = wire.call("list_config_resources", 1, {"resource_types": [NO_TYPE]})
    assert (answer.error_code, list(answer.config_resources)) == (errors.UnsupportedVersion.code, [])


@pytest.mark.parametrize(
    ("api", "version", "content"),
    [
        # For brokers, from their controller.
        ("allocate_producer_ids", 0, {"broker_id": 1, "broker_epoch": 1}),
        # For two-phase commits, whose version is not stable.
        ("init_producer_id", 6, {"transactional_id": "t", "transaction_timeout": 1000, "enable2_pc": True}),
    ],
)
def test_an_api_that_is_not_advertised_is_refused(
    bootstrap_servers: str, wire: Wire, is_ottla: bool, api: str, version: int, content: Content
) -> None:
    answer = wire.call("api_versions", 0, {})
    assert not [key for key in answer.api_keys if key.api_key == API_KEYS[api] and key.max_version >= version]
    with Wire(bootstrap_servers) as other:
        if is_ottla:
            # Kafka closes the connection, so its clients cannot know why. Here they can, and the connection stays.
            assert other.call(api, version, content).error_code == errors.UnsupportedVersion.code
            assert other.call("api_versions", 0, {}).error_code == 0
        else:
            with pytest.raises(Disconnected):
                other.call(api, version, content)


def test_telemetry_is_not_advertised(wire: Wire, is_ottla: bool) -> None:
    """Kafka advertises it only with a receiver, but answers also without one."""
    answer = wire.call("api_versions", 0, {})
    assert API_KEYS["get_telemetry_subscriptions"] not in {key.api_key for key in answer.api_keys}
    told = wire.call("get_telemetry_subscriptions", 0, {"client_instance_id": UUID(int=0)})
    assert told.error_code == (errors.UnsupportedVersion.code if is_ottla else 0)
    assert wire.call("api_versions", 0, {}).error_code == 0
