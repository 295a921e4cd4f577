"""The topics of a consumer group as it last saw them. Soft state: after a restart they are checked again.

A change of a subscribed topic must raise the group epoch. The log has only a hash of the topics; what is known here
tells a person what has changed, and what a deleted topic was called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from uuid import UUID

from ottla.coordinator import history
from ottla.coordinator.group import TopicInfo

Topics = Mapping[str, TopicInfo]
MAX_NAMED = 5
"""How many changed topics are named."""


class KnownTopics:
    """Whether the topics must be checked, and what they were at the last check.

    The rule: the first heartbeat after a change checks the topics. The check counts at once. If the log then does not
    take the epoch that it led to, `append_failed` takes it back.
    """

    __slots__ = ("_epoch", "_known", "_previous", "are_checked")

    def __init__(self) -> None:
        self.are_checked = False
        self._known: Topics = {}
        self._previous: Topics = {}
        """What was known before the last check."""
        self._epoch = 0
        """The group epoch that the last check led to."""

    def changed(self) -> None:
        """Subscribed topics have changed: the next heartbeat must check them."""
        self.are_checked = False

    def difference(self, names: Collection[str], topics: Topics) -> tuple[str, str]:
        """Return the kind of trigger that a change of the topics is, and what has changed in words."""
        # A topic that still exists, and that nobody subscribes to any more, has not changed.
        known = {name: info for name, info in self._known.items() if name in names or name not in topics}
        if not known:  # After a restart nobody knows what the topics were.
            return history.TOPIC_METADATA_CHANGED, ""
        return describe_change(known, _subscribed(names, topics))

    def remember(self, names: Collection[str], topics: Topics, epoch: int) -> None:
        """The topics were compared with the hash in the log, which led to a group epoch."""
        self.are_checked = True
        self._previous, self._known = self._known, _subscribed(names, topics)
        self._epoch = epoch

    def append_failed(self, group_epoch: int) -> None:
        """Take the last check back if the log does not have its epoch."""
        if self._epoch > group_epoch:
            self.are_checked = False
            self._known = self._previous
            self._epoch = group_epoch

    def former_name(self, topic_id: UUID) -> str | None:
        """Return the name of a deleted topic."""
        for topics in (self._known, self._previous):
            for name, info in topics.items():
                if info.topic_id == topic_id:
                    return name
        return None


def _subscribed(names: Iterable[str], topics: Topics) -> dict[str, TopicInfo]:
    return {name: topics[name] for name in names if name in topics}


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return a number that changes when one of the topics is created, deleted or gets partitions; 0 for no topics.

    Kafka computes it in another way. A group that moves from one to the other is assigned once more.
    """
    hasher = blake2b(digest_size=8)
    found = sorted(name for name in names if name in topics)
    for name in found:
        info = topics[name]
        hasher.update(b"%s\0%s%d\0" % (name.encode(), info.topic_id.bytes, info.partitions))
    return int.from_bytes(hasher.digest(), "big", signed=True) if found else 0


def describe_change(before: Topics, after: Topics) -> tuple[str, str]:
    """Return the kind of trigger that a change of topics is, and what has changed in words."""
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    told = [_change_of(name, before.get(name), after.get(name)) for name in changed[:MAX_NAMED]]
    if len(changed) > MAX_NAMED:
        told.append(f"{len(changed) - MAX_NAMED} more topics changed")
    same = before.keys() == after.keys() and all(before[name].topic_id == after[name].topic_id for name in changed)
    return history.PARTITIONS_ADDED if same else history.TOPIC_METADATA_CHANGED, "; ".join(told)


def _change_of(name: str, before: TopicInfo | None, after: TopicInfo | None) -> str:
    if before is None:
        return f"{name} is new"
    if after is None:
        return f"{name} was deleted"
    if before.topic_id != after.topic_id:
        return f"{name} was deleted and created again"
    return f"{name} has {after.partitions} partitions instead of {before.partitions}"
