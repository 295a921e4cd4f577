"""Compute the settings after AlterConfigs or IncrementalAlterConfigs, and reject invalid changes. Stores nothing.

As in Kafka, an invalid value is INVALID_CONFIG for topics and groups, and INVALID_REQUEST for the broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.config.broker import BrokerConfig, broker_key
from ottla.config.effective import check_topic_overrides
from ottla.config.fields import ConfigType, Key
from ottla.config.group import GroupConfig, check_group_overrides
from ottla.config.table import ConfigTable, rows
from ottla.config.topic import TopicConfig
from ottla.errors import ConfigError, InvalidRequest

_MAX_VALUE_BYTES = 32_767


class AlterOp(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One operation of IncrementalAlterConfigs. `op` is the client's number, not checked yet."""

    name: str
    op: int
    value: str | None


Change = Mapping[str, str | None] | Sequence[Alteration]
"""A mapping replaces all settings (AlterConfigs). Alterations change some (IncrementalAlterConfigs)."""


def alter_topic(broker: BrokerConfig, overrides: Mapping[str, str], change: Change) -> dict[str, str]:
    """Return a topic's settings after a change."""
    settings = _changed(TopicConfig, overrides, change)
    check_topic_overrides(settings, broker)
    return settings


def alter_group(broker: BrokerConfig, overrides: Mapping[str, str], change: Change) -> dict[str, str]:
    """Return a group's settings after a change."""
    settings = _changed(GroupConfig, overrides, change)
    check_group_overrides(settings, broker)
    return settings


def alter_broker(broker: BrokerConfig, change: Change, *, for_all_brokers: bool) -> dict[str, str]:
    """Return the dynamic settings of this broker, or of all brokers, after a change."""
    layer = broker.dynamic_default if for_all_brokers else broker.dynamic
    try:
        settings = {broker_key(name).name: value for name, value in _changed(BrokerConfig, layer, change).items()}
        changed = sorted(name for name, value in settings.items() if layer.get(name) != value)
        fixed = [name for name in changed if not broker_key(name).dynamic]
        if fixed:
            raise InvalidRequest(
                f"Cannot be changed while the broker runs: {', '.join(fixed)}. Restart the broker with the new value."
            )
        dynamic, default = (broker.dynamic, settings) if for_all_brokers else (settings, broker.dynamic_default)
        broker.with_dynamic(dynamic, default)
    except ConfigError as error:
        raise InvalidRequest(str(error)) from None
    return settings


def _changed(table: type[ConfigTable], settings: Mapping[str, str], change: Change) -> dict[str, str]:
    if isinstance(change, Mapping):
        return {name: check_value(name, value) for name, value in change.items()}
    return _altered(table, settings, change)


def _altered(
    table: type[ConfigTable], settings: Mapping[str, str], alterations: Sequence[Alteration]
) -> dict[str, str]:
    twice = sorted(name for name, count in Counter(each.name for each in alterations).items() if count > 1)
    if twice:
        raise InvalidRequest(f"Changed twice in one request: {', '.join(twice)}.")
    altered = dict(settings)
    for alteration in alterations:
        value = _apply(rows(table).get(alteration.name), altered.get(alteration.name), alteration)
        if value is None:
            altered.pop(alteration.name, None)
        else:
            altered[alteration.name] = check_value(alteration.name, value)
    return altered


def _apply(row: Key | None, present: str | None, alteration: Alteration) -> str | None:
    """Return the new value, or None to remove the name. Unknown names are rejected later, with the whole."""
    name, op, value = alteration
    if op == AlterOp.DELETE:
        return None
    if op not in tuple(AlterOp):
        raise InvalidRequest(f"Unknown operation {op} for {name}.")
    text = check_value(name, value)
    if op == AlterOp.SET or row is None:
        return text
    return _alter_list(row, present, AlterOp(op), text)


def _alter_list(row: Key, present: str | None, op: AlterOp, text: str) -> str:
    if row.type is not ConfigType.LIST:
        raise ConfigError(f"Cannot {op.name} to {row.name}: it is not a list.")
    old = _items(row.format(row.default) or "" if present is None else present)
    new = _items(text)
    if op is AlterOp.APPEND:
        return ",".join(dict.fromkeys(old + new))
    return ",".join(item for item in old if item not in new)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def check_value(name: str, value: str | None) -> str:
    """Return a value that a client may set, or raise an error."""
    if value is None:
        raise InvalidRequest(
            f"The new value of {name} is null. To remove the setting, use DELETE of IncrementalAlterConfigs."
        )
    if len(value.encode()) > _MAX_VALUE_BYTES:
        raise ConfigError(f"The new value of {name} is longer than {_MAX_VALUE_BYTES} bytes.")
    return value
