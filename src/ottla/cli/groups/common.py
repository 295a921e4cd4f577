"""Shared by the actions on groups: look up the named groups and partitions, and build the errors about them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from ottla.cli.options import did_you_mean
from ottla.cli.session import check_partition, existing_topic
from ottla.cli.terminal import plural
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.group_offsets import committed_offsets
from ottla.clients.admin.groups import GroupDescription
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import GroupIdNotFound, KafkaError, NonEmptyGroup, OttlaError
from ottla.types import TopicPartition

SHOWN_MEMBERS = 3


class TopicChoice(NamedTuple):
    """A topic from the command line; `partitions` is None for all of them."""

    topic: str
    partitions: tuple[int, ...] | None = None


def add_topic_option(parser: argparse._ActionsContainer, *, required: bool = False) -> None:
    parser.add_argument(
        "--topic",
        action="append",
        type=parse_topic,
        required=required,
        metavar="TOPIC[:P,P]",
        help="a topic, or some of its partitions, such as orders:0,2; repeatable",
    )


def parse_topic(text: str) -> TopicChoice:
    """
    >>> parse_topic("orders"), parse_topic("orders:0,2")
    (TopicChoice(topic='orders', partitions=None), TopicChoice(topic='orders', partitions=(0, 2)))
    """
    topic, colon, numbers = text.partition(":")
    if not colon and topic:
        return TopicChoice(topic)
    parts = [part.strip() for part in numbers.split(",")]
    if not topic or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of partitions: write TOPIC or TOPIC:0,1,2")
    return TopicChoice(topic, tuple(sorted({int(part) for part in parts})))


async def chosen_partitions(admin: AsyncAdmin, choices: Sequence[TopicChoice]) -> list[TopicPartition]:
    """Return the named partitions, which must exist."""
    found: set[TopicPartition] = set()
    for choice in choices:
        topic = await existing_topic(admin, choice.topic)
        for number in topic.partitions if choice.partitions is None else choice.partitions:
            check_partition(topic, number)
            found.add(TopicPartition(topic.name, number))
    return sorted(found)


async def existing_groups(admin: AsyncAdmin, names: Sequence[str]) -> list[GroupDescription]:
    """Describe groups, which must exist; the error suggests a similar name."""
    described = await admin.describe_groups(names, raise_errors=False)
    for name, error in described.errors.items():
        if isinstance(error, GroupIdNotFound):
            raise await missing_group(admin, name)
        raise OttlaError(f"group {name!r}: {error}")
    return [described[name] for name in dict.fromkeys(names)]


async def missing_group(admin: AsyncAdmin, name: str) -> KafkaError:
    """The error for a group that does not exist, or is not a consumer group."""
    groups = {group.group_id: group for group in await admin.list_groups()}
    if name in groups and groups[name].type is not None:
        return GroupIdNotFound(f"group {name!r} is not a consumer group: its type is {groups[name].type}")
    hint = did_you_mean(name, groups) or "; `ottla groups list` lists all groups"
    return GroupIdNotFound(f"group {name!r} does not exist{hint}")


async def committed_by(admin: AsyncAdmin, names: Sequence[str]) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """The committed offsets of each group; raises the first error."""
    found: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    # The admin client handles one group at a time; there may be thousands.
    for name, outcome in (await committed_offsets(admin.cluster, names)).items():
        if isinstance(outcome, KafkaError):
            raise OttlaError(f"cannot fetch the offsets of group {name!r}: {outcome}")
        found[name] = outcome
    return found


def active_group(group: GroupDescription, problem: str) -> NonEmptyGroup:
    """The error for a group that must have no members, with advice."""
    count = plural(len(group.members), "active member")
    return NonEmptyGroup(
        f"group {group.group_id!r} {problem} while it has {count} (state {group.state}): {how_to_stop(group)}"
    )


def how_to_stop(group: GroupDescription) -> str:
    """Advice on how to stop the members of a group."""
    shown = [f"client {member.client_id} on {member.host.lstrip('/')}" for member in group.members[:SHOWN_MEMBERS]]
    more = len(group.members) - len(shown)
    names = ", ".join(dict.fromkeys(shown)) + (f" and {more} more" if more else "")
    return (
        f"stop its consumers first ({names}) and wait until the group is Empty; "
        "a killed consumer stays a member until its session timeout expires"
    )
