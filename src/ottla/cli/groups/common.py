"""Shared by the actions on groups: options that name topics and partitions."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from ottla.cli.session import check_partition, existing_topic
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.types import TopicPartition


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
