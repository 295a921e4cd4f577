"""What was in the topics and groups when a test failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.broker import Broker
from ottla.cluster.cluster import Cluster
from ottla.errors import OttlaError
from ottla.testing.shared import SharedBroker

_RECORDS = 10
_LONGEST = 100


def can_tell(value: object) -> bool:
    """Whether `contents` can describe this value of a fixture now."""
    if not isinstance(value, Broker | Cluster | SharedBroker):
        return False
    try:
        return bool(value.bootstrap_servers)
    except OttlaError:
        return False  # It is stopped.


def contents(broker: Any) -> str:
    """Describe topics and groups of a `Broker` or `Cluster` in a few lines. Never raises."""
    topics = _told("topics", lambda: [line for name in broker.topics for line in _topic(name, broker.topics[name])])
    groups = _told("groups", lambda: [_group(broker.groups[name]) for name in broker.groups])
    return "\n".join(topics + groups) or "there are no topics and no groups"


def _told(what: str, lines: Callable[[], list[str]]) -> list[str]:
    """Each part for itself: a broker of a cluster that was just killed may hide the groups, but not the topics."""
    try:
        return lines()
    except (OttlaError, KeyError, OSError) as error:
        return [f"the {what} cannot be read: {error}"]


def _topic(name: str, topic: Any) -> list[str]:
    records = topic.records()
    lines = [f"topic {name}: {len(records)} record{'' if len(records) == 1 else 's'}"]
    if len(records) > _RECORDS:
        lines.append(f"  … {len(records) - _RECORDS} before these")
    for record in records[-_RECORDS:]:
        key = "" if record.key is None else f"{_shown(record.key)}: "
        lines.append(f"  {record.partition}@{record.offset}  {key}{_shown(record.value)}")
    return lines


def _group(group: Any) -> str:
    offsets = ", ".join(f"{key} at {offset}" for key, offset in sorted(group.offsets.items()))
    count = len(group.members)
    members = f"{count} member{'' if count == 1 else 's'}"
    return f"group {group.group_id}: {group.state}, {members}, lag {group.lag}{f' ({offsets})' if offsets else ''}"


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = repr(data)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(data):,} bytes)"
