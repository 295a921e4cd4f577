"""The configuration of a group: what Kafka 4 lets be set for one group of the consumer protocol while it runs.

Kafka's names for share groups and streams groups are not here, since there are no such groups here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ottla.config.broker import BrokerConfig
from ottla.config.fields import at_least, int32
from ottla.config.table import ConfigTable, attribute
from ottla.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig(ConfigTable):
    """The configuration of one group, typed."""

    what: ClassVar[str] = "group config"

    consumer_session_timeout_ms: int = int32(
        45_000,
        "A member of the group that is silent for this long is removed. The broker's "
        "group.consumer.session.timeout.ms unless it is set.",
        at_least(1),
    )
    consumer_heartbeat_interval_ms: int = int32(
        5_000,
        "How often members of the group are told to send heartbeats. The broker's "
        "group.consumer.heartbeat.interval.ms unless it is set.",
        at_least(1),
    )


def effective_group_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupConfig:
    """What holds for a group with these settings of its own; ConfigError names one that is not valid.

    That they fit the broker's limits is checked when they are altered, not here: new limits of the broker must not
    take a group's members away.

    >>> effective_group_config(BrokerConfig(), {"consumer.session.timeout.ms": "50000"}).consumer_session_timeout_ms
    50000
    """
    values = {attribute(name): getattr(broker, f"group_{attribute(name)}") for name in GroupConfig.rows()}
    for name, text in GroupConfig.named(overrides).items():
        values[attribute(name)] = GroupConfig.key(name).parse(text)
    return GroupConfig.of(values)


def check_group_overrides(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """ConfigError names a setting that is not valid, or outside of what the broker allows."""
    config = effective_group_config(broker, overrides)
    for name in GroupConfig.named(overrides):
        value, (low, high) = getattr(config, attribute(name)), _limits(name)
        if value < getattr(broker, attribute(low)):
            raise ConfigError(f"{name} must be greater than or equal to {low} ({getattr(broker, attribute(low))}).")
        if value > getattr(broker, attribute(high)):
            raise ConfigError(f"{name} must be less than or equal to {high} ({getattr(broker, attribute(high))}).")
    if config.consumer_session_timeout_ms <= config.consumer_heartbeat_interval_ms:
        raise ConfigError("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms.")


def _limits(name: str) -> tuple[str, str]:
    """
    >>> _limits("consumer.session.timeout.ms")
    ('group.consumer.min.session.timeout.ms', 'group.consumer.max.session.timeout.ms')
    """
    protocol, _, rest = name.partition(".")
    return f"group.{protocol}.min.{rest}", f"group.{protocol}.max.{rest}"
