"""What the requests to alter configurations make of the settings that are stored, and what they may not do.

Everything here takes the settings as they are and gives the settings as they will be; nothing is stored here.
Topics and groups answer a bad value with INVALID_CONFIG, the broker with INVALID_REQUEST, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.effective import check_topic_overrides
from ottla.config.fields import ConfigType, Key
from ottla.config.group import GroupConfig, check_group_overrides
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
    """One operation of IncrementalAlterConfigs; `op` is as the client sent it."""

    name: str
    op: int
    value: str | None


def alter_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], alterations: Sequence[Alteration]
) -> dict[str, str]:
    """A topic's own settings after IncrementalAlterConfigs."""
    altered = _altered(TopicConfig.rows(), overrides, alterations)
    check_topic_overrides(altered, broker)
    return altered


def replace_topic(broker: BrokerConfig, values: Mapping[str, str | None]) -> dict[str, str]:
    """A topic's own settings after AlterConfigs, which replaces them all."""
    replaced = _without_nulls(values)
    check_topic_overrides(replaced, broker)
    return replaced


def alter_group(
    broker: BrokerConfig, overrides: Mapping[str, str], alterations: Sequence[Alteration]
) -> dict[str, str]:
    """A group's own settings after IncrementalAlterConfigs."""
    altered = _altered(GroupConfig.rows(), overrides, alterations)
    check_group_overrides(altered, broker)
    return altered


def replace_group(broker: BrokerConfig, values: Mapping[str, str | None]) -> dict[str, str]:
    """A group's own settings after AlterConfigs, which replaces them all."""
    replaced = _without_nulls(values)
    check_group_overrides(replaced, broker)
    return replaced


def alter_broker(broker: BrokerConfig, alterations: Sequence[Alteration], *, for_all_brokers: bool) -> dict[str, str]:
    """What is altered at run time, for this broker or for all brokers, after IncrementalAlterConfigs."""
    layer = broker.dynamic_default if for_all_brokers else broker.dynamic
    altered = _altered(BrokerConfig.rows(), layer, alterations)
    touched = [each.name for each in alterations if each.op != AlterOp.DELETE]
    return _checked_layer(broker, altered, touched, for_all_brokers=for_all_brokers)


def replace_broker(broker: BrokerConfig, values: Mapping[str, str | None], *, for_all_brokers: bool) -> dict[str, str]:
    """What is altered at run time, for this broker or for all brokers, after AlterConfigs."""
    replaced = _without_nulls(values)
    return _checked_layer(broker, replaced, list(replaced), for_all_brokers=for_all_brokers)


def _checked_layer(
    broker: BrokerConfig, layer: dict[str, str], touched: Sequence[str], *, for_all_brokers: bool
) -> dict[str, str]:
    try:
        fixed = sorted(name for name in touched if not BrokerConfig.key(name).dynamic)
        if fixed:
            raise InvalidRequest(f"Cannot be altered while the broker runs: {', '.join(fixed)}.")
        dynamic, default = (broker.dynamic, layer) if for_all_brokers else (layer, broker.dynamic_default)
        broker.with_dynamic(dynamic, default)
    except ConfigError as error:
        raise InvalidRequest(str(error)) from None
    return layer


def _without_nulls(values: Mapping[str, str | None]) -> dict[str, str]:
    for name, value in values.items():
        _check_value(name, value)
    return {name: value for name, value in values.items() if value is not None}


def _altered(rows: Mapping[str, Key], settings: Mapping[str, str], alterations: Sequence[Alteration]) -> dict[str, str]:
    twice = sorted(name for name, count in Counter(each.name for each in alterations).items() if count > 1)
    if twice:
        raise InvalidRequest(f"Altered twice in one request: {', '.join(twice)}.")
    altered = dict(settings)
    for alteration in alterations:
        value = _apply(rows.get(alteration.name), altered.get(alteration.name), alteration)
        if value is None:
            altered.pop(alteration.name, None)
        else:
            altered[alteration.name] = value
    return altered


def _apply(key: Key | None, present: str | None, alteration: Alteration) -> str | None:
    """The new value of the name, None to remove it. An unknown name is left for the check of the whole."""
    name, op, value = alteration
    if op == AlterOp.DELETE:
        return None
    if op not in tuple(AlterOp):
        raise InvalidRequest(f"Unknown operation {op} to alter {name}.")
    text = _check_value(name, value)
    if op == AlterOp.SET or key is None:
        return text
    return _alter_list(key, present, AlterOp(op), text)


def _alter_list(key: Key, present: str | None, op: AlterOp, text: str) -> str:
    if key.type is not ConfigType.LIST:
        raise ConfigError(f"Cannot {op.name} to {key.name}: it is not a list.")
    old = _items(key.format(key.default) or "" if present is None else present)
    new = _items(text)
    if op is AlterOp.APPEND:
        return ",".join(dict.fromkeys(old + new))
    return ",".join(item for item in old if item not in new)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_value(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidRequest(f"The new value of {name} is null; delete the name instead.")
    if len(value.encode()) > _MAX_VALUE_BYTES:
        raise ConfigError(f"The new value of {name} is longer than {_MAX_VALUE_BYTES} bytes.")
    return value
