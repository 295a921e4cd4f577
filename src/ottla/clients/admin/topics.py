"""Requests about topics and configs, one function per operation.

Each function takes the cluster and returns a result or an error for each topic or resource.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ottla.clients.admin.values import (
    BROKER_DEFAULT,
    Append,
    ConfigChange,
    ConfigResource,
    ConfigSynonym,
    ConfigValue,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    ResourceType,
    Subtract,
)
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import read_error
from ottla.clients.cluster.metadata import Node
from ottla.config import AlterOp, ConfigSource
from ottla.errors import BrokerNotAvailable, KafkaError, ThrottlingQuotaExceeded, UnknownTopicOrPartition
from ottla.net.client.connection import Connection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.types import BrokerId

__all__ = ["BROKER_DEFAULT", "ConfigValue", "NewTopic"]

T = TypeVar("T")


# ── topics ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> dict[str, CreatedTopic | KafkaError]:
    """Create topics, or let the broker only validate the request."""

    async def create(names: Container[str]) -> dict[str, CreatedTopic | KafkaError]:
        message = {
            "topics": [_creatable(topic) for topic in topics if topic.name in names],
            "timeout": cluster.request_timeout_ms,
            "validate_only": validate_only,
        }
        response = await cluster.request_controller(ApiKey.CREATE_TOPICS, message, errors=_topic_errors)
        return {topic.name: _error_of(topic) or _read_created(topic) for topic in response.topics}

    return await _within_quota(cluster, [topic.name for topic in topics], create)


async def _within_quota(
    cluster: Cluster, names: Sequence[str], change: Callable[[list[str]], Awaitable[dict[str, T | KafkaError]]]
) -> dict[str, T | KafkaError]:
    """Change topics. What a quota refuses is tried again, as in Kafka's client, after the pause that it demands."""
    attempts = cluster.attempts()
    found = await change(list(names))
    while refused := [name for name, each in found.items() if isinstance(each, ThrottlingQuotaExceeded)]:
        if not await attempts.pause():
            break
        found |= await change(refused)
    # Kafka responds in a different order.
    return {name: found[name] for name in names if name in found}


def _creatable(topic: NewTopic) -> dict[str, object]:
    configs = [{"name": name, "value": _text(value)} for name, value in (topic.configs or {}).items()]
    assigned = [
        {"partition_index": partition, "broker_ids": list(brokers)}
        for partition, brokers in (topic.replica_assignments or {}).items()
    ]
    return {
        "name": topic.name,
        "num_partitions": topic.num_partitions,
        "replication_factor": topic.replication_factor,
        "assignments": assigned,
        "configs": configs,
    }


