"""The configuration table of a consumer group: the settings that Kafka 4 allows for one group while it runs.

There are no names for share groups and streams groups, because this broker has no such groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ottla.config.broker import BrokerConfig
from ottla.config.fields import at_least, int32
from ottla.config.table import attribute, named, parsed, rows
from ottla.errors import ConfigError
from ottla.suggestions import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The typed configuration of one group."""

    what: ClassVar[str] = "group config"

    consumer_session_timeout_ms: int = int32(
        45_000,
        "Remove a member without a heartbeat for this long. If not set, the broker's "
        "group.consumer.session.timeout.ms applies.",
        at_least(1),
    )
    consumer_heartbeat_interval_ms: int = int32(
        5_000,
        "The heartbeat interval of members. If not set, the broker's group.consumer.heartbeat.interval.ms applies.",
        at_least(1),
    )

    @classmethod
    def suggestion(cls, name: str) -> str:
        return did_you_mean(name, rows(cls))


_OTHER_GROUPS = {"share": "share groups", "streams": "streams groups"}


def _refuse_other_groups(names: Iterable[str]) -> None:
    for name in names:
        kind = _OTHER_GROUPS.get(name.partition(".")[0])
        if kind is not None:
            raise ConfigError(f"{name} is a config of {kind}, which this broker does not have.")


def effective_group_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupConfig:
    """Return the configuration of a group with these overrides. Raise ConfigError for an invalid one.

    The broker's limits are checked when a setting is changed, not here: new limits must not remove members.

    >>> effective_group_config(BrokerConfig(), {"consumer.session.timeout.ms": "50000"}).consumer_session_timeout_ms
    50000
    """
    defaults = {attribute(name): getattr(broker, f"group_{attribute(name)}") for name in rows(GroupConfig)}
    return GroupConfig(**{**defaults, **parsed(GroupConfig, overrides)})


def check_group_overrides(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise ConfigError for a setting that is invalid or outside the broker's limits."""
    _refuse_other_groups(overrides)
    config = effective_group_config(broker, overrides)
    for name in named(GroupConfig, overrides):
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
