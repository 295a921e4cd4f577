"""Combine the broker's defaults and a topic's overrides into the configuration of the topic.

Most topic names have another name on the broker, and some have several, in different units. The first one in
`BROKER_NAMES` with a value wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.config.broker import BrokerConfig
from ottla.config.table import attribute, parsed
from ottla.config.topic import TopicConfig

_MINUTE = 60_000
_HOUR = 60 * _MINUTE


class BrokerName(NamedTuple):
    """A broker name that sets the default of a topic name. `unit` is its unit in milliseconds."""

    name: str
    unit: int = 1


BROKER_NAMES: Mapping[str, tuple[BrokerName, ...]] = {
    "cleanup.policy": (BrokerName("log.cleanup.policy"),),
    "compression.gzip.level": (BrokerName("compression.gzip.level"),),
    "compression.lz4.level": (BrokerName("compression.lz4.level"),),
    "compression.type": (BrokerName("compression.type"),),
    "compression.zstd.level": (BrokerName("compression.zstd.level"),),
    "delete.retention.ms": (BrokerName("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (BrokerName("log.segment.delete.delay.ms"),),
    "flush.messages": (BrokerName("log.flush.interval.messages"),),
    "flush.ms": (BrokerName("log.flush.interval.ms"), BrokerName("log.flush.scheduler.interval.ms")),
    "index.interval.bytes": (BrokerName("log.index.interval.bytes"),),
    "local.retention.bytes": (BrokerName("log.local.retention.bytes"),),
    "local.retention.ms": (BrokerName("log.local.retention.ms"),),
    "max.compaction.lag.ms": (BrokerName("log.cleaner.max.compaction.lag.ms"),),
    "max.message.bytes": (BrokerName("message.max.bytes"),),
    "message.timestamp.after.max.ms": (BrokerName("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (BrokerName("log.message.timestamp.before.max.ms"),),
    "message.timestamp.type": (BrokerName("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (BrokerName("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (BrokerName("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (BrokerName("min.insync.replicas"),),
    "preallocate": (BrokerName("log.preallocate"),),
    "retention.bytes": (BrokerName("log.retention.bytes"),),
    "retention.ms": (
        BrokerName("log.retention.ms"),
        BrokerName("log.retention.minutes", _MINUTE),
        BrokerName("log.retention.hours", _HOUR),
    ),
    "segment.bytes": (BrokerName("log.segment.bytes"),),
    "segment.index.bytes": (BrokerName("log.index.size.max.bytes"),),
    "segment.jitter.ms": (BrokerName("log.roll.jitter.ms"), BrokerName("log.roll.jitter.hours", _HOUR)),
    "segment.ms": (BrokerName("log.roll.ms"), BrokerName("log.roll.hours", _HOUR)),
    "unclean.leader.election.enable": (BrokerName("unclean.leader.election.enable"),),
}


def effective_topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Return the configuration of a topic with these overrides. Raise ConfigError for an invalid one.

    Rules between settings are checked when a setting is changed (`check_topic_overrides`), not here: a new broker
    default must not make existing topics unusable.
    """
    defaults = {attribute(name): default_of(broker, name) for name in BROKER_NAMES}
    return TopicConfig.of({**defaults, **parsed(TopicConfig, overrides)})


def check_topic_overrides(overrides: Mapping[str, str], broker: BrokerConfig | None = None) -> None:
    """Raise ConfigError for a setting that is invalid or conflicts with others or with the broker's."""
    effective_topic_config(broker or BrokerConfig(), overrides).checked()


def default_of(broker: BrokerConfig, name: str) -> Any:
    """Return the default of a topic name on this broker."""
    for each in BROKER_NAMES[name]:
        value = getattr(broker, attribute(each.name))
        if value is not None:
            return in_topic_unit(each, value)
    raise AssertionError(f"no broker name has a default for {name}")


def in_topic_unit(source: BrokerName, value: Any) -> Any:
    """Convert a broker's value to the topic's unit. A negative time means no limit in any unit."""
    if source.name.startswith("log.retention.") and source.name != "log.retention.bytes" and value < 0:
        return -1
    return value * source.unit if source.unit > 1 else value