def _text(value: object) -> str:
    """A config value as Kafka writes it.

    >>> _text(True), _text(60_000)
    ('true', '60000')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read_created(topic: Struct) -> CreatedTopic:
    configs = {config.name: config.value for config in topic.configs or ()}
    return CreatedTopic(topic.name, topic.topic_id, topic.num_partitions, topic.replication_factor, configs)


def _topic_errors(response: Struct) -> Iterable[int]:
    return [topic.error_code for topic in response.topics]


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, KafkaError | None]:
    async def delete(left: list[str]) -> dict[str, KafkaError | None]:
        message = {
            "topics": [{"name": name, "topic_id": None} for name in left],
            "topic_names": left,
            "timeout": cluster.request_timeout_ms,
        }
        response = await cluster.request_controller(ApiKey.DELETE_TOPICS, message, errors=_response_errors)
        return {topic.name: _error_of(topic) for topic in response.responses}

    return await _within_quota(cluster, names, delete)


def _response_errors(response: Struct) -> Iterable[int]:
    return [answer.error_code for answer in response.responses]


async def create_partitions(
    cluster: Cluster, wanted: Mapping[str, NewPartitions], *, validate_only: bool = False
) -> dict[str, KafkaError | None]:
    """Increase the number of partitions."""

    async def create(names: list[str]) -> dict[str, KafkaError | None]:
        topics = [
            {"name": name, "count": wanted[name].total_count, "assignments": _assignments(wanted[name])}
            for name in names
        ]
        message = {"topics": topics, "timeout": cluster.request_timeout_ms, "validate_only": validate_only}
        response = await cluster.request_controller(ApiKey.CREATE_PARTITIONS, message, errors=_result_errors)
        return {answer.name: _error_of(answer) for answer in response.results}

    return await _within_quota(cluster, list(wanted), create)


def _assignments(new: NewPartitions) -> list[dict[str, object]] | None:
    if new.new_assignments is None:
        return None
    return [{"broker_ids": list(brokers)} for brokers in new.new_assignments]


def _result_errors(response: Struct) -> Iterable[int]:
    return [answer.error_code for answer in response.results]


# ── configs ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def describe_configs(
    cluster: Cluster,
    resources: Mapping[ConfigResource, Sequence[str] | None],
    *,
    include_synonyms: bool = False,
    include_documentation: bool = False,
) -> dict[ConfigResource, dict[str, ConfigValue] | KafkaError]:
    """The configs of resources (all, or those named), and the source of each value."""
    found: dict[ConfigResource, dict[str, ConfigValue] | KafkaError] = {}
    for node, share in (await _by_broker(cluster, resources)).items():
        if share and isinstance(node, KafkaError):
            found.update(dict.fromkeys(share, node))
            continue
        wanted = [_described(resource, resources[resource]) for resource in share]
        message = {
            "resources": wanted,
            "include_synonyms": include_synonyms,
            "include_documentation": include_documentation,
        }
        response = await _ask(cluster, node, ApiKey.DESCRIBE_CONFIGS, message)
        found.update({_resource(answer): _read_configs(answer) for answer in response.results})
    return {resource: found[resource] for resource in resources}


def _described(resource: ConfigResource, names: Sequence[str] | None) -> dict[str, object]:
    keys = None if names is None else list(names)
    return {"resource_type": resource.type, "resource_name": resource.name, "configuration_keys": keys}


def _resource(answer: Struct) -> ConfigResource:
    return ConfigResource(ResourceType(answer.resource_type), answer.resource_name)


def _read_configs(answer: Struct) -> dict[str, ConfigValue] | KafkaError:
    error = _resource_error(answer)
    return {config.name: _read_config(config) for config in answer.configs} if error is None else error


def _read_config(config: Struct) -> ConfigValue:
    synonyms = tuple(ConfigSynonym(one.name, one.value, _source(one.source)) for one in config.synonyms)
    return ConfigValue(
        config.name,
        config.value,
        _source(config.config_source),
        config.read_only,
        config.is_sensitive,
        synonyms,
        config.documentation or None,
    )


def _source(code: int) -> ConfigSource:
    return ConfigSource(code) if code in ConfigSource.__members__.values() else ConfigSource.UNKNOWN


async def alter_configs(
    cluster: Cluster, changes: Mapping[ConfigResource, Mapping[str, ConfigChange]], *, validate_only: bool = False
) -> dict[ConfigResource, KafkaError | None]:
    """Change some configs of resources, leaving the others as they are (KIP-339)."""
    outcomes: dict[ConfigResource, KafkaError | None] = {}
    for node, share in (await _by_broker(cluster, changes)).items():
        if share and isinstance(node, KafkaError):
            outcomes.update(dict.fromkeys(share, node))
            continue
        message = {
            "resources": [_altered(resource, changes[resource]) for resource in share],
            "validate_only": validate_only,
        }
        if node is None:
            # A repetition is harmless, since it sets the same values.
            response = await cluster.request_controller(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, message, errors=_response_errors, retry_lost=True
            )
        else:
            response = await _ask(cluster, node, ApiKey.INCREMENTAL_ALTER_CONFIGS, message)
        outcomes.update({_resource(answer): _resource_error(answer) for answer in response.responses})
    return {resource: outcomes[resource] for resource in changes}


def _altered(resource: ConfigResource, changes: Mapping[str, ConfigChange]) -> dict[str, object]:
    configs = [dict(zip(("name", "config_operation", "value"), _change(*one), strict=True)) for one in changes.items()]
    return {"resource_type": resource.type, "resource_name": resource.name, "configs": configs}


def _change(name: str, change: ConfigChange) -> tuple[str, int, str | None]:
    if change is None:
        return name, AlterOp.DELETE, None
    if isinstance(change, Append):
        return name, AlterOp.APPEND, _text(change.value)
    if isinstance(change, Subtract):
        return name, AlterOp.SUBTRACT, _text(change.value)
    return name, AlterOp.SET, _text(change)


async def _by_broker(
    cluster: Cluster, resources: Iterable[ConfigResource]
) -> dict[Node | KafkaError | None, list[ConfigResource]]:
    """Group resources by broker: only a broker itself knows its configs, any broker (None) knows the rest."""
    shares: dict[Node | KafkaError | None, list[ConfigResource]] = {}
    for resource in resources:
        own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name
        shares.setdefault(await _node(cluster, resource.name) if own else None, []).append(resource)
    return shares


async def _node(cluster: Cluster, name: str) -> Node | KafkaError:
    broker_id: BrokerId = int(name) if name.isdecimal() else -1
    if broker_id not in cluster.metadata.nodes:
        await cluster.refresh(())
    nodes = cluster.metadata.nodes
    known = ", ".join(map(str, sorted(nodes)))
    return nodes.get(broker_id) or BrokerNotAvailable(f"there is no broker {name}: the cluster has {known}")


async def _ask(cluster: Cluster, node: Node | KafkaError | None, api_key: int, message: Message) -> Struct:
    if not isinstance(node, Node):
        return await cluster.request(api_key, message)
    connection: Connection = await cluster.connection(node)
    return await connection.request(api_key, message)


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _error_of(answer: Any) -> KafkaError | None:
    if not answer.error_code:
        return None
    if answer.error_code == UnknownTopicOrPartition.code:
        return UnknownTopicOrPartition(f"topic {answer.name} does not exist")
    return read_error(answer.error_code, answer.error_message)


def _resource_error(answer: Struct) -> KafkaError | None:
    if not answer.error_code:
        return None
    if answer.error_code == UnknownTopicOrPartition.code:
        return UnknownTopicOrPartition(f"topic {answer.resource_name} does not exist")
    return read_error(answer.error_code, answer.error_message)
