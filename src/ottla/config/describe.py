"""Describe the configuration of a topic, a group or the broker for DescribeConfigs.

A value can be set in several layers. The synonyms of an entry list all layers that set it, the effective one first.
They show which value would apply if that one were removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.config.broker import BrokerConfig, broker_key
from ottla.config.effective import BROKER_NAMES, effective_topic_config
from ottla.config.fields import ConfigType, Key
from ottla.config.group import GroupConfig, effective_group_config
from ottla.config.table import attribute, named, rows
from ottla.config.topic import TopicConfig
from ottla.config.unused import UNUSED


class ConfigSource(IntEnum):
    """The layer of a value, with the codes of DescribeConfigs."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    GROUP = 8


class Synonym(NamedTuple):
    """One layer that sets the value of an entry. Name and unit may differ from the entry's."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One name in a DescribeConfigs response."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]
    type: ConfigType
    documentation: str


def describe_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], *, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Describe a topic with these overrides. All names by default."""
    config = effective_topic_config(broker, overrides)
    own = {name: text for name, text in named(TopicConfig, overrides).items() if isinstance(text, str)}
    return [_topic_entry(key, config, own, broker) for key in _chosen(rows(TopicConfig), names)]


def describe_group(
    broker: BrokerConfig, overrides: Mapping[str, str], *, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Describe a group with these overrides, even if it does not exist."""
    config, own = effective_group_config(broker, overrides), named(GroupConfig, overrides)
    return [_group_entry(key, config, key.name in own) for key in _chosen(rows(GroupConfig), names)]


def describe_broker(broker: BrokerConfig, *, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """Describe this broker. All names by default."""
    return [_broker_entry(key, broker) for key in _chosen(_rows_with_listeners(broker), names)]


def _rows_with_listeners(broker: BrokerConfig) -> Mapping[str, Key]:
    """Return the rows of the table, those without an effect, and those that are set for single listeners."""
    return {**rows(BrokerConfig), **UNUSED, **{override.name: override.key for override, _ in broker.overrides}}


def describe_broker_default(broker: BrokerConfig, *, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """Describe the dynamic settings of all brokers: the broker resource with the empty name."""
    chosen = [key for key in _chosen(_rows_with_listeners(broker), names) if key.name in broker.dynamic_default]
    return [_default_entry(key, broker.dynamic_default[key.name]) for key in chosen]


def _chosen(table: Mapping[str, Key], names: Collection[str] | None) -> Iterator[Key]:
    return (key for key in table.values() if not key.internal and (not names or key.name in names))


def _topic_entry(key: Key, config: TopicConfig, own: Mapping[str, str], broker: BrokerConfig) -> ConfigEntry:
    synonyms = _broker_layers([each.name for each in BROKER_NAMES.get(key.name, ())], broker)
    value = key.format(getattr(config, attribute(key.name)))
    if key.name in own:
        value = key.canonical(own[key.name])
        synonyms.insert(0, Synonym(key.name, value, ConfigSource.TOPIC))
    return _entry(key, value, synonyms, read_only=False)


def _group_entry(key: Key, config: GroupConfig, is_own: bool) -> ConfigEntry:
    value = key.format(getattr(config, attribute(key.name)))
    source = ConfigSource.GROUP if is_own else ConfigSource.DEFAULT
    return _entry(key, value, [Synonym(key.name, value, source)], read_only=False)


def _broker_entry(key: Key, broker: BrokerConfig) -> ConfigEntry:
    synonyms = _broker_layers(_names_from(key.name), broker)
    # A name that is not set has no source, even if another name supplies its value.
    while synonyms and synonyms[0].name != key.name:
        synonyms.pop(0)
    is_set = bool(synonyms) and synonyms[0].source is not ConfigSource.DEFAULT
    value = synonyms[0].value if is_set else key.format(getattr(broker, attribute(key.name), key.default))
    return _entry(key, value, synonyms, read_only=not key.dynamic)


def _default_entry(key: Key, text: str) -> ConfigEntry:
    value = key.canonical(text)
    return _entry(key, value, [Synonym(key.name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)], read_only=False)


def _entry(key: Key, value: str | None, synonyms: list[Synonym], *, read_only: bool) -> ConfigEntry:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    is_secret = key.type is ConfigType.PASSWORD
    if is_secret:
        value, synonyms = None, [each._replace(value=None) for each in synonyms]
    return ConfigEntry(key.name, value, source, read_only, is_secret, tuple(synonyms), key.type, key.doc)


def _names_from(name: str) -> list[str]:
    """Return the name and the broker's names that can supply its value, by precedence."""
    for group in BROKER_NAMES.values():
        names = [each.name for each in group]
        if name in names:
            return names[names.index(name) :]
    return [name]


def _broker_layers(names: Collection[str], broker: BrokerConfig) -> list[Synonym]:
    table = {name: broker_key(name) for name in names}
    defaults = {name: table[name].format(table[name].default) for name in names}
    layers = (
        (ConfigSource.DYNAMIC_BROKER, broker.dynamic),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, broker.dynamic_default),
        (ConfigSource.STATIC_BROKER, broker.given),
        (ConfigSource.DEFAULT, defaults),
    )
    return [
        Synonym(name, table[name].canonical(values[name]), source)
        for source, values in layers
        for name in names
        if values.get(name) is not None
    ]
