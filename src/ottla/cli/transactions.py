"""``ottla transactions list|describe|find-hanging|abort``.

A transaction hangs if it is open in a partition but unknown to every coordinator. read_committed consumers cannot read
past it. `find-hanging` finds such transactions, `abort` ends one.
"""

from __future__ import annotations

import argparse
import time
from argparse import Namespace

from ottla.cli.groups.common import add_topic_option, chosen_partitions
from ottla.cli.options import UsageError, add_filter, not_negative
from ottla.cli.session import add_action, check_partition, existing_topic
from ottla.cli.terminal import print_json, table
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.transactions import (
    LONGEST_MS,
    AbortMarker,
    ListedTransaction,
    OpenTransaction,
    TransactionDescription,
    abort_transaction,
    describe_transactions,
    list_transactions,
    open_transactions,
    without_coordinator,
)
from ottla.errors import KafkaError, OttlaError
from ottla.types import Millis, TopicPartition

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
MINUTE = 60_000
LONGEST_MINUTES = LONGEST_MS // MINUTE


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _configure_list(add_action(actions, "list", list_, "list transactional ids and their states"))
    _configure_describe(add_action(actions, "describe", describe, "show the transaction of an id and its partitions"))
    _configure_find(
        add_action(actions, "find-hanging", find_hanging, "find open transactions that no coordinator knows")
    )
    _configure_abort(
        add_action(actions, "abort", abort, "abort a transaction in one partition, bypassing its coordinator")
    )


# list


def _configure_list(parser: argparse.ArgumentParser) -> None:
    add_filter(parser, "--state", STATES, "ids in this state")
    parser.add_argument(
        "--producer-id", action="append", type=not_negative, metavar="ID", help="only ids of this producer; repeatable"
    )
    parser.add_argument(
        "--longer-than",
        type=not_negative,
        default=-1,
        metavar="MS",
        help="only transactions open for longer than MS milliseconds",
    )
    parser.add_argument("--pattern", metavar="REGEX", help="only ids that match this regular expression entirely")


async def list_(admin: AsyncAdmin, args: Namespace) -> int:
    found = await list_transactions(
        admin,
        states=args.state or (),
        producer_ids=args.producer_id or (),
        longer_than=args.longer_than,
        pattern=args.pattern,
    )
    if args.json:
        print_json([_listed_json(each) for each in found])
    elif not found:
        print("no transactional ids match")
    else:
        rows = [[each.transactional_id, each.state, each.producer_id] for each in found]
        print(table(["TRANSACTIONAL-ID", "STATE", "PRODUCER-ID"], rows))
    return 0


def _listed_json(each: ListedTransaction) -> dict[str, object]:
    return {"transactional_id": each.transactional_id, "state": each.state, "producer_id": each.producer_id}


# describe


def _configure_describe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="TRANSACTIONAL-ID")


async def describe(admin: AsyncAdmin, args: Namespace) -> int:
    results = await describe_transactions(admin, list(dict.fromkeys(args.ids)))
    found = [each for each in results.values() if isinstance(each, TransactionDescription)]
    now = _now()
    if args.json:
        print_json([_described_json(each, now) for each in found])
    elif found:
        print("\n\n".join(_described(each, now) for each in found))
    failed = [each for each in results.values() if isinstance(each, KafkaError)]
    if failed:
        hint = "; `ottla transactions list` lists all ids"
        raise OttlaError("; ".join(map(str, failed)) + hint)
    return 0


def _described(each: TransactionDescription, now: Millis) -> str:
    lines = [
        f"transactional id  {each.transactional_id}",
        f"state             {each.state}",
        f"producer          {each.producer_id}, epoch {each.producer_epoch}",
        f"timeout           {each.timeout_ms:,} ms",
        f"coordinator       broker {each.coordinator}",
    ]
    if each.state == "Ongoing" and each.started_at is not None:
        lines.append(f"open for          {now - each.started_at:,} ms")
    if each.partitions:
        lines.append(f"partitions        {', '.join(map(str, sorted(each.partitions)))}")
    return "\n".join(lines)


def _described_json(each: TransactionDescription, now: Millis) -> dict[str, object]:
    ongoing = each.state == "Ongoing" and each.started_at is not None
    return {
        "transactional_id": each.transactional_id,
        "state": each.state,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "timeout_ms": each.timeout_ms,
        "coordinator": each.coordinator,
        "started_at": each.started_at,
        "open_for_ms": now - each.started_at if ongoing and each.started_at is not None else None,
        "partitions": [{"topic": one.topic, "partition": one.partition} for one in sorted(each.partitions)],
    }


# find-hanging


