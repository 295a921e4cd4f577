"""Rules that involve several names of the broker's configuration. broker.py has the rules of single names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from ottla.config.listeners import problem_of_advertised, problem_of_listeners
from ottla.config.sasl import problems_between_brokers, problems_of_sasl
from ottla.config.security import PROTOCOLS
from ottla.config.tls import problems_of_tls
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

_MEGABYTE = 1024 * 1024


def check_broker(config: BrokerConfig) -> None:
    """Raise ConfigError for the first broken rule."""
    for problem in _problems(config):
        raise ConfigError(problem)


def _problems(config: BrokerConfig) -> Iterator[str]:
    yield from _directories(config)
    yield from _listening(config)
    yield from _security(config)
    yield from _connections(config)
    yield from _logs(config)
    yield from _groups(config)
    yield from _replication(config)


def _directories(config: BrokerConfig) -> Iterator[str]:
    if config.log_dirs is not None and not config.log_dirs:
        yield "log.dirs must have at least one directory."
    if not config.log_dir:
        yield "log.dir must not be empty."


def _listening(config: BrokerConfig) -> Iterator[str]:
    problem = problem_of_listeners(config.listeners)
    if problem:
        yield f"Invalid configuration listeners: {problem}."
    problem = problem_of_advertised(config.advertised_listeners or (), config.listeners)
    if problem:
        yield f"Invalid configuration advertised.listeners: {problem}."
    names = {listener.name for listener in config.listeners}
    name = config.inter_broker_listener_name
    if name is not None and name not in names:
        yield f"Invalid configuration inter.broker.listener.name: there is no listener named {name}."
    if name is not None and "security.inter.broker.protocol" in config.given:
        yield "Set only one of inter.broker.listener.name and security.inter.broker.protocol."
    for override, _ in config.overrides:
        if override.listener not in names:
            yield f"Invalid configuration {override.name}: there is no listener named {override.listener}."


def _security(config: BrokerConfig) -> Iterator[str]:
    protocols = security_protocols(config.listener_security_protocol_map)
    for listener in config.listeners:
        if listener.name not in protocols:
            yield f"listener.security.protocol.map has no protocol for the listener {listener.name}."
            return
        security = config.listener(listener.name)
        if security.has_tls:
            yield from problems_of_tls(security)
        if security.has_sasl:
            yield from problems_of_sasl(security)
    if config.is_clustered and (between := config.listener(config.inter_broker_listener)).has_sasl:
        yield from problems_between_brokers(between, config.sasl_mechanism_inter_broker_protocol)


def security_protocols(text: str) -> dict[str, str]:
    """Return the protocol of each listener name. Raise ConfigError unless it is NAME:PROTOCOL,NAME:PROTOCOL..."""
    pairs = [item.strip().partition(":") for item in text.split(",") if item.strip()]
    for name, _, protocol in pairs:
        if not name or protocol.strip().upper() not in PROTOCOLS:
            raise ConfigError(
                f"Invalid value {text!r} for configuration listener.security.protocol.map: expected NAME:PROTOCOL, "
                f"separated by commas, with a protocol of {', '.join(PROTOCOLS)}."
            )
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


def _connections(config: BrokerConfig) -> Iterator[str]:
    overrides = connection_overrides(config.max_connections_per_ip_overrides)
    if config.max_connections_per_ip == 0 and not overrides:
        yield (
            "max.connections.per.ip=0 lets nobody connect. Raise it, or add an address to "
            "max.connections.per.ip.overrides."
        )


def connection_overrides(text: str) -> dict[str, int]:
    """Return the limit of each address. Raise ConfigError unless it is address:number,address:number..."""
    limits: dict[str, int] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        address, _, number = item.rpartition(":")
        if not address or not number.isascii() or not number.isdigit():
            raise ConfigError(
                f"Invalid value {text!r} for configuration max.connections.per.ip.overrides: "
                "expected address:number, separated by commas."
            )
        limits[address.strip("[]")] = int(number)
    return limits


def _logs(config: BrokerConfig) -> Iterator[str]:
    for name in ("log_retention_ms", "log_retention_minutes", "log_retention_hours"):
        if getattr(config, name) == 0:
            yield f"{name.replace('_', '.')} must be -1 (no limit) or at least 1."
    shortest, longest = config.log_cleaner_min_compaction_lag_ms, config.log_cleaner_max_compaction_lag_ms
    if shortest > longest:
        yield (
            f"log.cleaner.min.compaction.lag.ms ({shortest}) must not be greater than "
            f"log.cleaner.max.compaction.lag.ms ({longest})."
        )
    if config.log_cleaner_enable and config.log_cleaner_dedupe_buffer_size <= _MEGABYTE:
        yield "log.cleaner.dedupe.buffer.size must be more than 1 MiB."


def _groups(config: BrokerConfig) -> Iterator[str]:
    """Check the timeouts of consumer groups against their limits, as for a single group."""
    for name in ("session.timeout.ms", "heartbeat.interval.ms"):
        names = f"group.consumer.min.{name}", f"group.consumer.{name}", f"group.consumer.max.{name}"
        values = [getattr(config, each.replace(".", "_")) for each in names]
        for (low, high), (less, more) in zip(pairwise(names), pairwise(values), strict=True):
            if less > more:
                yield f"{high} ({more}) must be greater than or equal to {low} ({less})."
    session, interval = config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms
    if session <= interval:
        yield (
            f"group.consumer.session.timeout.ms ({session}) must be greater than group.consumer.heartbeat.interval.ms "
            f"({interval})."
        )


def _replication(config: BrokerConfig) -> Iterator[str]:
    if config.default_replication_factor > 1 and not config.is_clustered:
        yield (
            f"default.replication.factor ({config.default_replication_factor}) needs other brokers, but without "
            "zookeeper.connect this broker is alone. Set zookeeper.connect, or default.replication.factor=1."
        )
    if config.zookeeper_set_acl and not config.has_zookeeper_login:
        yield (
            "zookeeper.set.acl needs a login at ZooKeeper. Set ottla.zookeeper.digest, ottla.zookeeper.jaas.config, or "
            "zookeeper.ssl.keystore.location."
        )
    wait = config.replica_fetch_wait_max_ms
    for name in ("replica.lag.time.max.ms", "replica.socket.timeout.ms"):
        limit = getattr(config, name.replace(".", "_"))
        if wait > limit:
            yield f"replica.fetch.wait.max.ms ({wait}) must not be greater than {name} ({limit})."
