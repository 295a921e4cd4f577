"""``ottla topics elect-leaders``: preferred leaders, or any leader at all with --unclean."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterable, Mapping

from ottla.cli.options import UsageError, not_negative
from ottla.cli.terminal import plural, print_json, table
from ottla.cli.topics.describe import described_topics
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import TopicDescription
from ottla.errors import KafkaError, OttlaError, PreferredLeaderNotAvailable
from ottla.types import TopicPartition

_EPILOG = """\
examples:
  ottla topics elect-leaders                      all partitions that are not led by their first replica
  ottla topics elect-leaders orders
  ottla topics elect-leaders orders --partition 3 --unclean
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all topics")
    parser.add_argument(
        "--partition", type=not_negative, action="append", metavar="N", help="only this partition; repeatable"
    )
    parser.add_argument(
        "--unclean",
        action="store_true",
        help="elect a replica that is not in sync where there is no other: records that it lacks are lost",
    )


async def elect_leaders(admin: AsyncAdmin, args: Namespace) -> int:
    if args.unclean and not args.topics:
        raise UsageError("--unclean can lose records: name the topics")
    if args.partition and len(args.topics) != 1:
        raise UsageError("--partition needs exactly one topic")
    before = _leaders(await described_topics(admin, args.topics))
    keys = _chosen(before, args.partition)
    kind = "unclean" if args.unclean else "preferred"
    results = await admin.elect_leaders(kind, keys, raise_errors=False)
    after = _leaders(await described_topics(admin, {key.topic for key in keys}) if keys else [])
    changed = {key: after[key] for key in keys if after.get(key) != before[key] and key not in results.errors}
    _tell(args, before, changed, results.errors)
    if results.errors:
        raise OttlaError(_reasons(results.errors))
    return 0


def _leaders(topics: Iterable[TopicDescription]) -> dict[TopicPartition, int | None]:
    return {
        TopicPartition(topic.name, one.partition): None if one.leader is None else one.leader.id
        for topic in topics
        for one in topic.partitions
    }


def _chosen(leaders: Mapping[TopicPartition, int | None], partitions: list[int] | None) -> list[TopicPartition]:
    if not partitions:
        return list(leaders)
    for number in partitions:
        if not any(key.partition == number for key in leaders):
            topic, last = next(iter(leaders)).topic, max(key.partition for key in leaders)
            raise UsageError(f"topic {topic} has no partition {number}: it has 0 to {last}")
    return [key for key in leaders if key.partition in partitions]


def _tell(
    args: Namespace,
    before: Mapping[TopicPartition, int | None],
    changed: Mapping[TopicPartition, int | None],
    errors: Mapping[TopicPartition, KafkaError],
) -> None:
    if args.json:
        outcomes: list[dict[str, object]] = [
            {"topic": key.topic, "partition": key.partition, "from": before[key], "to": leader}
            for key, leader in changed.items()
        ]
        outcomes += [
            {"topic": key.topic, "partition": key.partition, "error": str(error)} for key, error in errors.items()
        ]
        print_json(outcomes)
    elif changed:
        rows = [[str(key), before[key], leader] for key, leader in changed.items()]
        print(table(["PARTITION", "FROM", "TO"], rows))
    elif not errors:
        already = "has a leader" if args.unclean else "is led by its first replica"
        print(f"nothing to do: each partition {already}")


def _reasons(errors: Mapping[TopicPartition, KafkaError]) -> str:
    first = [f"{key}: {_explained(error)}" for key, error in list(errors.items())[:5]]
    more = f"; and {plural(len(errors) - 5, 'other partition')}" if len(errors) > 5 else ""
    return "; ".join(first) + more


def _explained(error: KafkaError) -> str:
    message = str(error).rstrip(".")
    if isinstance(error, PreferredLeaderNotAvailable):
        return f"{message} (its first replica is not in sync; see ottla topics describe)"
    return message
