"""``ottla groups describe`` and ``members``: tables like those of Kafka's own tool, or JSON."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.cli.options import UsageError
from ottla.cli.terminal import note, print_json, table
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.groups import CONSUMER, EMPTY, GroupDescription, GroupMember
from ottla.groups.lookup import existing_groups
from ottla.groups.offsets import OffsetRow, format_partitions, offset_rows, shown_seconds
from ottla.types import TopicPartition

_EPILOG = """\
examples:
  ottla groups describe billing                     offsets and lag of each partition
  ottla groups describe billing --members --verbose members with their assignments
  ottla groups describe --all-groups --state
  ottla groups describe billing --json | jq '[.[].offsets[].lag] | add'
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--all-groups", action="store_true", help="every consumer group")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--offsets", action="store_true", help="offsets and lag of each partition (the default)")
    what.add_argument("--members", action="store_true", help="the members and their number of partitions")
    what.add_argument("--state", action="store_true", help="coordinator, assignor, state and number of members")
    parser.add_argument("-v", "--verbose", action="store_true", help="more columns: epochs, and assignments of members")


def configure_members(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")


async def describe(admin: AsyncAdmin, args: Namespace) -> int:
    groups = await existing_groups(admin, await group_names(admin, args))
    if not groups and not args.json:
        print("no groups exist yet")
    elif args.json:
        rows = await offset_rows(admin, groups)
        print_json([_as_json(group, rows[group.group_id]) for group in groups])
    elif args.members:
        _print_members(groups, args.verbose)
    elif args.state:
        _print_states(groups, args.verbose)
    else:
        _print_offsets(groups, await offset_rows(admin, groups), args.verbose)
    return 0


async def members(admin: AsyncAdmin, args: Namespace) -> int:
    groups = await existing_groups(admin, [args.group])
    if args.json:
        print_json([_member_json(member) for member in groups[0].members])
    else:
        _print_members(groups, verbose=True)
    return 0


async def group_names(admin: AsyncAdmin, args: Namespace) -> list[str]:
    if bool(args.groups) == args.all_groups:
        raise UsageError("name the groups to describe, or use --all-groups")
    if args.groups:
        return list(args.groups)
    return [group.group_id for group in await admin.list_groups() if group.of_consumers]


# offsets


def _print_offsets(groups: Sequence[GroupDescription], rows: Mapping[str, list[OffsetRow]], verbose: bool) -> None:
    _note_states(groups)
    epoch = ["LEADER-EPOCH"] if verbose else []
    headers = ["GROUP", "TOPIC", "PARTITION", *epoch, "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    lines = [_offset_line(group.group_id, row, verbose) for group in groups for row in rows[group.group_id]]
    print(table([*headers, "CONSUMER-ID", "HOST", "CLIENT-ID", "LAG-SECONDS"], lines))


def _offset_line(group: str, row: OffsetRow, verbose: bool) -> list[object]:
    epoch = [row.committed.leader_epoch if row.committed else None] if verbose else []
    offset = row.committed.offset if row.committed else None
    seconds = shown_seconds(row.lag_seconds)
    owner = [row.owner.member_id, row.owner.host, row.owner.client_id] if row.owner else [None] * 3
    return [group, row.key.topic, row.key.partition, *epoch, offset, row.end_offset, row.lag, *owner, seconds]


def _note_states(groups: Sequence[GroupDescription]) -> None:
    for group in groups:
        if group.state == EMPTY or not group.members:
            note(f"group {group.group_id} has no active members")
        elif group.state != "Stable":
            note(f"group {group.group_id} is in state {group.state}: its assignments are about to change")


# members and state


def _print_members(groups: Sequence[GroupDescription], verbose: bool) -> None:
    _note_states(groups)
    all_members = [(group, member) for group in groups for member in group.members]
    static = any(member.instance_id is not None for _, member in all_members)
    headers = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if static else []), "HOST", "CLIENT-ID", "#PARTITIONS"]
    modern = any(group.type == CONSUMER for group in groups)
    if verbose:
        headers += ["CURRENT-EPOCH", "ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"] if modern else ["ASSIGNMENT"]
    lines = [_member_line(group, member, static, verbose, modern) for group, member in all_members]
    print(table(headers, lines))


def _member_line(
    group: GroupDescription, member: GroupMember, static: bool, verbose: bool, modern: bool
) -> list[object]:
    line: list[object] = [group.group_id, member.member_id, *([member.instance_id] if static else [])]
    line += [member.host, member.client_id, len(member.assignment)]
    assignment = format_partitions(member.assignment)
    if verbose and modern:
        target = None if member.target is None else format_partitions(member.target)
        line += [member.epoch, assignment, group.assignment_epoch, target]
    elif verbose:
        line.append(assignment)
    return line


def _print_states(groups: Sequence[GroupDescription], verbose: bool) -> None:
    more = ["TYPE", "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] if verbose else []
    headers = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", *more, "#MEMBERS"]
    lines = [
        [
            group.group_id,
            f"{group.coordinator} ({group.coordinator.id})",
            group.assignor or None,
            group.state,
            *([group.type, group.epoch, group.assignment_epoch] if verbose else []),
            len(group.members),
        ]
        for group in groups
    ]
    print(table(headers, lines))


# json


def _as_json(group: GroupDescription, rows: Sequence[OffsetRow]) -> dict[str, Any]:
    node = group.coordinator
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor or None,
        "coordinator": {"id": node.id, "host": node.host, "port": node.port},
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": [_member_json(member) for member in group.members],
        "offsets": [_offset_json(row) for row in rows],
    }


def _member_json(member: GroupMember) -> dict[str, Any]:
    return {
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "rack": member.rack,
        "protocol": member.protocol,
        "topics": list(member.topics),
        "topic_regex": member.topic_regex,
        "epoch": member.epoch,
        "assignment": [_partition_json(key) for key in member.assignment],
        "target": None if member.target is None else [_partition_json(key) for key in member.target],
    }


def _partition_json(key: TopicPartition) -> dict[str, Any]:
    return {"topic": key.topic, "partition": key.partition}


def _offset_json(row: OffsetRow) -> dict[str, Any]:
    committed, owner = row.committed, row.owner
    return _partition_json(row.key) | {
        "current_offset": committed.offset if committed else None,
        "leader_epoch": committed.leader_epoch if committed else None,
        "metadata": committed.metadata if committed else None,
        "log_end_offset": row.end_offset,
        "lag": row.lag,
        "lag_seconds": row.lag_seconds,
        "log_start_offset": row.start_offset,
        "lost": row.lost,
        "consumer_id": owner.member_id if owner else None,
        "host": owner.host if owner else None,
        "client_id": owner.client_id if owner else None,
    }
