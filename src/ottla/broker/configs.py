"""Configs of topics, groups and the broker that can be altered while the broker runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla import errors
from ottla.broker.authorization import check
from ottla.broker.large_requests import unique, with_pauses
from ottla.broker.loggers import alter_loggers
from ottla.config import BrokerConfig, Change, alter_broker, alter_group, alter_topic, effective_topic_config
from ottla.metadata.machine import check_topic_name
from ottla.metadata.values import ReplicationSettings
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import CLUSTER_NAME, Operation, ResourceType
from ottla.security.permissions import Need, need

if TYPE_CHECKING:
    from ottla.broker.node import Call, Node

TOPIC, BROKER, GROUP = 2, 4, 32
BROKER_LOGGER, CLIENT_METRICS = 8, 16
#: What a permission for the configs of each type of resource is about.
_RESOURCE_TYPES = {
    TOPIC: ResourceType.TOPIC,
    GROUP: ResourceType.GROUP,
    BROKER: ResourceType.CLUSTER,
    BROKER_LOGGER: ResourceType.CLUSTER,
    CLIENT_METRICS: ResourceType.CLUSTER,
}


def config_needs(api: str, operation: Operation) -> Mapping[int, Need]:
    """Return what an API needs for the configs of each type of resource."""
    return {kind: need(api, operation, resource_type) for kind, resource_type in _RESOURCE_TYPES.items()}


def check_allowed(node: Node, call: Call, needs: Mapping[int, Need], resource: Struct) -> None:
    """Raise an error if the client may not describe or alter these configs."""
    if (needed := needs.get(resource.resource_type)) is not None:
        is_named = needed.resource_type != ResourceType.CLUSTER
        check(node, call, needed, resource.resource_name if is_named else CLUSTER_NAME)


async def alter_each(
    node: Node, call: Call, needs: Mapping[int, Need], request: Struct, change_of: Callable[[Struct], Change]
) -> list[Message]:
    """Change each resource and return a response for each. A resource that is named twice is rejected."""
    responses = []
    async for resource, twice in with_pauses(unique(request.resources, lambda r: (r.resource_type, r.resource_name))):
        kind, name = resource.resource_type, resource.resource_name
        response: Message = {"error_message": None, "resource_type": kind, "resource_name": name}
        try:
            if twice:
                raise errors.InvalidRequest("The request names this resource more than once. Name each resource once.")
            check_allowed(node, call, needs, resource)
            await _alter(node, kind, name, change_of(resource), validate_only=request.validate_only)
        except errors.KafkaError as error:
            response |= {"error_code": error.code, "error_message": str(error)}
        responses.append(response)
    return responses


async def _alter(node: Node, resource_type: int, name: str, change: Change, *, validate_only: bool) -> None:
    if resource_type == TOPIC:
        check_topic_name(name)
        node.metadata.topic(name)
        await node.changes.run(_alter_topic(node, name, change, validate_only=validate_only))
    elif resource_type == BROKER:
        await node.changes.run(_alter_broker(node, name, change, validate_only=validate_only))
    elif resource_type == GROUP:
        check_group_name(name)
        await node.changes.run(_alter_group(node, name, change, validate_only=validate_only))
    elif resource_type == BROKER_LOGGER:
        check_logger_broker(node, name)
        alter_loggers(change, validate_only=validate_only)
    else:
        raise no_configs(resource_type)


async def _alter_topic(node: Node, name: str, change: Change, *, validate_only: bool) -> None:
    async with node.topics_lock:
        configs = alter_topic(node.config, node.metadata.topic(name).configs, change)
        if not validate_only:
            effective_topic_config(node.config, configs)
            await node.controller.run(node.metadata.set_topic_configs, name, configs)


async def _alter_broker(node: Node, name: str, change: Change, *, validate_only: bool) -> None:
    broker_id = None if name == "" else _known_broker(node, name)
    async with node.topics_lock:
        metadata = node.metadata
        own = metadata.broker_configs.get(node.id if broker_id is None else broker_id, {})
        config = node.config.with_dynamic(own, metadata.cluster_configs)
        configs = alter_broker(config, change, for_all_brokers=broker_id is None)
        if broker_id is None:
            _check_usable(node, metadata.broker_configs.get(node.id, {}), configs)
        elif broker_id == node.id:
            _check_usable(node, configs, metadata.cluster_configs)
        if not validate_only:
            await node.controller.run(metadata.set_broker_configs, configs, broker_id=broker_id)


def _check_usable(node: Node, own: Mapping[str, str], of_cluster: Mapping[str, str]) -> None:
    """Raise InvalidRequest if this broker cannot read the files of new dynamic configs."""
    try:
        node.check_config(node.config.with_dynamic(own, of_cluster))
    except errors.ConfigError as error:
        raise errors.InvalidRequest(str(error)) from None


async def _alter_group(node: Node, name: str, change: Change, *, validate_only: bool) -> None:
    async with node.topics_lock:
        configs = alter_group(node.config, group_overrides(node, name), change)
        if not validate_only:
            await node.controller.run(node.metadata.set_group_configs, name, configs)


def group_overrides(node: Node, name: str) -> Mapping[str, str]:
    """Return the overrides of a group. They may be set before the group exists."""
    return node.metadata.group_configs.get(name, {})


def check_broker_name(node: Node, name: str) -> None:
    """Raise InvalidRequest unless a resource name is this broker's id, or empty for all brokers."""
    if name not in ("", str(node.id)):
        raise errors.InvalidRequest(f"There is no broker {name!r}. Use {node.id}, or an empty name for all brokers.")


