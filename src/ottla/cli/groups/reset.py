"""``ottla groups reset-offsets GROUP``: show the new offsets; with --execute, commit them."""

from __future__ import annotations

import argparse
import csv
import sys
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from ottla.cli.groups.common import TopicChoice, add_topic_option, chosen_partitions
from ottla.cli.options import UsageError, not_negative, whole_number
from ottla.cli.terminal import plural, print_json, table
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.groups import GroupDescription
from ottla.clients.cluster.leaders import by_topic
from ottla.errors import GroupIdNotFound, KafkaError, OttlaError
from ottla.groups.lookup import active_group, committed_by, how_to_stop
from ottla.groups.resets import Planned, plan, read_file, situation_of
from ottla.times import parse_duration, parse_time
from ottla.types import Millis, TopicPartition

_EPILOG = """\
Nothing is changed without --execute. With it, the group must have no members; a missing group is created.

examples:
  ottla groups reset-offsets billing --topic orders --to-earliest               dry run
  ottla groups reset-offsets billing --topic orders --to-earliest --execute
  ottla groups reset-offsets billing --all-topics --to-datetime 2026-01-31T08:00:00Z
  ottla groups reset-offsets billing --all-topics --by-duration 36h             replay the last 36 hours
  ottla groups reset-offsets billing --topic orders:0,1 --shift-by -100
  ottla groups reset-offsets billing --all-topics --to-current --export > saved.csv
  ottla groups reset-offsets billing --from-file saved.csv --execute
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("group", metavar="GROUP")
    which = parser.add_argument_group("which partitions")
    add_topic_option(which)
    which.add_argument("--all-topics", action="store_true", help="every partition with a committed offset")
    _add_scenarios(parser.add_argument_group("new offset").add_mutually_exclusive_group(required=True))
    do = parser.add_mutually_exclusive_group()
    do.add_argument("--execute", action="store_true", help="change the offsets")
    do.add_argument("--dry-run", action="store_true", help="only show the new offsets (the default)")
    parser.add_argument("--export", action="store_true", help="print the plan as CSV for --from-file")


def _add_scenarios(group: argparse._MutuallyExclusiveGroup) -> None:
    group.add_argument("--to-earliest", action="store_true", help="the first available record")
    group.add_argument("--to-latest", action="store_true", help="the end of the partition")
    group.add_argument("--to-offset", type=not_negative, metavar="N", help="this offset")
    group.add_argument(
        "--to-datetime",
        "--to-timestamp",
        dest="to_timestamp",
        # Kafka's own tool assumes UTC, too.
        type=partial(parse_time, zone=UTC),
        metavar="T",
        help="the first record at or after this time: ISO 8601 (UTC unless it has a zone), or epoch milliseconds",
    )
    group.add_argument(
        "--by-duration",
        type=parse_duration,
        metavar="D",
        help="the first record of this last period: 90m, 36h, 7d, or ISO 8601 such as P7DT12H",
    )
    group.add_argument(
        "--shift-by", type=whole_number, metavar="N", help="the committed offset plus N; N may be negative"
    )
    group.add_argument("--to-current", action="store_true", help="the committed offset, or the end if there is none")
    group.add_argument(
        "--from-file",
        type=Path,
        metavar="CSV",
        help="a file with lines of topic,partition,offset, as written by --export",
    )


async def reset(admin: AsyncAdmin, args: Namespace) -> int:
    _check_usage(args)
    group = await _group(admin, args.group)
    if group is not None and group.members and args.execute:
        raise active_group(group, "cannot be reset")
    committed = (await committed_by(admin, [args.group]))[args.group]
    situation = await situation_of(admin, await _partitions(admin, args, list(committed)), committed)
    planned = await plan(situation, args)
    failures = await _execute(admin, args.group, planned) if args.execute else {}
    _print_plan(args, planned, failures)
    _tell(args, group, planned)
    _raise_failures(group, failures)
    return 0


def _check_usage(args: Namespace) -> None:
    chosen = bool(args.topic) + args.all_topics
    if args.from_file is not None and chosen:
        raise UsageError("--from-file names the partitions: remove --topic and --all-topics")
    if args.from_file is None and chosen != 1:
        raise UsageError("choose the partitions: use either --topic TOPIC[:P,P] or --all-topics")
    if args.export and (args.json or args.execute):
        raise UsageError("--export prints CSV: remove --json and --execute")


async def _group(admin: AsyncAdmin, name: str) -> GroupDescription | None:
    """The group, or None if it does not exist."""
    described = await admin.describe_groups(name, raise_errors=False)
    error = described.errors.get(name)
    if error is not None and not isinstance(error, GroupIdNotFound):
        raise OttlaError(f"group {name!r}: {error}")
    return described.get(name)


async def _partitions(admin: AsyncAdmin, args: Namespace, committed: Sequence[TopicPartition]) -> list[TopicPartition]:
    if args.topic:
        return await chosen_partitions(admin, args.topic)
    named = list(read_file(args.from_file, args.group)) if args.from_file is not None else committed
    if not named:
        raise OttlaError(f"group {args.group!r} has no committed offsets: name the topics with --topic")
    return await chosen_partitions(admin, _choices(named))


def _choices(partitions: Sequence[TopicPartition]) -> list[TopicChoice]:
    return [TopicChoice(topic, tuple(key.partition for key in keys)) for topic, keys in by_topic(partitions).items()]


async def _execute(admin: AsyncAdmin, group: str, planned: Sequence[Planned]) -> dict[TopicPartition, KafkaError]:
    wanted = {one.key: one.new for one in planned}
    return (await admin.alter_group_offsets(group, wanted, raise_errors=False)).errors


# output


def _print_plan(args: Namespace, planned: Sequence[Planned], failures: dict[TopicPartition, KafkaError]) -> None:
    if args.export:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([one.key.topic, one.key.partition, one.new] for one in planned)
    elif args.json:
        print_json([_as_json(args, one, failures.get(one.key)) for one in planned])
    else:
        notes = any(one.note for one in planned)
        headers = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET", *(["NOTE"] if notes else [])]
        rows = [
            [args.group, one.key.topic, one.key.partition, one.current, one.new, *([one.note] if notes else [])]
            for one in planned
        ]
        print(table(headers, rows))


def _as_json(args: Namespace, one: Planned, failure: KafkaError | None) -> dict[str, object]:
    status = "failed" if failure is not None else "reset" if args.execute else "dry run"
    fields: dict[str, object] = {
        "group": args.group,
        "topic": one.key.topic,
        "partition": one.key.partition,
        "current_offset": one.current,
        "new_offset": one.new,
        "note": one.note or None,
        "status": status,
    }
    return fields | ({"error": str(failure)} if failure is not None else {})


def _tell(args: Namespace, group: GroupDescription | None, planned: Sequence[Planned]) -> None:
    """Warn on stderr that this was a dry run, and whether --execute would fail."""
    if args.execute or args.export:
        return
    count = plural(len(planned), "partition")
    print(f"dry run: nothing was changed; use --execute to reset the offsets of {count}", file=sys.stderr)
    if args.to_timestamp is not None:
        print(f"new offsets: the first records at or after {_in_utc(args.to_timestamp)}", file=sys.stderr)
    if group is None:
        print(f"group {args.group!r} does not exist yet: --execute creates it", file=sys.stderr)
    elif group.members:
        members = plural(len(group.members), "active member")
        print(f"group {args.group!r} has {members}, so --execute would fail: {how_to_stop(group)}", file=sys.stderr)


def _in_utc(at: Millis) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)
    except OverflowError:
        return f"{at} ms since 1970"
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")


def _raise_failures(group: GroupDescription | None, failures: dict[TopicPartition, KafkaError]) -> None:
    if failures:
        key, error = min(failures.items(), key=lambda item: item[0])
        name = f"group {group.group_id!r}" if group is not None else "the group"
        hint = " (a consumer may have just joined)" if group is not None else ""
        raise OttlaError(f"could not reset {plural(len(failures), 'offset')} of {name}{hint}; {key}: {error}")
