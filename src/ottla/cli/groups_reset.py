"""``ottla groups reset-offsets GROUP``: show where the offsets would go, and move them if told to."""

from __future__ import annotations

import argparse
import csv
import sys
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from ottla.cli.consume import parse_time
from ottla.cli.groups_common import (
    TopicChoice,
    active_group,
    add_topic_option,
    chosen_partitions,
    committed_by,
    how_to_stop,
)
from ottla.cli.groups_reset_plan import Ends, Planned, Situation, parse_duration, plan, read_file
from ottla.cli.options import UsageError, not_negative
from ottla.cli.terminal import plural, print_json, table
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.groups import GroupDescription
from ottla.clients.admin.values import OffsetSpec
from ottla.clients.cluster.leaders import by_topic
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import GroupIdNotFound, KafkaError, OttlaError
from ottla.types import Millis, TopicPartition

_EPILOG = """\
Nothing is changed without --execute. The group must have no members then. A group that does not exist is made.

examples:
  ottla groups reset-offsets billing --topic orders --to-earliest               what would be done
  ottla groups reset-offsets billing --topic orders --to-earliest --execute     do it
  ottla groups reset-offsets billing --all-topics --to-datetime 2026-01-31T08:00:00Z
  ottla groups reset-offsets billing --all-topics --by-duration 36h             what came in the last 36 hours
  ottla groups reset-offsets billing --topic orders:0,1 --shift-by -100
  ottla groups reset-offsets billing --all-topics --to-current --export > saved.csv
  ottla groups reset-offsets billing --from-file saved.csv --execute
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("group", metavar="GROUP")
    which = parser.add_argument_group("which partitions")
    add_topic_option(which)
    which.add_argument("--all-topics", action="store_true", help="every partition that the group has an offset for")
    _add_scenarios(parser.add_argument_group("where to").add_mutually_exclusive_group(required=True))
    do = parser.add_mutually_exclusive_group()
    do.add_argument("--execute", action="store_true", help="change the offsets")
    do.add_argument("--dry-run", action="store_true", help="only show what would be done (the default)")
    parser.add_argument("--export", action="store_true", help="print CSV that --from-file reads")


def _add_scenarios(group: argparse._MutuallyExclusiveGroup) -> None:
    group.add_argument("--to-earliest", action="store_true", help="the first record that is still there")
    group.add_argument("--to-latest", action="store_true", help="the end: only what comes next")
    group.add_argument("--to-offset", type=not_negative, metavar="N", help="this offset")
    group.add_argument(
        "--to-datetime",
        "--to-timestamp",
        dest="to_timestamp",
        # As Kafka's own tool takes it.
        type=partial(parse_time, zone=UTC),
        metavar="T",
        help="the first record from this time on: ISO 8601 (UTC if it names no zone), or ms since 1970",
    )
    group.add_argument(
        "--by-duration",
        type=parse_duration,
        metavar="D",
        help="the first record that is not older: 90m, 36h, 7d, or ISO 8601 such as P7DT12H",
    )
    group.add_argument(
        "--shift-by", type=_shift, metavar="N", help="the committed offset plus N, which may be negative"
    )
    group.add_argument("--to-current", action="store_true", help="the committed offset; the end where there is none")
    group.add_argument(
        "--from-file", type=Path, metavar="CSV", help="lines of topic,partition,offset, as --export prints"
    )


def _shift(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


async def reset(admin: AsyncAdmin, args: Namespace) -> int:
    _check_usage(args)
    group = await _group(admin, args.group)
    if group is not None and group.members and args.execute:
        raise active_group(group, "cannot be reset")
    committed = (await committed_by(admin, [args.group]))[args.group]
    situation = await _situation(admin, await _partitions(admin, args, list(committed)), committed)
    planned = await plan(situation, args)
    failures = await _execute(admin, args.group, planned) if args.execute else {}
    _print_plan(args, planned, failures)
    _tell(args, group, planned)
    _raise_failures(group, failures)
    return 0


def _check_usage(args: Namespace) -> None:
    chosen = bool(args.topic) + args.all_topics
    if args.from_file is not None and chosen:
        raise UsageError("--from-file names the partitions itself: leave out --topic and --all-topics")
    if args.from_file is None and chosen != 1:
        raise UsageError("say which partitions: either --topic TOPIC[:P,P] or --all-topics")
    if args.export and (args.json or args.execute):
        raise UsageError("--export prints CSV for --from-file: leave out --json and --execute")


async def _group(admin: AsyncAdmin, name: str) -> GroupDescription | None:
    """The group, None if there is none yet."""
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
        raise OttlaError(f"group {args.group!r} has committed nothing yet: name the topics with --topic")
    return await chosen_partitions(admin, _choices(named))


def _choices(partitions: Sequence[TopicPartition]) -> list[TopicChoice]:
    return [TopicChoice(topic, tuple(key.partition for key in keys)) for topic, keys in by_topic(partitions).items()]


async def _situation(
    admin: AsyncAdmin, partitions: Sequence[TopicPartition], committed: dict[TopicPartition, OffsetAndMetadata]
) -> Situation:
    starts = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    return Situation(
        admin, partitions, committed, {key: Ends(starts[key].offset, ends[key].offset) for key in partitions}
    )


async def _execute(admin: AsyncAdmin, group: str, planned: Sequence[Planned]) -> dict[TopicPartition, KafkaError]:
    wanted = {one.key: one.new for one in planned}
    return (await admin.alter_group_offsets(group, wanted, raise_errors=False)).errors


# what is printed


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
    """Say on stderr what was not done, and why it would not work, so that nobody takes a plan for a change."""
    if args.execute or args.export:
        return
    count = plural(len(planned), "partition")
    print(f"dry run: nothing was changed; --execute resets the offsets of {count}", file=sys.stderr)
    if args.to_timestamp is not None:
        print(f"to the first records from {_in_utc(args.to_timestamp)} on", file=sys.stderr)
    if group is None:
        print(f"group {args.group!r} does not exist yet: --execute makes it", file=sys.stderr)
    elif group.members:
        members = plural(len(group.members), "active member")
        print(f"group {args.group!r} has {members}, so --execute would refuse: {how_to_stop(group)}", file=sys.stderr)


def _in_utc(at: Millis) -> str:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)
    except OverflowError:
        return f"{at} ms after 1970"
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")


def _raise_failures(group: GroupDescription | None, failures: dict[TopicPartition, KafkaError]) -> None:
    if failures:
        key, error = min(failures.items(), key=lambda item: item[0])
        name = f"group {group.group_id!r}" if group is not None else "the group"
        hint = " (a consumer may have joined it just now)" if group is not None else ""
        raise OttlaError(f"{name}: {plural(len(failures), 'offset')} could not be reset{hint}; {key}: {error}")