def _known_broker(node: Node, name: str) -> int:
    """Return the id of a broker, which may be another one of the cluster, or raise InvalidRequest."""
    known = {str(broker_id): broker_id for broker_id in (node.id, *node.metadata.brokers)}
    if name not in known:
        raise errors.InvalidRequest(
            f"There is no broker {name!r}. Use {', '.join(sorted(known))}, or an empty name for all brokers."
        )
    return known[name]


def check_group_name(name: str) -> None:
    """Raise InvalidRequest for an empty name: there are no configs for all groups."""
    if not name:
        raise errors.InvalidRequest("The group name is empty. Configs are set for one group at a time.")


def check_logger_broker(node: Node, name: str) -> None:
    """Raise InvalidRequest unless a resource name is this broker's id."""
    if name != str(node.id):
        raise errors.InvalidRequest(f"The loggers of broker {name!r} are not here. Use {node.id}, or ask that broker.")


def no_configs(resource_type: int) -> errors.InvalidRequest:
    """Return the error for a resource type without configs."""
    if resource_type == CLIENT_METRICS:
        return errors.InvalidRequest("This broker does not collect metrics of clients: there is no CLIENT_METRICS.")
    return errors.InvalidRequest(
        f"There is no resource type {resource_type}. Use 2, 4, 8 or 32 (TOPIC, BROKER, BROKER_LOGGER, GROUP)."
    )


def replication_settings(
    config: BrokerConfig, cluster_configs: Mapping[str, str], configs: Mapping[str, str]
) -> ReplicationSettings:
    """Return the configs of a topic that elections depend on: those of the topic, of the cluster, or of the file.

    They come from the metadata, not from what this broker has applied of it. So a leader never uses the ISR of the
    controller with an older minimum than the controller. A config of a single broker has no effect on them.
    """

    # Not all configs of the topic: the controller asks for every topic of a broker that has failed.
    def found(name: str, default: str) -> str:
        return configs.get(name) or cluster_configs.get(name) or config.given.get(name) or default

    unclean = found("unclean.leader.election.enable", "false")
    return ReplicationSettings(int(found("min.insync.replicas", "1")), unclean.strip().lower() == "true")


def use_dynamic_configs(node: Node) -> None:
    """Apply the dynamic configs to the broker and, as defaults, to its topics."""
    own = node.metadata.broker_configs.get(node.id, {})
    node.config = node.config.with_dynamic(own, node.metadata.cluster_configs)
    for name in node.partitions:
        config = effective_topic_config(node.config, node.metadata.topics[name].configs)
        for partition in node.local(name):
            partition.log.config = config
    node.on_config_change()
