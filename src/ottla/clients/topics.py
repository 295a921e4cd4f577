"""Administration of topics and configs: what a request says and how its answer reads. One function an
operation.

Each function takes the cluster, raises the KafkaError that the broker gave, and leaves choices to its caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ottla.clients.calls import read_error
from ottla.clients.cluster import Cluster
from ottla.config import AlterOp, ConfigSource
from ottla.errors import KafkaError, UnknownTopicOrPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct

BROKER_DEFAULT = -1


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class ConfigValue:
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool

    @property
    def differs(self) -> bool:
        """Somebody set it: it is not what the broker would take by itself."""
        return self.source not in (ConfigSource.DEFAULT, ConfigSource.UNKNOWN)


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] | None = None


async def create_topics(
    cluster: Cluster, topics: Sequence[NewTopic], *, validate_only: bool = False
) -> dict[str, KafkaError | None]:
    """Create topics; gives the error of each one, None where it worked."""
    message = {
        "topics": [_creatable(topic) for topic in topics],
        "timeout": cluster.request_timeout_ms,
        "validate_only": validate_only,
    }
    response = await cluster.request_controller(ApiKey.CREATE_TOPICS, message, errors=_topic_errors)
    return {topic.name: _error_of(topic) for topic in response.topics}


def _creatable(topic: NewTopic) -> dict[str, object]:
    configs = [{"name": name, "value": value} for name, value in (topic.configs or {}).items()]
    return {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "assignments": [],
        "configs": configs,
    }


def _topic_errors(response: Struct) -> Iterable[int]:
    return [topic.error_code for topic in response.topics]


async def delete_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, KafkaError | None]:
    message = {
        "topics": [{"name": name, "topic_id": None} for name in names],
        "topic_names": list(names),
        "timeout": cluster.request_timeout_ms,
    }
    response = await cluster.request_controller(ApiKey.DELETE_TOPICS, message, errors=_response_errors)
    return {topic.name: _error_of(topic) for topic in response.responses}


def _response_errors(response: Struct) -> Iterable[int]:
    return [answer.error_code for answer in response.responses]


async def create_partitions(cluster: Cluster, topic: str, total: int) -> None:
    """Let a topic have `total` partitions."""
    wanted = {"name": topic, "count": total, "assignments": None}
    message = {"topics": [wanted], "timeout": cluster.request_timeout_ms, "validate_only": False}
    response = await cluster.request_controller(ApiKey.CREATE_PARTITIONS, message, errors=_result_errors)
    _raise_first(response.results)


def _result_errors(response: Struct) -> Iterable[int]:
    return [answer.error_code for answer in response.results]


async def alter_topic_configs(
    cluster: Cluster, topic: str, *, set_: Mapping[str, str], unset: Sequence[str] = ()
) -> None:
    """Set and unset configs of a topic, leaving the others as they are."""
    configs = [{"name": name, "config_operation": AlterOp.SET, "value": value} for name, value in set_.items()]
    configs += [{"name": name, "config_operation": AlterOp.DELETE, "value": None} for name in unset]
    resource = {"resource_type": ResourceType.TOPIC, "resource_name": topic, "configs": configs}
    message = {"resources": [resource], "validate_only": False}
    # Setting the same values twice is harmless.
    response = await cluster.request_controller(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, message, errors=_response_errors, retry_lost=True
    )
    _raise_first(response.responses)


async def describe_topic_configs(cluster: Cluster, topics: Sequence[str]) -> dict[str, list[ConfigValue]]:
    """All configs of these topics, with where each value comes from."""
    resources = [
        {"resource_type": ResourceType.TOPIC, "resource_name": topic, "configuration_keys": None} for topic in topics
    ]
    message = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    response = await cluster.request(ApiKey.DESCRIBE_CONFIGS, message)
    _raise_first(response.results)
    return {result.resource_name: [_read_config(config) for config in result.configs] for result in response.results}


def _read_config(config: Struct) -> ConfigValue:
    known = config.config_source in ConfigSource.__members__.values()
    source = ConfigSource(config.config_source) if known else ConfigSource.UNKNOWN
    return ConfigValue(config.name, config.value, source, config.read_only, config.is_sensitive)


def _error_of(answer: Struct) -> KafkaError | None:
    if not answer.error_code:
        return None
    if answer.error_code == UnknownTopicOrPartition.code:
        return UnknownTopicOrPartition(f"topic {answer.name} does not exist")
    return read_error(answer.error_code, answer.error_message)


def _raise_first(answers: Iterable[Struct]) -> None:
    for answer in answers:
        if answer.error_code:
            raise read_error(answer.error_code, answer.error_message)
