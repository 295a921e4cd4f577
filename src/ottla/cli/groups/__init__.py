"""``ottla groups list|describe|lag|members|configs|reset-offsets|delete|delete-offsets|remove-members|explain|plan``.

This module has `list` and the deletions. Every other action has its own module.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Mapping

from ottla.cli.groups import configs, describe, explain, lag, plan, reset
from ottla.cli.groups.common import add_topic_option, chosen_partitions
from ottla.cli.options import add_filter
from ottla.cli.session import add_action
from ottla.cli.terminal import plural, print_json, table
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.groups import CLASSIC, GroupDescription, ListedGroup, MemberToRemove
from ottla.errors import GroupIdNotFound, GroupSubscribedToTopic, KafkaError, NonEmptyGroup, OttlaError
from ottla.groups.lookup import active_group, existing_groups, missing_group
from ottla.suggestions import hint
from ottla.types import TopicPartition

STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)
TYPES = ("classic", "consumer", "share", "streams")


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _configure_list(add_action(actions, "list", list_, "list the groups"))
    describe.configure(add_action(actions, "describe", describe.describe, "show offsets, lag, members and state"))
    lag.configure(add_action(actions, "lag", lag.lag, "show how far groups are behind, in records and in seconds"))
    describe.configure_members(
        add_action(actions, "members", describe.members, "show the members of a group and their assignments")
    )
    configs.configure(add_action(actions, "configs", configs.configs, "show, set and unset the configs of a group"))
    reset.configure(add_action(actions, "reset-offsets", reset.reset, "move the offsets of a group without members"))
    _configure_delete(add_action(actions, "delete", delete, "delete groups without members, with their offsets"))
    _configure_delete_offsets(
        add_action(actions, "delete-offsets", delete_group_offsets, "delete the offsets of a group for topics")
    )
    _configure_remove(add_action(actions, "remove-members", remove_members, "remove members from a classic group"))
    explain.configure(add_action(actions, "explain", explain.explain, "explain why a group rebalanced, as a timeline"))
    plan.configure(
        add_action(actions, "plan", plan.show_plan, "show what an assignor would move, without changing anything")
    )


# list


def _configure_list(parser: argparse.ArgumentParser) -> None:
    add_filter(parser, "--state", STATES, "groups in this state")
    add_filter(parser, "--type", TYPES, "groups of this type")
    parser.add_argument("-q", "--quiet", action="store_true", help="only names, one per line")


async def list_(admin: AsyncAdmin, args: Namespace) -> int:
    groups = await admin.list_groups(states=args.state or (), types=args.type or ())
    if args.json:
        print_json([_listed_json(group) for group in groups])
    elif args.quiet:
        print("".join(f"{group.group_id}\n" for group in groups), end="")
    elif not groups:
        print("no groups match" if args.state or args.type else "no groups exist yet")
    else:
        rows = [[group.group_id, group.type, group.state, group.protocol_type or None] for group in groups]
        print(table(["GROUP", "TYPE", "STATE", "PROTOCOL"], rows))
    return 0


def _listed_json(group: ListedGroup) -> dict[str, object]:
    return {"group": group.group_id, "type": group.type, "state": group.state, "protocol_type": group.protocol_type}


# delete


def _configure_delete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    parser.add_argument("--if-exists", action="store_true", help="ignore groups that do not exist")


async def delete(admin: AsyncAdmin, args: Namespace) -> int:
    results = await admin.delete_groups(args.groups, raise_errors=False)
    errors = {group: results.errors.get(group) for group in dict.fromkeys(args.groups)}
    failed = {group: error for group, error in errors.items() if error is not None}
    if args.if_exists:
        failed = {group: error for group, error in failed.items() if not isinstance(error, GroupIdNotFound)}
    explained = await _explained(admin, failed)
    _tell_deleted(args, errors, explained)
    if explained:
        raise OttlaError("; ".join(explained.values()))
    return 0


async def _explained(admin: AsyncAdmin, failed: Mapping[str, KafkaError]) -> dict[str, str]:
    """The broker's errors, with advice."""
    described = await admin.describe_groups(failed, raise_errors=False)
    return {group: await _why_not_deleted(admin, group, error, described.get(group)) for group, error in failed.items()}