def _configure_find(parser: argparse.ArgumentParser) -> None:
    add_topic_option(parser)
    parser.add_argument(
        "--max-transaction-timeout",
        type=not_negative,
        default=LONGEST_MINUTES,
        metavar="MINUTES",
        help="only transactions that are idle for this long; use the brokers' transaction.max.timeout.ms "
        f"(default: {LONGEST_MINUTES})",
    )


async def find_hanging(admin: AsyncAdmin, args: Namespace) -> int:
    """Find transactions that are idle for too long and that no coordinator knows."""
    before = _now() - args.max_transaction_timeout * MINUTE
    suspects = [
        each
        for each in await open_transactions(admin, await _partitions(admin, args))
        if each.producer.last_timestamp <= before
    ]
    found = await without_coordinator(admin, suspects)
    if args.json:
        print_json([_open_json(each) for each in found])
    elif not found:
        print("no hanging transactions found")
    else:
        _print_hanging(found)
    return 0


async def _partitions(admin: AsyncAdmin, args: Namespace) -> list[TopicPartition]:
    if args.topic:
        return await chosen_partitions(admin, args.topic)
    metadata = await admin.cluster.refresh(None)
    return [TopicPartition(topic.name, number) for topic in metadata.topics.values() for number in topic.partitions]


def _print_hanging(found: list[OpenTransaction]) -> None:
    now = _now()
    rows = [
        [
            each.partition.topic,
            each.partition.partition,
            each.start_offset,
            each.producer.producer_id,
            each.producer.producer_epoch,
            (now - each.producer.last_timestamp) // MINUTE,
        ]
        for each in found
    ]
    print(table(["TOPIC", "PARTITION", "START-OFFSET", "PRODUCER-ID", "PRODUCER-EPOCH", "IDLE-MINUTES"], rows))
    first = found[0]
    print(
        f"\nabort the first one with: ottla transactions abort --topic {first.partition.topic} --partition "
        f"{first.partition.partition} --start-offset {first.start_offset}"
    )


def _open_json(each: OpenTransaction) -> dict[str, object]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "start_offset": each.start_offset,
        "producer_id": each.producer.producer_id,
        "producer_epoch": each.producer.producer_epoch,
        "coordinator_epoch": each.producer.coordinator_epoch,
        "last_timestamp": each.producer.last_timestamp,
    }


# abort


def _configure_abort(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", required=True, metavar="TOPIC")
    parser.add_argument("--partition", required=True, type=not_negative, metavar="NUMBER")
    parser.add_argument(
        "--start-offset",
        type=not_negative,
        metavar="OFFSET",
        help="the first offset of the transaction in the partition",
    )
    parser.add_argument(
        "--producer-id",
        type=not_negative,
        metavar="ID",
        help="the producer id; only for brokers before 3.0, which report no start offsets",
    )
    parser.add_argument("--producer-epoch", type=not_negative, metavar="EPOCH")
    parser.add_argument("--coordinator-epoch", type=not_negative, default=0, metavar="EPOCH")
    parser.add_argument("--yes", action="store_true", help="abort even if a coordinator knows the transaction")


async def abort(admin: AsyncAdmin, args: Namespace) -> int:
    partition = TopicPartition(args.topic, args.partition)
    topic = await existing_topic(admin, args.topic)
    check_partition(topic, args.partition)
    marker = await _marker(admin, args, partition)
    error = await abort_transaction(admin, partition, marker)
    if error is not None:
        raise OttlaError(f"could not abort the transaction in {partition}: {error}")
    if args.json:
        print_json({"topic": args.topic, "partition": args.partition, "producer_id": marker.producer_id})
    else:
        print(f"aborted the transaction of producer {marker.producer_id} in {partition}")
    return 0


async def _marker(admin: AsyncAdmin, args: Namespace, partition: TopicPartition) -> AbortMarker:
    if args.start_offset is None:
        if args.producer_id is None or args.producer_epoch is None:
            raise UsageError("name the transaction: use --start-offset, or --producer-id and --producer-epoch")
        return AbortMarker(args.producer_id, args.producer_epoch, args.coordinator_epoch)
    found = [each for each in await open_transactions(admin, [partition]) if each.start_offset == args.start_offset]
    if not found:
        raise OttlaError(
            f"no open transaction starts at offset {args.start_offset} of {partition}: use find-hanging to find one"
        )
    if not args.yes and not await without_coordinator(admin, found):
        raise OttlaError(
            f"the coordinator knows the transaction at offset {args.start_offset} of {partition} and will end it. "
            "Aborting it here loses records if the producer commits it; use --yes to abort it anyway"
        )
    return found[0].marker


def _now() -> Millis:
    return int(time.time() * 1000)
