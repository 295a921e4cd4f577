"""``ottla consume TOPIC``: print records from the end, the beginning, an offset or a time, and wait for more."""

from __future__ import annotations

import argparse
import select
import sys
import time
from argparse import Namespace
from collections.abc import Callable

from ottla.cli.lines import LineFormat
from ottla.cli.options import (
    UsageError,
    add_bootstrap_option,
    client_config,
    not_negative,
    positive,
    raw_bytes,
    separator,
    whole_number,
)
from ottla.cli.session import check_partition, existing_topic
from ottla.cli.session import run as run_coroutine
from ottla.cli.terminal import note, plural
from ottla.clients import jsonlines
from ottla.clients.cluster.metadata import TopicInfo
from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.consuming.values import ConsumerRecord, ConsumerRecords
from ottla.errors import OffsetOutOfRange
from ottla.times import parse_time
from ottla.types import Millis, TopicPartition

Format = Callable[[ConsumerRecord], bytes]
POLL_SECONDS = 0.5
NEW_PARTITIONS_SECONDS = 30.0
_EPILOG = """\
examples:
  ottla consume orders --from-beginning                  all records, then new ones until Ctrl-C
  ottla consume orders --from-beginning --exit-at-end    all current records
  ottla consume orders --partition 2 --offset 1000 --max-messages 10
  ottla consume orders --partition 2 --offset -10        the last ten of a partition, then new ones
  ottla consume orders --timestamp 2026-01-31T08:00:00Z --json | jq .value
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_option(parser)
    _add_start_options(parser.add_argument_group("where to start (default: at the end)"))
    end = parser.add_argument_group("when to stop (default: Ctrl-C)")
    end.add_argument("-n", "--max-messages", type=positive, metavar="N", help="stop after N records")
    end.add_argument("--timeout-ms", type=positive, metavar="MS", help="stop after MS milliseconds without a record")
    end.add_argument("--exit-at-end", action="store_true", help="stop at the current end of the topic")
    _add_format_options(parser.add_argument_group("output (default: only the value)"))
    parser.add_argument("-q", "--quiet", action="store_true", help="print no notes on the terminal")
    parser.set_defaults(run=run)


def _add_start_options(group: argparse._ArgumentGroup) -> None:
    start = group.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="start at the first available record")
    start.add_argument(
        "--offset", type=whole_number, metavar="N", help="start at offset N; -N: N records before the end"
    )
    start.add_argument(
        "--timestamp", type=parse_time, metavar="T", help="start at this time: epoch milliseconds, or ISO 8601"
    )
    group.add_argument(
        "--partition", type=not_negative, action="append", metavar="P", help="only this partition; repeatable"
    )


def _add_format_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--keys", action="store_true", help="print key, tab and value")
    group.add_argument("-k", "--key-separator", type=separator, metavar="SEP", help="print key, SEP and value")
    group.add_argument("--headers", action="store_true", help="print headers as name:value,name:value and a tab first")
    group.add_argument(
        "--null-marker", type=raw_bytes, default=b"null", metavar="TEXT", help="print TEXT for null (default: null)"
    )
    group.add_argument(
        "--json", action="store_true", help="print one JSON object per line, with all fields; binary data in base64"
    )


def run(args: Namespace) -> int:
    if args.json and (args.keys or args.key_separator or args.headers):
        raise UsageError("--json includes key and headers: remove --keys, --key-separator and --headers")
    try:
        return run_coroutine(_session(args))
    except KeyboardInterrupt:
        return 0


async def _session(args: Namespace) -> int:
    config = {**client_config(args), "auto.offset.reset": "none", "allow.auto.create.topics": False}
    async with AsyncConsumer(config) as consumer:
        return await consume(consumer, args)


async def consume(consumer: AsyncConsumer, args: Namespace) -> int:
    topic = await existing_topic(consumer, args.topic)
    partitions = _chosen_partitions(topic, args.partition)
    positions = await _start_positions(consumer, partitions, args)
    ends = await consumer.end_offsets(partitions) if args.exit_at_end else None
    if ends is None and args.max_messages is None and not args.quiet:
        where = (
            "from the beginning"
            if args.from_beginning
            else "from the given position"
            if _says_where(args)
            else "new records only"
        )
        note(f"reading {plural(len(partitions), 'partition')} of {topic.name}, {where}; press Ctrl-C to stop")
    await consumer.assign(partitions)
    for key, offset in positions.items():
        await consumer.seek(key, offset)
    reader = _Reader(consumer, args, ends)
    try:
        await reader.run()
    finally:
        if not args.quiet:
            note(f"{plural(reader.count, 'record')} read")
    return 0


def _says_where(args: Namespace) -> bool:
    return args.offset is not None or args.timestamp is not None


def _chosen_partitions(topic: TopicInfo, wanted: list[int] | None) -> list[TopicPartition]:
    for partition in wanted or ():
        check_partition(topic, partition)
    return [key for key in topic.topic_partitions if wanted is None or key.partition in wanted]


async def _start_positions(
    consumer: AsyncConsumer, partitions: list[TopicPartition], args: Namespace
) -> dict[TopicPartition, int]:
    if args.from_beginning:
        return await consumer.beginning_offsets(partitions)
    if args.timestamp is not None:
        return await _positions_at(consumer, partitions, args.timestamp)
    if args.offset is not None:
        return await _positions_by_offset(consumer, partitions, args.offset)
    return await consumer.end_offsets(partitions)


async def _positions_at(
    consumer: AsyncConsumer, partitions: list[TopicPartition], timestamp: Millis
) -> dict[TopicPartition, int]:
    found = await consumer.offsets_for_times(dict.fromkeys(partitions, timestamp))
    ends = await consumer.end_offsets(partitions)
    return {key: ends[key] if one is None else one.offset for key, one in found.items()}


async def _positions_by_offset(
    consumer: AsyncConsumer, partitions: list[TopicPartition], offset: int
) -> dict[TopicPartition, int]:
    starts, ends = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
    if offset < 0:
        return {key: max(starts[key], ends[key] + offset) for key in partitions}
    if len(partitions) > 1:
        raise UsageError(f"--offset {offset} needs --partition: the topic has {len(partitions)} partitions")
    for key in partitions:
        if not starts[key] <= offset <= ends[key]:
            raise OffsetOutOfRange(
                f"offset {offset} is out of range: partition {key} has offsets {starts[key]} to {ends[key]}"
            )
    return dict.fromkeys(partitions, offset)


class _Reader:
    """Print fetched records until a stop condition is met."""

    def __init__(self, consumer: AsyncConsumer, args: Namespace, ends: dict[TopicPartition, int] | None) -> None:
        self.count = 0
        self._consumer = consumer
        self._args = args
        self._ends = ends
        self._format = _format_of(args)
        self._refreshed = self._last = time.monotonic()
        self._reader_gone = _watch_for_reader()

    async def run(self) -> None:
        while not await self._finished():
            if records := await self._consumer.poll(self._patience()):
                self._print(records)
            await self._notice_new_partitions()

    async def _finished(self) -> bool:
        idle_ms = (time.monotonic() - self._last) * 1000
        return (
            (self._args.max_messages is not None and self.count >= self._args.max_messages)
            or (self._args.timeout_ms is not None and idle_ms >= self._args.timeout_ms)
            or (self._ends is not None and await self._at_end(self._ends))
            or self._reader_gone()
        )

    async def _at_end(self, ends: dict[TopicPartition, int]) -> bool:
        return all([await self._consumer.position(key) >= end for key, end in ends.items()])

    def _patience(self) -> float:
        if self._args.timeout_ms is None:
            return POLL_SECONDS
        left: float = self._args.timeout_ms / 1000 - (time.monotonic() - self._last)
        return max(0.001, min(POLL_SECONDS, left))

    def _print(self, found: ConsumerRecords) -> None:
        records: list[ConsumerRecord] = found
        if self._ends is not None:
            ends = {(key.topic, key.partition): end for key, end in self._ends.items()}
            records = [record for record in records if record.offset < ends[record.topic, record.partition]]
        if self._args.max_messages is not None:
            records = records[: self._args.max_messages - self.count]
        sys.stdout.buffer.write(b"".join([self._format(record) for record in records]))
        sys.stdout.buffer.flush()
        self.count += len(records)
        self._last = time.monotonic()

    async def _notice_new_partitions(self) -> None:
        """Read partitions that are added later from their beginning."""
        if self._args.partition or self._ends or time.monotonic() - self._refreshed < NEW_PARTITIONS_SECONDS:
            return
        self._refreshed = time.monotonic()
        known = self._consumer.assignment()
        there = {
            TopicPartition(self._args.topic, info.partition)
            for info in await self._consumer.partitions_for(self._args.topic)
        }
        if added := there - known:
            await self._consumer.assign(known | added)
            for key in added:
                await self._consumer.seek(key, 0)


def _format_of(args: Namespace) -> Format:
    if args.json:
        return lambda record: jsonlines.format_record(TopicPartition(record.topic, record.partition), record)
    key_separator = args.key_separator or (b"\t" if args.keys else None)
    lines = LineFormat(key_separator, args.headers, args.null_marker)
    return lines.format


def _watch_for_reader() -> Callable[[], bool]:
    """Detect that the output pipe was closed, as in ``... | head -1``, even while no records arrive."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return lambda: any(event & select.POLLERR for _, event in poll.poll(0))
