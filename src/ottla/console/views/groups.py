"""The list of groups, and the members and partitions of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ottla.clients.admin.groups import GroupDescription, ListedGroup
from ottla.console.collector import Key
from ottla.console.views.paging import whole
from ottla.groups.offsets import OffsetRow
from ottla.monitoring.watch import Row
from ottla.types import TopicPartition

SORTS = ("lag", "seconds", "name", "state")
PAGE = 100
_KINDS = {"Stable": "good", "Empty": "idle", "Dead": "bad"}


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the list; the lag is None while it is not known, or if nothing is committed."""

    name: str
    type: str | None
    state: str | None
    lag: int | None
    seconds: float | None
    partitions: int
    lost: int

    @property
    def kind(self) -> str:
        """The status mark of the state."""
        return state_kind(self.state)


def state_kind(state: str | None) -> str:
    """
    >>> state_kind("Stable"), state_kind("PreparingRebalance"), state_kind(None)
    ('good', 'warn', 'idle')
    """
    return "idle" if state is None else _KINDS.get(state, "warn")


def group_rows(
    listed: Iterable[ListedGroup], rows: Mapping[Key, Row] | None, *, search: str = "", state: str = "", sort: str = ""
) -> list[GroupRow]:
    """The groups that match, in the wanted order."""
    by_group: dict[str, list[Row]] = {}
    for (group, _), row in (rows or {}).items():
        by_group.setdefault(group, []).append(row)
    wanted = search.casefold()
    found = [
        _row(one, by_group.get(one.group_id, []))
        for one in listed
        if wanted in one.group_id.casefold() and (not state or one.state == state)
    ]
    orders = {
        "name": lambda one: one.name,
        "state": lambda one: (one.state or "", one.name),
        "seconds": lambda one: (-(one.seconds or 0.0), -(one.lag or 0), one.name),
    }
    return sorted(found, key=orders.get(sort, lambda one: (-(one.lag or 0), one.name)))


def _row(group: ListedGroup, rows: Sequence[Row]) -> GroupRow:
    seconds = [row.seconds for row in rows if row.seconds is not None]
    return GroupRow(
        group.group_id,
        group.type,
        group.state,
        sum(row.lag for row in rows) if rows else None,
        max(seconds) if seconds and len(seconds) == len(rows) else None,
        len(rows),
        sum(row.lost for row in rows),
    )


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member of a group."""

    member_id: str
    name: str
    client_id: str
    instance_id: str | None
    host: str
    epoch: int | None
    partitions: int
    assignment: str
    lag: int | None


def member_rows(group: GroupDescription, offsets: Sequence[OffsetRow], names: Mapping[str, str]) -> list[MemberRow]:
    """The members by name, with the lag of what they have."""
    lags: dict[TopicPartition, int | None] = {row.key: row.lag for row in offsets}
    found = []
    for one in group.members:
        known = [lag for key in one.assignment if (lag := lags.get(key)) is not None]
        found.append(
            MemberRow(
                one.member_id,
                names.get(one.member_id, one.member_id),
                one.client_id,
                one.instance_id,
                one.host.lstrip("/"),
                one.epoch,
                len(one.assignment),
                partition_ranges(one.assignment),
                sum(known) if len(known) == len(one.assignment) else None,
            )
        )
    return sorted(found, key=lambda one: one.name)


def partition_ranges(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in a few words: three or more in a row are a range.

    >>> partition_ranges([TopicPartition("a", one) for one in (0, 1, 5, 6, 7, 9)] + [TopicPartition("b", 2)])
    'a:0,1,5-7,9; b:2'
    """
    topics = groupby(sorted(set(partitions)), key=lambda key: key.topic)
    return "; ".join(f"{topic}:{number_ranges([key.partition for key in keys])}" for topic, keys in topics)


def number_ranges(numbers: Sequence[int]) -> str:
    """Numbers in order; three or more in a row are a range."""
    runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    found = [[number for _, number in run] for _, run in runs]
    return ",".join(f"{one[0]}-{one[-1]}" if len(one) > 2 else ",".join(map(str, one)) for one in found)


def pages_of(count: int, page: str) -> tuple[int, int]:
    """The page that was asked for, and how many there are.

    >>> pages_of(250, "2"), pages_of(0, "x"), pages_of(10, "7")
    ((2, 3), (1, 1), (1, 1))
    """
    pages = max(-(-count // PAGE), 1)
    return min(max(whole(page) or 1, 1), pages), pages
