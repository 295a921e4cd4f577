"""``ottla produce TOPIC``: write each line of standard input as a record."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.cli import stdin
from ottla.cli.lines import LineFormat
from ottla.cli.options import (
    UsageError,
    add_bootstrap_option,
    client_config,
    not_negative,
    raw_bytes,
    separator,
)
from ottla.cli.session import check_partition
from ottla.cli.session import run as run_on_loop
from ottla.cli.terminal import Progress, megabytes, note, plural
from ottla.clients import jsonlines
from ottla.clients.cluster.metadata import TopicInfo
from ottla.clients.jsonlines import BadLine, NewRecord
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.errors import InvalidPartitions, OttlaError, UnknownTopicOrPartition
from ottla.producing.values import RecordMetadata
from ottla.records import Compression, Headers

_ACKS = ("0", "1", "all", "-1")
_BATCH_BYTES = 256 * 1024
_BUFFER_BYTES = 64 * 1024 * 1024
_EPILOG = """\
examples:
  echo hello | ottla produce greetings
  printf 'alice:3\\nbob:5\\n' | ottla produce scores --key-separator :
  echo '{"key": "alice", "value": {"total": 3}, "headers": {"trace": "abc"}}' | ottla produce orders --json
  ottla consume orders --json --from-beginning --exit-at-end | ottla produce copy --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("topic", metavar="TOPIC", help="created if missing and the broker allows it")
    add_bootstrap_option(parser)
    lines = parser.add_argument_group("lines")
    lines.add_argument("-k", "--key-separator", type=separator, metavar="SEP", help="lines have the form KEY SEP VALUE")
    lines.add_argument("--headers", action="store_true", help="lines start with name:value,name:value and a tab")
    lines.add_argument(
        "--null-marker", type=raw_bytes, metavar="TEXT", help="a key or value equal to TEXT becomes null"
    )
    lines.add_argument(
        "--json", action="store_true", help="lines are JSON objects: key, value, headers, timestamp, partition"
    )
    records = parser.add_argument_group("records")
    records.add_argument(
        "--header",
        action="append",
        type=_header,
        default=[],
        metavar="NAME=VALUE",
        help="add this header to every record; repeatable",
    )
    records.add_argument(
        "--partition", type=not_negative, help="write all records to this partition (default: chosen by key)"
    )
    records.add_argument("--acks", choices=_ACKS, default="all", help="acknowledgements to wait for (default: all)")
    records.add_argument(
        "--compression",
        choices=[one.name.lower() for one in Compression],
        default="none",
        help="compression type (default: none)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print no progress and no summary")
    parser.set_defaults(run=run)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not a header: write NAME=VALUE")
    return name, raw_bytes(value)


def run(args: Namespace) -> int:
    if args.json and (args.key_separator or args.headers or args.null_marker is not None):
        raise UsageError(
            "--json lines contain key, headers and null: remove --key-separator, --headers and --null-marker"
        )
    return run_on_loop(produce(args))


async def produce(args: Namespace) -> int:
    parse = jsonlines.parse_record if args.json else _line_format(args).parse
    async with AsyncProducer(_producer_config(args)) as producer:
        topic = await _find_topic(producer, args.topic)
        if args.partition is not None:
            check_partition(topic, args.partition)
        await _Input(producer, args, parse).run()
    return 0


def _producer_config(args: Namespace) -> dict[str, object]:
    """The client config, with buffers large enough that only the topic limits the record size."""
    defaults = {
        "batch.size": _BATCH_BYTES,
        "buffer.memory": _BUFFER_BYTES,
        "max.request.size": _BUFFER_BYTES,
    }
    return {**defaults, **client_config(args), "acks": args.acks, "compression.type": args.compression}


def _line_format(args: Namespace) -> LineFormat:
    return LineFormat(args.key_separator, args.headers, args.null_marker)


async def _find_topic(producer: AsyncProducer, name: str) -> TopicInfo:
    """The topic; prints a note if the broker created it, because the name may be a typo."""
    try:
        return await producer.cluster.topic(name)
    except UnknownTopicOrPartition:
        try:
            topic = await producer.cluster.topic(name, auto_create=True)
        except UnknownTopicOrPartition:
            raise UnknownTopicOrPartition(
                f"topic {name!r} does not exist, and the broker does not create topics automatically: "
                f"create it with `ottla topics create {name}`"
            ) from None
        note(f"created topic {name} with {plural(len(topic.partitions), 'partition')}")
        return topic


@dataclass
class _Input:
    """Send the lines of standard input, and count them."""

    producer: AsyncProducer
    args: Namespace
    parse: Callable[[bytes], NewRecord]
    line: int = 0
    records: int = 0
    size: int = 0
    partitions: set[int] = field(default_factory=set)
    failure: Exception | None = None

    async def run(self) -> None:
        interactive = sys.stdin.isatty()
        if interactive and not self.args.quiet:
            note(f"type one record per line for topic {self.args.topic}; press Ctrl-D to end")
        progress = Progress(enabled=not interactive and not self.args.quiet)
        try:
            async for chunk in stdin.lines(sys.stdin.fileno()):
                await self._add_or_say_where(chunk)
                # Let the producer send now: the next line may come much later.
                await asyncio.sleep(0)
                self._raise_failure()
                progress.update(self.records, self.size)
            await self._flush()
        finally:
            progress.clear()
        if not self.args.quiet:
            self._summarize(progress.seconds)

    async def _add_or_say_where(self, chunk: list[bytes]) -> None:
        """Stop at a bad line, after writing the records before it."""
        try:
            await self._add(chunk)
        except (BadLine, InvalidPartitions) as error:
            await self._flush()
            written = f" ({plural(self.records, 'record')} written before it)" if self.records else ""
            raise OttlaError(f"line {self.line}: {error}{written}") from None

    async def _flush(self) -> None:
        await self.producer.flush()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _on_delivery(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self.failure = self.failure or error
        if metadata is not None:
            self.partitions.add(metadata.partition)

    async def _add(self, chunk: list[bytes]) -> None:
        now = time.time_ns() // 1_000_000
        static: Headers = tuple(self.args.header)
        for line in chunk:
            self.line += 1
            if self.args.json and not line.strip():
                continue
            await self._add_one(self.parse(line), now, static)
            self.records += 1
            self.size += len(line)

    async def _add_one(self, record: NewRecord, now: int, static: Headers) -> None:
        await self.producer.send(
            self.args.topic,
            record.value,
            record.key,
            self.args.partition if record.partition is None else record.partition,
            now if record.timestamp is None else record.timestamp,
            static + record.headers,
            self._on_delivery,
        )

    def _summarize(self, seconds: float) -> None:
        used = plural(len(self.partitions), "partition")
        rate = f"{megabytes(self.size)}, {megabytes(self.size / seconds)}/s"
        note(f"produced {plural(self.records, 'record')} to {used} of {self.args.topic} ({rate})")
