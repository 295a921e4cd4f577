"""``ottla cluster explain TOPIC-PARTITION``: who led a partition when, why that changed, and who was out of sync."""

from __future__ import annotations

import argparse
import re
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence

from ottla.cli.session import check_partition, existing_topic
from ottla.cli.terminal import print_json, printable, table
from ottla.cli.topics.describe import ids, listed, partition_json
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.partition_history import read_changes
from ottla.clients.admin.values import PartitionDescription
from ottla.errors import OttlaError
from ottla.metadata.history import Absence, Change, Reign, absences, reigns
from ottla.metadata.values import NO_LEADER
from ottla.times import clock_time, duration
from ottla.types import Millis, TopicPartition

_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_EPILOG = """\
examples:
  ottla cluster explain orders-0
  ottla cluster explain orders-0 --json | jq '.changes[] | {at, leader, reason}'
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("partition", type=parse_partition, metavar="TOPIC-PARTITION", help="such as orders-0")


def parse_partition(text: str) -> TopicPartition:
    """
    >>> parse_partition("my-orders-12")
    TopicPartition(topic='my-orders', partition=12)
    """
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a partition: write its topic and number, such as orders-0")
    return TopicPartition(match["topic"], int(match["partition"]))


async def explain(admin: AsyncAdmin, args: Namespace) -> int:
    key: TopicPartition = args.partition
    check_partition(await existing_topic(admin, key.topic), key.partition)
    changes = await read_changes(admin.cluster, key)
    if changes is None:
        raise OttlaError(
            f"the broker keeps no history of partitions, so {key} cannot be explained. Ottla's broker keeps one; for "
            "Apache Kafka, see the controller's log"
        )
    (topic,) = (await admin.describe_topics(key.topic)).values()
    partition = next(one for one in topic.partitions if one.partition == key.partition)
    if args.json:
        print_json({"topic": key.topic, **partition_json(partition), "changes": [_change_json(one) for one in changes]})
    else:
        print("\n".join(explained(key, partition, changes, now=int(time.time() * 1000))))
    return 0


def explained(
    key: TopicPartition, partition: PartitionDescription, changes: Sequence[Change], *, now: Millis
) -> Iterator[str]:
    """The present state, who led when, and who was out of sync."""
    yield _headline(key, partition)
    if not changes:
        yield "nothing has changed since the partition was created"
        return
    yield ""
    rows: list[list[object]] = [
        [_leader(one.leader), one.leader_epoch, *_when(one, now), one.reason or None] for one in reigns(changes)
    ]
    yield table(["LEADER", "EPOCH", "SINCE", "FOR", "BECAUSE"], rows)
    away = absences(changes)
    if away:
        yield ""
        rows = [[f"broker {one.broker_id}", *_when(one, now), one.reason] for one in away]
        yield table(["OUT OF SYNC", "SINCE", "FOR", "BECAUSE"], rows)


def _headline(key: TopicPartition, one: PartitionDescription) -> str:
    leader = "offline" if one.leader is None else f"led by broker {one.leader.id} in epoch {one.leader_epoch}"
    elr = ids(one.eligible_leader_replicas or ())
    eligible = f", eligible {listed(elr)}" if elr else ""
    return printable(f"{key}: {leader}; replicas {listed(ids(one.replicas))}, in sync {listed(ids(one.isr))}{eligible}")


def _leader(broker: int) -> str:
    return "nobody" if broker == NO_LEADER else f"broker {broker}"


def _when(period: Reign | Absence, now: Millis) -> tuple[str, str | None]:
    """The begin of a period, and its length."""
    if period.since <= 0:
        return "before", None
    length = (
        f"{duration(max(0, now - period.since))} so far"
        if period.until is None
        else duration(period.until - period.since)
    )
    return clock_time(period.since), length


def _change_json(one: Change) -> dict[str, object]:
    return one._asdict() | {
        "at": one.at or None,
        "leader": None if one.leader == NO_LEADER else one.leader,
        "isr": list(one.isr),
        "elr": list(one.elr),
    }
