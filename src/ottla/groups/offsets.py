"""The committed offsets of groups, with their lag in records and in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.groups import GroupDescription, GroupMember
from ottla.clients.admin.lag import LOOKS, ROUNDS, log_bounds, measure
from ottla.consuming.values import OffsetAndMetadata
from ottla.groups.lookup import committed_by
from ottla.monitoring.lag import Lags
from ottla.runtime.clock import SystemClock
from ottla.types import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """A partition with a committed offset, or one that is assigned to a member."""

    key: TopicPartition
    committed: OffsetAndMetadata | None
    end_offset: int | None
    owner: GroupMember | None
    start_offset: int | None = None
    lag_seconds: float | None = None
    """The age of the oldest record that the group has not read; 0 if it has read all."""

    @property
    def lost(self) -> int | None:
        """Records that were deleted before the group read them."""
        if self.committed is None or self.start_offset is None:
            return None
        return max(self.start_offset - self.committed.offset, 0)

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end_offset is None:
            return None
        return self.end_offset - self.committed.offset


async def offset_rows(admin: AsyncAdmin, groups: Sequence[GroupDescription]) -> dict[str, list[OffsetRow]]:
    """The partitions of each group, with their lag."""
    committed = await committed_by(admin, [group.group_id for group in groups])
    owners = {group.group_id: _owners(group) for group in groups}
    keys = {group: sorted(offsets.keys() | owners[group].keys()) for group, offsets in committed.items()}
    wanted = {key for some in keys.values() for key in some}
    await admin.cluster.refresh({key.topic for key in wanted})
    bounds = await log_bounds(admin.cluster, sorted(wanted))
    positions: dict[TopicPartition, list[int]] = {}
    for offsets in committed.values():
        for key, one in offsets.items():
            if key in bounds:
                positions.setdefault(key, []).append(one.offset)
    lags, clock = Lags(), SystemClock()
    await measure(admin.cluster, lags, positions, bounds, rounds=ROUNDS, looks=LOOKS, now=clock.now)

    def row(key: TopicPartition, one: OffsetAndMetadata | None, owner: GroupMember | None) -> OffsetRow:
        start, end = bounds.get(key, (None, None))
        seconds = None if one is None else lags.seconds(key, one.offset, now=clock.now())
        return OffsetRow(key, one, end, owner, start, seconds)

    return {
        group: [row(key, committed[group].get(key), owners[group].get(key)) for key in some]
        for group, some in keys.items()
    }


def _owners(group: GroupDescription) -> dict[TopicPartition, GroupMember]:
    return {key: member for member in group.members for key in member.assignment}


def shown_seconds(seconds: float | None) -> str | None:
    """
    >>> shown_seconds(0.0), shown_seconds(0.2345), shown_seconds(3600.5), shown_seconds(None)
    ('0', '0.2', '3600', None)
    """
    if seconds is None:
        return None
    return f"{seconds:.1f}" if 0 < seconds < 10 else f"{int(seconds)}"


def format_partitions(partitions: Iterable[TopicPartition]) -> str | None:
    """Format partitions as Kafka's tool does; None if there are none.

    >>> format_partitions([TopicPartition("orders", 0), TopicPartition("orders", 2), TopicPartition("users", 1)])
    'orders:0,2;users:1'
    """
    topics = groupby(sorted(partitions), key=lambda key: key.topic)
    return ";".join(f"{topic}:{','.join(str(key.partition) for key in keys)}" for topic, keys in topics) or None
