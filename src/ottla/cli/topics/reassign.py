"""``ottla topics reassign``: change how many replicas topics have and where they are, while clients keep running."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence

from ottla.cli.options import UsageError, not_negative, positive
from ottla.cli.terminal import LiveLine, plural, print_json, table
from ottla.cli.topics import throttles
from ottla.cli.topics.describe import described_topics, ids, listed
from ottla.cli.topics.plan import Placement, Replicas, plan
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import PartitionReassignment, TopicDescription
from ottla.errors import KafkaError, OttlaError
from ottla.types import BrokerId, TopicPartition

_POLL_SECONDS = 0.5
_REPLICAS = re.compile(r"(?:(?P<partition>\d+)=)?(?P<brokers>\d+(?:,\d+)*)")
_EPILOG = """\
examples:
  ottla topics reassign orders --replication-factor 3             add or remove replicas
  ottla topics reassign orders --replication-factor 3 --wait --throttle 10000000
  ottla topics reassign orders --replicas 2,3,1                   the same brokers for all partitions
  ottla topics reassign orders --replicas 0=1,2 --replicas 1=2,3  partition by partition
  ottla topics reassign --all --without-broker 4                  empty a broker before it is removed
  ottla topics reassign orders --status
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("topics", nargs="*", metavar="TOPIC")
    parser.add_argument("--all", action="store_true", help="all topics, also internal ones")
    parser.add_argument("-r", "--replication-factor", type=positive, metavar="N", help="the new number of replicas")
    parser.add_argument(
        "--without-broker",
        type=not_negative,
        action="append",
        default=[],
        metavar="ID",
        help="move all replicas away from this broker; repeatable",
    )
    parser.add_argument(
        "--replicas",
        type=_parse_replicas,
        action="append",
        default=[],
        metavar="[PARTITION=]ID,...",
        help="exactly these brokers, the preferred leader first, for one partition or for all; repeatable",
    )
    parser.add_argument(
        "--throttle", type=positive, metavar="BYTES", help="copy at most this many bytes per second on each broker"
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")
    parser.add_argument("--wait", action="store_true", help="wait until everything is copied, and lift the throttle")
    parser.add_argument("--cancel", action="store_true", help="stop, and go back to the replicas before")
    parser.add_argument("--status", action="store_true", help="show what is being copied; lift the throttle at the end")


def _parse_replicas(text: str) -> tuple[int | None, Replicas]:
    match = _REPLICAS.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of brokers: write 1,2,3, or 0=1,2,3 for partition 0")
    brokers = tuple(int(broker) for broker in match["brokers"].split(","))
    if len(set(brokers)) != len(brokers):
        raise argparse.ArgumentTypeError(f"{text!r} has a broker twice: a broker can have one replica of a partition")
    return None if match["partition"] is None else int(match["partition"]), brokers


async def reassign(admin: AsyncAdmin, args: Namespace) -> int:
    _check(args)
    if args.status or args.cancel:
        topics = await described_topics(admin, args.topics)
        return await (_cancel if args.cancel else _status)(admin, args, topics)
    every = await described_topics(admin, ())
    topics = every if args.all else await described_topics(admin, args.topics)
    now = {key: one for topic in every for key, one in _placements(topic).items()}
    wanted = [key for topic in topics for key in _placements(topic)]
    planned = await _planned(admin, args, now, wanted)
    if planned and not args.dry_run:
        if args.throttle:
            await throttles.limit(admin, {key: now[key].replicas for key in planned}, planned, args.throttle)
        await _submit(admin, planned)
    _tell(args, now, planned)
    if planned and args.wait and not args.dry_run:
        await _wait(admin, list(planned))
        if args.throttle:
            await throttles.lift(admin, {key.topic for key in planned})
    return 0


def _check(args: Namespace) -> None:
    modes = [name for name in ("status", "cancel") if getattr(args, name)]
    changes = [
        f"--{name.replace('_', '-')}"
        for name in ("replication_factor", "without_broker", "replicas")
        if getattr(args, name)
    ]
    if len(modes) > 1:
        raise UsageError("--status and --cancel exclude each other")
    if modes and changes:
        raise UsageError(f"--{modes[0]} changes no replicas: remove {' and '.join(changes)}")
    if not modes and not changes:
        raise UsageError("nothing to do: use --replication-factor, --replicas, --without-broker, --status or --cancel")
    if args.replicas and len(changes) > 1:
        raise UsageError(f"--replicas says everything: remove {' and '.join(changes[:-1])}")
    if args.all == bool(args.topics) and not args.status:
        raise UsageError("name the topics, or use --all" if not args.topics else "name topics or use --all, not both")
    if args.replicas and (args.all or len(args.topics) > 1):
        raise UsageError("--replicas is for one topic: run the command once for each topic")
    given = [partition for partition, _ in args.replicas]
    if len(set(given)) != len(given) or (None in given and len(given) > 1):
        raise UsageError("--replicas is given twice for a partition: use it once for all, or once for each partition")


def _placements(topic: TopicDescription) -> dict[TopicPartition, Placement]:
    return {
        TopicPartition(topic.name, one.partition): Placement(
            tuple(ids(one.replicas)), tuple(ids(one.isr)), None if one.leader is None else one.leader.id
        )
        for one in topic.partitions
    }


async def _planned(
    admin: AsyncAdmin, args: Namespace, now: Mapping[TopicPartition, Placement], wanted: Sequence[TopicPartition]
) -> dict[TopicPartition, Replicas]:
    nodes = (await admin.describe_cluster()).nodes
    if not args.replicas:
        racks = {node.id: node.rack for node in nodes}
        return plan(now, wanted, racks, factor=args.replication_factor, without=args.without_broker)
    given = dict(args.replicas)
    known = {key.partition for key in wanted}
    unknown = sorted(partition for partition in given if partition is not None and partition not in known)
    if unknown:
        raise UsageError(f"topic {wanted[0].topic} has no partition {unknown[0]}: it has 0 to {max(known)}")
    missing = sorted({broker for brokers in given.values() for broker in brokers} - {node.id for node in nodes})
    if missing:
        there = ", ".join(str(node.id) for node in nodes)
        raise UsageError(f"there is no broker {missing[0]}: the cluster has {there}")
    found = {key: given.get(key.partition, given.get(None)) for key in wanted}
    return {key: brokers for key, brokers in found.items() if brokers is not None and brokers != now[key].replicas}


async def _submit(admin: AsyncAdmin, planned: Mapping[TopicPartition, Sequence[BrokerId] | None]) -> None:
    results = await admin.alter_partition_reassignments(planned, raise_errors=False)
    _raise(results.errors)


def _raise(errors: Mapping[TopicPartition, KafkaError]) -> None:
    if errors:
        reasons = [f"{key}: {error}".rstrip(".") for key, error in list(errors.items())[:5]]
        more = f"; and {len(errors) - 5} more" if len(errors) > 5 else ""
        raise OttlaError("; ".join(reasons) + more)


def _tell(args: Namespace, now: Mapping[TopicPartition, Placement], planned: Mapping[TopicPartition, Replicas]) -> None:
    status = "planned" if args.dry_run else "started"
    if args.json:
        print_json(
            [
                {
                    "topic": key.topic,
                    "partition": key.partition,
                    "status": status,
                    "from": list(now[key].replicas),
                    "to": list(replicas),
                }
                for key, replicas in planned.items()
            ]
        )
    elif not planned:
        print("nothing to do: all replicas are where they should be")
    else:
        rows = [[str(key), listed(now[key].replicas), listed(replicas)] for key, replicas in planned.items()]
        print(table(["PARTITION", "FROM", "TO"], rows))
        if not args.dry_run and not args.wait:
            names = " ".join(dict.fromkeys(key.topic for key in planned))
            print(f"started; see how far it is with: ottla topics reassign {names} --status")


async def _wait(admin: AsyncAdmin, keys: Sequence[TopicPartition]) -> None:
    line = LiveLine(sys.stderr)
    while left := await admin.list_partition_reassignments(keys):
        if line.is_live:
            line.show(f"{len(keys) - len(left)} of {plural(len(keys), 'partition')} done")
        await asyncio.sleep(_POLL_SECONDS)
    line.clear()


async def _cancel(admin: AsyncAdmin, args: Namespace, topics: Sequence[TopicDescription]) -> int:
    keys = [key for topic in topics for key in _placements(topic)]
    moving = await admin.list_partition_reassignments(keys)
    await _submit(admin, dict.fromkeys(moving))
    await throttles.lift(admin, {topic.name for topic in topics})
    if args.json:
        print_json([{"topic": key.topic, "partition": key.partition, "status": "cancelled"} for key in moving])
    else:
        print(f"cancelled the reassignment of {plural(len(moving), 'partition')}")
    return 0


async def _status(admin: AsyncAdmin, args: Namespace, topics: Sequence[TopicDescription]) -> int:
    now = {key: one for topic in topics for key, one in _placements(topic).items()}
    moving = await admin.list_partition_reassignments(list(now))
    if args.json:
        print_json([_moving_json(key, one, now[key]) for key, one in moving.items()])
    elif moving:
        rows = [_moving_row(key, one, now[key]) for key, one in moving.items()]
        print(table(["PARTITION", "REPLICAS", "ADDING", "REMOVING", "IN-SYNC"], rows))
    else:
        print("no partition is being reassigned")
    done = {topic.name for topic in topics} - {key.topic for key in moving}
    lifted = await throttles.lift(admin, done)
    if lifted and not args.json:
        print(f"lifted the throttle of {', '.join(lifted)}")
    return 0


def _moving_json(key: TopicPartition, one: PartitionReassignment, now: Placement) -> dict[str, object]:
    return {
        "topic": key.topic,
        "partition": key.partition,
        "replicas": list(one.replicas),
        "adding": list(one.adding_replicas),
        "removing": list(one.removing_replicas),
        "isr": list(now.in_sync),
    }


def _moving_row(key: TopicPartition, one: PartitionReassignment, now: Placement) -> list[object]:
    there = f"{len(set(one.adding_replicas) & set(now.in_sync))} of {len(one.adding_replicas)} new"
    return [str(key), *map(listed, (one.replicas, one.adding_replicas, one.removing_replicas)), there]
