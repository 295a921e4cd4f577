"""``ottla pipeline init TOPIC``: sample a topic, and write a commented pipeline that runs."""

from __future__ import annotations

import argparse
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.options import UsageError, add_bootstrap_option, client_config, format_addresses, positive
from ottla.cli.session import existing_topic
from ottla.cli.session import run as run_coroutine
from ottla.cli.terminal import plural
from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.consuming.values import ConsumerRecord
from ottla.errors import OttlaError
from ottla.spark.pipelines.inference import Guess, case_text, guess, pipeline_text
from ottla.spark.pipelines.inference.text import name_of
from ottla.testing.pipelines.cases import directory_of_tests
from ottla.types import TopicPartition

SAMPLE = 100
ASK_MS = 10_000
PATIENCE_SECONDS = 30.0

EPILOG = """\
It reads the first and last records of each partition. The schema has the types of all of them. A column is NOT NULL if
no record lacks it. Text that is always a time becomes TIMESTAMP. A column with several types becomes STRING. Records in
another format would be dead letters. A first test with a few of the records is written, too: see `ottla pipeline test`.

examples:
  ottla pipeline init orders                                 write orders.toml and orders.tests/sample.toml
  ottla pipeline init orders --output pipelines/orders.toml
  ottla pipeline init orders --output -                      only show it
"""


class InitError(OttlaError):
    """The pipeline cannot be written."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_option(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the pipeline, which gets the name of the file; - is standard output (default: TOPIC.toml)",
    )
    parser.add_argument(
        "--sample",
        type=positive,
        default=SAMPLE,
        metavar="N",
        help=f"how many records to read at each end of a partition (default: {SAMPLE})",
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    output = None if args.output == "-" else Path(args.output or f"{name_of(args.topic)}.toml")
    if output is not None:
        _check_output(output, force=args.force)
    records, total, partitions = run_coroutine(_sampled(args))
    found = guess([record.value for record in records])
    about = f"{len(records)} of {plural(total, 'record')}"
    servers = ",".join(format_addresses(args.bootstrap_server))
    name = None if output is None else name_of(output.stem)
    text = pipeline_text(args.topic, servers, found, about=about, name=name)
    if output is None:
        sys.stdout.write(text)
        return 0
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    print(f"read {about} from {plural(partitions, 'partition')} of {args.topic}")
    print(f"wrote {output}: {_summary(found)}")
    _write_case(output, args, [record.value for record in records if record.value is not None])
    _print_next(output)
    return 0


def _check_output(output: Path, *, force: bool) -> None:
    if output.suffix != ".toml":
        raise UsageError(f"--output {output}: a pipeline is a .toml file")
    if output.exists() and not force:
        raise UsageError(f"{output} exists: choose another file with --output, or overwrite it with --force")


async def _sampled(args: Namespace) -> tuple[list[ConsumerRecord], int, int]:
    """Some records, the number of all records, and the number of partitions."""
    config = {
        "default.api.timeout.ms": ASK_MS,
        **client_config(args),
        "auto.offset.reset": "none",
        "allow.auto.create.topics": False,
        "isolation.level": "read_committed",
    }
    async with AsyncConsumer(config) as consumer:
        partitions = (await existing_topic(consumer, args.topic)).topic_partitions
        starts = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
        found: list[ConsumerRecord] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        for one in partitions:
            for low, high in _stretches(starts[one], ends[one], args.sample):
                found += await _read(consumer, one, low, high, deadline)
    if not found:
        raise InitError(f"topic {args.topic} is empty: a pipeline is written from its records, so send some first")
    return found, sum(ends[one] - starts[one] for one in partitions), len(partitions)


def _stretches(start: int, end: int, size: int) -> list[tuple[int, int]]:
    """The first and the last offsets of a partition.

    >>> _stretches(5, 1000, 10), _stretches(5, 20, 10), _stretches(7, 7, 10)
    ([(5, 15), (990, 1000)], [(5, 20)], [])
    """
    if end - start <= 2 * size:
        return [(start, end)] if end > start else []
    return [(start, start + size), (end - size, end)]


async def _read(
    consumer: AsyncConsumer, partition: TopicPartition, low: int, high: int, deadline: float
) -> list[ConsumerRecord]:
    await consumer.assign([partition])
    await consumer.seek(partition, low)
    found: list[ConsumerRecord] = []
    while await consumer.position(partition) < high and time.monotonic() < deadline:
        found += await consumer.poll(0.5)
    return [record for record in found if record.offset < high]


def _summary(found: Guess) -> str:
    parts = [found.format]
    if found.fields:
        parts.append(plural(len(found.fields), "column"))
    if found.event_time is not None:
        parts.append(f"event time {found.event_time}")
    if found.key is not None:
        parts.append(f"{'dedupe by' if found.repeats else 'perhaps a key:'} {found.key}")
    if found.others:
        parts.append(f"{plural(found.others, 'sample')} in another format")
    return ", ".join(parts)


def _write_case(output: Path, args: Namespace, values: Sequence[bytes]) -> None:
    case = directory_of_tests(output) / "sample.toml"
    if case.exists() and not args.force:
        print(f"kept {case}")
        return
    case.parent.mkdir(exist_ok=True)
    case.write_text(case_text(name_of(args.topic), args.topic, values, file=output.name), encoding="utf-8")
    print(f"wrote {case}: a test with records of the topic")


def _print_next(output: Path) -> None:
    print(
        f"next:\n"
        f"  ottla pipeline check {output}\n"
        f"  ottla pipeline test {output} --update     writes the expected rows into the test: look at them\n"
        f"  ottla pipeline run {output} --once"
    )
