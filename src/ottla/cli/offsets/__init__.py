"""``ottla offsets dump``: print ``__consumer_offsets``, decoded, from a broker or from files.

`history.py` has ``ottla offsets history``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from ottla.cli.log import segment_files
from ottla.cli.offsets import history
from ottla.cli.offsets.latest import Latest
from ottla.cli.offsets.text import KINDS, TopicNames, as_json, as_text, kind_of
from ottla.cli.options import UsageError, add_bootstrap_option, add_parser, not_negative
from ottla.cli.session import run, run_with_admin
from ottla.cli.terminal import printable
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.offsets_topic import Entry, entries, partition_count, partition_of, read_entries
from ottla.errors import OttlaError, UnknownTopicOrPartition
from ottla.metadata.machine import CONSUMER_OFFSETS
from ottla.records import scan

_EPILOG = """\
examples:
  ottla offsets dump --group billing                    all records of one group
  ottla offsets dump --kind offsets --latest --json     the last commit for each partition of each group
  ottla offsets dump --file data/__consumer_offsets-12  read segment files, without a broker
"""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    one = add_parser(actions, "dump", "print the records of __consumer_offsets, decoded", epilog=_EPILOG)
    add_bootstrap_option(one)
    one.add_argument(
        "--file",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="read these segment files or partition directories instead of a broker",
    )
    one.add_argument("-g", "--group", action="append", metavar="GROUP", help="only this group; repeatable")
    one.add_argument(
        "--partition", action="append", type=not_negative, metavar="P", help="only this partition; repeatable"
    )
    one.add_argument("--kind", action="append", choices=KINDS, help="only records of this kind; repeatable")
    one.add_argument(
        "--latest",
        action="store_true",
        help="only the last record of each key, without records of open or aborted transactions",
    )
    one.add_argument("--json", action="store_true", help="print one JSON object per line")
    one.set_defaults(run=dump)
    history.configure(actions)


def dump(args: Namespace) -> int:
    if args.file and args.partition:
        raise UsageError("--partition cannot be used with --file: name the files of the partition")
    if args.file:
        return run(_print(args, _from_files(args.file), TopicNames({})))
    return run_with_admin(args, _dump_topic)


async def _dump_topic(admin: AsyncAdmin, args: Namespace) -> int:
    topics = (await admin.cluster.refresh(None)).topics.values()
    names = TopicNames({topic.topic_id: topic.name for topic in topics if topic.topic_id is not None})
    return await _print(args, _from_broker(admin, args), names)


# input


async def _from_broker(admin: AsyncAdmin, args: Namespace) -> AsyncIterator[Entry]:
    try:
        count = await partition_count(admin.cluster)
    except UnknownTopicOrPartition:
        raise UnknownTopicOrPartition(
            f"{CONSUMER_OFFSETS} does not exist yet: no group has used this cluster"
        ) from None
    wanted = set(args.partition or range(count))
    if max(wanted) >= count:
        raise UnknownTopicOrPartition(f"{CONSUMER_OFFSETS} has no partition {max(wanted)}: it has 0 to {count - 1}")
    if args.group:
        wanted &= {await partition_of(admin.cluster, group) for group in args.group}
    for partition in sorted(wanted):
        async for entry in read_entries(admin.cluster, partition):
            yield entry


async def _from_files(paths: list[Path]) -> AsyncIterator[Entry]:
    for path in paths:
        for file in segment_files(path, f"{CONSUMER_OFFSETS}-12"):
            for entry in _read_segment(file):
                yield entry


def _read_segment(path: Path) -> Iterator[Entry]:
    named = re.fullmatch(rf"{CONSUMER_OFFSETS}-(\d+)", path.absolute().parent.name)
    partition = int(named[1]) if named is not None else None
    data = path.read_bytes()
    found = scan(data, 0, len(data))
    for position, header in found.batches:
        yield from entries(data, position, header, partition=partition)
    # A running broker may be in the middle of a write.
    if found.problem is not None and not found.incomplete:
        raise OttlaError(f"{path} is damaged at byte {found.end}: {found.problem}; the records before it were printed")


# printing


async def _print(args: Namespace, source: AsyncIterator[Entry], names: TopicNames) -> int:
    if args.latest:
        latest = await _read_latest(args, source)
        for entry in latest.entries():
            _print_one(args, entry, names)
        if latest.is_waiting:
            print("offsets of open transactions are not shown", file=sys.stderr)
    else:
        async for entry in source:
            if _is_wanted(args, entry):
                _print_one(args, entry, names)
    return 0


def _is_wanted(args: Namespace, entry: Entry) -> bool:
    return (not args.group or entry.group_id in args.group) and (not args.kind or kind_of(entry) in args.kind)


async def _read_latest(args: Namespace, source: AsyncIterator[Entry]) -> Latest:
    latest = Latest()
    async for entry in source:
        # A transaction marker has no group, but decides whether earlier entries count.
        if entry.record is None or _is_wanted(args, entry):
            latest.add(entry)
    return latest


def _print_one(args: Namespace, entry: Entry, names: TopicNames) -> None:
    if args.json:
        sys.stdout.write(json.dumps(as_json(entry, names), ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(printable(as_text(entry, names)) + "\n")
