"""Configs of topics and of the broker, altered while the broker runs."""

from __future__ import annotations

from collections.abc import Callable

from ottla import errors
from ottla.broker.node import Node
from ottla.broker.topics import set_topic_configs
from ottla.config import BrokerConfig, effective_topic_config
from ottla.metadata import Topic
from ottla.metadata.machine import check_topic_name

TOPIC, BROKER = 2, 4
TopicChange = Callable[[Topic], dict[str, str]]
BrokerChange = Callable[[BrokerConfig, bool], dict[str, str]]


async def alter(
    node: Node, resource_type: int, name: str, topic: TopicChange, broker: BrokerChange, *, validate_only: bool
) -> None:
    """Change the configs of a resource by what ``topic`` or ``broker`` makes of the present ones."""
    if resource_type == TOPIC:
        check_topic_name(name)
        node.metadata.topic(name)
        await node.changes.run(_alter_topic(node, name, topic, validate_only=validate_only))
    elif resource_type == BROKER:
        await node.changes.run(_alter_broker(node, name, broker, validate_only=validate_only))
    else:
        raise errors.InvalidRequest(f"Resources of the type {resource_type} have no configs here.")


async def _alter_topic(node: Node, name: str, change: TopicChange, *, validate_only: bool) -> None:
    async with node.topics_lock:
        configs = change(node.metadata.topic(name))
        if not validate_only:
            await set_topic_configs(node, name, configs)


async def _alter_broker(node: Node, name: str, change: BrokerChange, *, validate_only: bool) -> None:
    for_all = name == ""
    check_broker_name(node, name)
    async with node.topics_lock:
        configs = change(node.config, for_all)
        if validate_only:
            return
        await node.runner.run(node.metadata.set_broker_configs, configs, cluster_wide=for_all)
        use_dynamic_configs(node)


def check_broker_name(node: Node, name: str) -> None:
    """Raise InvalidRequest unless a resource name is this broker's id, or empty for all brokers."""
    if name not in ("", str(node.id)):
        raise errors.InvalidRequest(f"There is no broker {name!r}: this one is {node.id}.")


def use_dynamic_configs(node: Node) -> None:
    """Let what was altered at run time hold, for the broker and as the default of its topics."""
    node.config = node.config.with_dynamic(node.metadata.broker_configs, node.metadata.cluster_configs)
    for name, partitions in node.partitions.items():
        config = effective_topic_config(node.config, node.metadata.topics[name].configs)
        for partition in partitions:
            partition.log.config = config
    node.on_config_change()
