"""Checks the arguments of the admin client before anything is sent.

A wrong type is a `TypeError` and a wrong value a `ValueError`; both say what to give instead. The functions return
their argument in the form that the requests need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ottla.consuming.values import OffsetAndMetadata
from ottla.types import TopicPartition, shown, topic_partition, whole

K = TypeVar("K")
T = TypeVar("T")


def name(given: object, what: str) -> str:
    """Check a text: ``name("orders", "the name of a topic")``."""
    if isinstance(given, str):
        return given
    raise TypeError(f"{what} must be text, not {shown(given)}")


def several(given: object, one: Callable[[object], T], what: str, *alone: type) -> list[T]:
    """Check a list, or one thing alone: ``"orders"`` is one name, not six."""
    if isinstance(given, alone):
        return [one(given)]
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise TypeError(f"{what} must be a list, not {shown(given)}")
    return [one(each) for each in given]


def keyed(given: object, key: Callable[[object], K], value: Callable[[object, K], T], example: str) -> dict[K, T]:
    """Check a dict."""
    if not isinstance(given, Mapping):
        raise TypeError(f"give a dict, such as {example}, not {shown(given)}")
    found: dict[K, T] = {}
    for each, content in given.items():
        checked = key(each)
        found[checked] = value(content, checked)
    return found


def chosen(given: object, choices: Mapping[str, T], what: str) -> T:
    """Return the choice of this name, in any case."""
    found = choices.get(name(given, what).lower())
    if found is None:
        raise ValueError(f"{what} must be one of {', '.join(choices)}, not {shown(given)}")
    return found


def names(given: object, what: str) -> list[str]:
    """Check names of `what` (topics, groups), and drop repetitions."""
    found = several(given, lambda one: name(one, f"the name of one of the {what}"), f"the names of {what}", str)
    return list(dict.fromkeys(found))


def topic(given: object) -> str:
    return name(given, "the name of a topic")


def group(given: object) -> str:
    return name(given, "the id of a group")


def partition(given: object) -> TopicPartition:
    key = topic_partition(given)
    name(key.topic, "the topic of a TopicPartition")
    whole(key.partition, f"the partition of a TopicPartition of topic {key.topic}", bits=32)
    return key


def partitions(given: object) -> list[TopicPartition]:
    """Check partitions, and drop repetitions."""
    return list(dict.fromkeys(several(given, partition, "partitions", TopicPartition)))


def brokers(given: object, what: str, *alone: type) -> list[int]:
    """Check broker ids and keep their order."""
    return several(given, lambda one: whole(one, "the id of a broker", bits=32), what, *alone)


def offset(given: object, key: TopicPartition) -> OffsetAndMetadata:
    """Check what to commit for a partition; a number is enough."""
    number = given.offset if isinstance(given, OffsetAndMetadata) else given
    number = whole(number, f"the offset of {key}", least=0)
    wanted = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(number)
    if wanted.metadata is not None:
        name(wanted.metadata, f"the metadata of {key}")
    if wanted.leader_epoch is not None:
        whole(wanted.leader_epoch, f"the leader epoch of {key}", bits=32)
    return wanted._replace(offset=number)


def timeout(given: object) -> float:
    """Check a number of milliseconds, which may have a fraction."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"timeout_ms must be a number of milliseconds, not {shown(given)}")
    if not 0 <= given < math.inf:
        raise ValueError(f"timeout_ms must be a number of milliseconds of at least 0, not {given}")
    return given


def config_value(given: object, what: str) -> str | int | float:
    """Check a config value; a bool is one."""
    if isinstance(given, str | int | float):
        return given
    advice = ": give a list as text, with commas" if isinstance(given, list | tuple | set | frozenset) else ""
    raise TypeError(f"{what} must be text, a number or a bool, not {shown(given)}{advice}")


def configs(given: object, what: str, value: Callable[[object, str], T]) -> dict[str, T]:
    """Check configs of `what` by name, each value with `value`."""
    return keyed(
        given,
        lambda one: name(one, f"the name of a config of {what}"),
        lambda content, config: value(content, f"config {config} of {what}"),
        '{"retention.ms": 60000}',
    )