async def _why_not_deleted(admin: AsyncAdmin, group: str, error: KafkaError, described: GroupDescription | None) -> str:
    if isinstance(error, GroupIdNotFound):
        return str(await missing_group(admin, group))
    if isinstance(error, NonEmptyGroup) and described is not None:
        return str(active_group(described, "cannot be deleted"))
    return f"group {group!r} cannot be deleted: {error}"


def _tell_deleted(args: Namespace, errors: Mapping[str, KafkaError | None], explained: Mapping[str, str]) -> None:
    statuses = {
        group: "failed" if group in explained else "deleted" if error is None else "missing"
        for group, error in errors.items()
    }
    if args.json:
        outcomes = [{"group": group, "status": status} for group, status in statuses.items()]
        print_json(
            [one | ({"error": explained[one["group"]]} if one["group"] in explained else {}) for one in outcomes]
        )
        return
    for group, status in statuses.items():
        if status != "failed":
            print(f"deleted group {group}" if status == "deleted" else f"group {group} does not exist")


# remove-members


def _configure_remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("members", nargs="+", metavar="MEMBER", help="a member id, or a group.instance.id")


async def remove_members(admin: AsyncAdmin, args: Namespace) -> int:
    """Remove members. One that still runs joins again."""
    (group,) = await existing_groups(admin, [args.group])
    if group.type != CLASSIC:
        raise OttlaError(f"group {args.group!r} has the consumer protocol: stop its consumers instead")
    known = {name for one in group.members for name in (one.member_id, one.instance_id) if name}
    for name in args.members:
        if name not in known:
            near = hint(name, known) or f"; `ottla groups members {args.group}` lists them"
            raise OttlaError(f"group {args.group!r} has no member {name!r}{near}")
    instances = {one.instance_id for one in group.members if one.instance_id}
    wanted = [
        MemberToRemove(name if name in instances else None, "" if name in instances else name) for name in args.members
    ]
    await admin.remove_members(args.group, wanted)
    if args.json:
        print_json([{"group": args.group, "member": name, "status": "removed"} for name in args.members])
    else:
        print(f"removed {plural(len(wanted), 'member')} from group {args.group}")
    return 0


# delete-offsets


def _configure_delete_offsets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    add_topic_option(parser, required=True)


async def delete_group_offsets(admin: AsyncAdmin, args: Namespace) -> int:
    (group,) = await existing_groups(admin, [args.group])
    partitions = await chosen_partitions(admin, args.topic)
    results = await admin.delete_group_offsets(args.group, partitions, raise_errors=False)
    errors = {key: results.errors.get(key) for key in partitions}
    if args.json:
        print_json([_offset_outcome(key, error) for key, error in sorted(errors.items())])
    else:
        rows = [
            [key.topic, key.partition, "deleted" if error is None else "failed"]
            for key, error in sorted(errors.items())
        ]
        print(table(["TOPIC", "PARTITION", "STATUS"], rows))
    _raise_offset_errors(group, errors)
    return 0


def _offset_outcome(key: TopicPartition, error: KafkaError | None) -> dict[str, object]:
    outcome: dict[str, object] = {"topic": key.topic, "partition": key.partition}
    return outcome | ({"status": "deleted"} if error is None else {"status": "failed", "error": str(error)})


def _raise_offset_errors(group: GroupDescription, errors: Mapping[TopicPartition, KafkaError | None]) -> None:
    failed = {key: error for key, error in errors.items() if error is not None}
    if not failed:
        return
    topics = ", ".join(sorted({key.topic for key in failed}))
    if all(isinstance(error, GroupSubscribedToTopic) for error in failed.values()):
        raise active_group(group, f"subscribes to {topics}, so these offsets cannot be deleted")
    key, error = min(failed.items(), key=lambda item: item[0])
    raise OttlaError(f"could not delete the offsets of {plural(len(failed), 'partition')}; {key}: {error}")
