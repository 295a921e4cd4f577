"""DescribeConfigs: values, their sources and, from v3, their documentation."""

from __future__ import annotations

from collections.abc import Iterable

from ottla import errors
from ottla.broker.configs import (
    BROKER,
    BROKER_LOGGER,
    GROUP,
    TOPIC,
    check_allowed,
    check_broker_name,
    check_group_name,
    check_logger_broker,
    config_needs,
    group_overrides,
    no_configs,
)
from ottla.broker.large_requests import with_pauses
from ottla.broker.loggers import describe_loggers
from ottla.broker.node import Call, Node
from ottla.config import (
    ConfigEntry,
    ConfigSource,
    ConfigType,
    describe_broker,
    describe_broker_default,
    describe_group,
    describe_topic,
)
from ottla.metadata.history import CONFIG_PREFIX, to_text
from ottla.metadata.machine import check_topic_name
from ottla.metadata.values import Topic
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation

API = ApiKey.DESCRIBE_CONFIGS
NEEDS = config_needs("describe_configs", Operation.DESCRIBE_CONFIGS)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    return {"results": [_describe(node, call, request, resource) async for resource in with_pauses(request.resources)]}


def _describe(node: Node, call: Call, request: Struct, resource: Struct) -> Message:
    response = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        check_allowed(node, call, NEEDS, resource)
        entries = _entries(node, resource)
    except errors.KafkaError as error:
        return response | {"error_code": error.code, "error_message": str(error), "configs": []}
    configs = [
        _config(entry, synonyms=request.include_synonyms, documentation=request.include_documentation)
        for entry in entries
    ]
    return response | {"error_message": None, "configs": configs}


def _entries(node: Node, resource: Struct) -> list[ConfigEntry]:
    name, names = resource.resource_name, resource.configuration_keys
    if resource.resource_type == TOPIC:
        check_topic_name(name)
        topic = node.metadata.topic(name)
        return describe_topic(node.config, topic.configs, names=names) + _history(node, topic, names or ())
    if resource.resource_type == BROKER:
        check_broker_name(node, name)
        return (describe_broker if name else describe_broker_default)(node.config, names=names)
    if resource.resource_type == GROUP:
        check_group_name(name)
        return describe_group(node.config, group_overrides(node, name), names=names)
    if resource.resource_type == BROKER_LOGGER:
        check_logger_broker(node, name)
        return describe_loggers(names=names)
    raise no_configs(resource.resource_type)


def _history(node: Node, topic: Topic, names: Iterable[str]) -> list[ConfigEntry]:
    """Return the changes of partitions, which ``ottla cluster explain`` asks for as if they were configs."""
    numbers = {f"{CONFIG_PREFIX}{number}": number for number in range(topic.partitions)}
    found = {name: node.metadata.history.of(topic.name, numbers[name]) for name in names if name in numbers}
    return [
        ConfigEntry(name, to_text(changes), ConfigSource.UNKNOWN, True, False, (), ConfigType.STRING, "")
        for name, changes in found.items()
    ]


def config_message(entry: ConfigEntry) -> Message:
    """Return what CreateTopics and DescribeConfigs both report of a config."""
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": entry.is_sensitive,
    }


def _config(entry: ConfigEntry, *, synonyms: bool, documentation: bool) -> Message:
    return config_message(entry) | {
        "synonyms": [s._asdict() for s in entry.synonyms] if synonyms else [],
        "config_type": entry.type,
        "documentation": entry.documentation if documentation else None,
    }
