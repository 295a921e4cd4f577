"""What DescribeConfigs tells of a topic, a group or the broker: each value, where it comes from, and what it hides.

A value can be set in several layers. The synonyms of an entry list all of them that are set, the one that
counts first, so that a user sees what would hold if it were removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.effective import BROKER_NAMES, effective_topic_config
from ottla.config.fields import ConfigType, Key
from ottla.config.group import GroupConfig, effective_group_config
from ottla.config.table import attribute
from ottla.config.topic import TopicConfig


class ConfigSource(IntEnum):
    """Where a value comes from, with the codes of DescribeConfigs."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    """One layer that sets the value of an entry, maybe under another name and in another unit."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One name and everything that DescribeConfigs says of it."""

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
    """The configuration of a topic with these settings of its own; of all names if none are given."""
    config = effective_topic_config(broker, overrides)
    own = {name: text for name, text in TopicConfig.named(overrides).items() if isinstance(text, str)}
    return [_topic_entry(key, config, own, broker) for key in _chosen(TopicConfig.rows(), names)]


def describe_group(
    broker: BrokerConfig, overrides: Mapping[str, str], *, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The configuration of a group with these settings of its own, whether it is there or not."""
    config, own = effective_group_config(broker, overrides), GroupConfig.named(overrides)
    return [_group_entry(key, config, key.name in own) for key in _chosen(GroupConfig.rows(), names)]


def describe_broker(broker: BrokerConfig, *, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The configuration of this broker; of all names if none are given."""
    return [_broker_entry(key, broker) for key in _chosen(BrokerConfig.rows(), names)]


def describe_broker_default(broker: BrokerConfig, *, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """What was altered for all brokers at once: the resource of Kafka's with the empty name."""
    chosen = [key for key in _chosen(BrokerConfig.rows(), names) if key.name in broker.dynamic_default]
    return [_default_entry(key, broker.dynamic_default[key.name]) for key in chosen]


def _chosen(rows: Mapping[str, Key], names: Collection[str] | None) -> Iterator[Key]:
    return (key for key in rows.values() if not key.internal and (not names or key.name in names))


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
    # A name that is not set itself has no source of its own, though a later name may stand in for it.
    while synonyms and synonyms[0].name != key.name:
        synonyms.pop(0)
    is_set = bool(synonyms) and synonyms[0].source is not ConfigSource.DEFAULT
    value = synonyms[0].value if is_set else key.format(getattr(broker, attribute(key.name)))
    return _entry(key, value, synonyms, read_only=not key.dynamic)


def _default_entry(key: Key, text: str) -> ConfigEntry:
    value = key.canonical(text)
    return _entry(key, value, [Synonym(key.name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)], read_only=False)


def _entry(key: Key, value: str | None, synonyms: list[Synonym], *, read_only: bool) -> ConfigEntry:
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return ConfigEntry(key.name, value, source, read_only, False, tuple(synonyms), key.type, key.doc)


def _names_from(name: str) -> list[str]:
    """The name and the broker's names that stand in for it, in the order in which they count."""
    for group in BROKER_NAMES.values():
        names = [each.name for each in group]
        if name in names:
            return names[names.index(name) :]
    return [name]


def _broker_layers(names: Collection[str], broker: BrokerConfig) -> list[Synonym]:
    rows = BrokerConfig.rows()
    defaults = {name: rows[name].format(rows[name].default) for name in names}
    layers = (
        (ConfigSource.DYNAMIC_BROKER, broker.dynamic),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, broker.dynamic_default),
        (ConfigSource.STATIC_BROKER, broker.given),
        (ConfigSource.DEFAULT, defaults),
    )
    return [
        Synonym(name, rows[name].canonical(values[name]), source)
        for source, values in layers
        for name in names
        if values.get(name) is not None
    ]
