"""What the actions on groups share: the groups and partitions that a command line names, and the errors about them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from ottla.cli.options import did_you_mean
from ottla.cli.session import existing_topic
from ottla.cli.terminal import plural
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.group_offsets import committed_offsets
from ottla.clients.admin.groups import GroupDescription
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import GroupIdNotFound, KafkaError, NonEmptyGroup, OttlaError, UnknownTopicOrPartition
from ottla.types import TopicPartition

SHOWN_MEMBERS = 3


class TopicChoice(NamedTuple):
    """A topic of the command line; without partitions all of them are meant."""

    topic: str
    partitions: tuple[int, ...] | None = None


def add_topic_option(parser: argparse._ActionsContainer, *, required: bool = False) -> None:
    parser.add_argument(
        "--topic",
        action="append",
        type=parse_topic,
        required=required,
        metavar="TOPIC[:P,P]",
        help="a topic, or some partitions of it, such as orders:0,2; may be repeated",
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
        raise argparse.ArgumentTypeError(f"{text!r} names no partitions: write TOPIC or TOPIC:0,1,2")
    return TopicChoice(topic, tuple(sorted({int(part) for part in parts})))


async def chosen_partitions(admin: AsyncAdmin, choices: Sequence[TopicChoice]) -> list[TopicPartition]:
    """The partitions that the topics of the command line have; they must exist."""
    found: set[TopicPartition] = set()
    for choice in choices:
        topic = await existing_topic(admin, choice.topic)
        for number in topic.partitions if choice.partitions is None else choice.partitions:
            if number not in topic.partitions:
                last = len(topic.partitions) - 1
                raise UnknownTopicOrPartition(f"topic {topic.name} has no partition {number}: it has 0 to {last}")
            found.add(TopicPartition(topic.name, number))
    return sorted(found)


async def existing_groups(admin: AsyncAdmin, names: Sequence[str]) -> list[GroupDescription]:
    """Groups that must be there; the error names the one that was probably meant."""
    described = await admin.describe_groups(names, raise_errors=False)
    for name, error in described.errors.items():
        if isinstance(error, GroupIdNotFound):
            raise await missing_group(admin, name)
        raise OttlaError(f"group {name!r}: {error}")
    return [described[name] for name in dict.fromkeys(names)]


async def missing_group(admin: AsyncAdmin, name: str) -> KafkaError:
    """The error for a group that is not there, or is of a kind that these commands do not know."""
    groups = {group.group_id: group for group in await admin.list_groups()}
    if name in groups and groups[name].type is not None:
        return GroupIdNotFound(f"group {name!r} is of the type {groups[name].type}, which is not for consumers")
    hint = did_you_mean(name, groups) or "; `ottla groups list` shows all"
    return GroupIdNotFound(f"group {name!r} does not exist{hint}")


async def committed_by(admin: AsyncAdmin, names: Sequence[str]) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """What each group has committed, or the first error, raised."""
    found: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    # The admin client asks for one group at a time; there may be thousands.
    for name, outcome in (await committed_offsets(admin.cluster, names)).items():
        if isinstance(outcome, KafkaError):
            raise OttlaError(f"the offsets of group {name!r} cannot be fetched: {outcome}")
        found[name] = outcome
    return found


def active_group(group: GroupDescription, problem: str) -> NonEmptyGroup:
    """The error for a group that should have no members, with how to get there."""
    count = plural(len(group.members), "active member")
    return NonEmptyGroup(
        f"group {group.group_id!r} {problem} while it has {count} (state {group.state}): {how_to_stop(group)}"
    )


def how_to_stop(group: GroupDescription) -> str:
    """What to do about the members of a group."""
    shown = [f"client {member.client_id} on {member.host.lstrip('/')}" for member in group.members[:SHOWN_MEMBERS]]
    more = len(group.members) - len(shown)
    names = ", ".join(dict.fromkeys(shown)) + (f" and {more} more" if more else "")
    return (
        f"stop its consumers first ({names}) and wait until the group is Empty; "
        "one that was killed counts until its session timeout is over"
    )
