"""``ottla perf``: measure a broker, several producers and a consumer group on this machine, and check every record.

The first phase runs at full speed, the second one at a low, steady rate for the latency. load.py has the load.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ottla import __version__
from ottla.cli.child import ChildBroker
from ottla.cli.kernels import KERNELS
from ottla.cli.options import positive
from ottla.cli.perf.load import (
    BATCH_BYTES,
    BUFFER_BYTES,
    Ledger,
    Member,
    NumberedProducer,
    full_speed,
    steady,
)
from ottla.cli.session import run as run_on_loop
from ottla.cli.terminal import LiveLine, megabytes, plural
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import NewTopic
from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.errors import OttlaError
from ottla.runtime.loops import LOOP_NAME

TOPIC = "perf"
GROUP = "perf-readers"
MAX_BYTES = 1_000_000_000
STEADY_RECORDS = 1_000
DRAIN_SECONDS = 60.0
SETTLE_SECONDS = 30.0
SEGMENT_BYTES = 64 * 1024 * 1024
_MARKER = "perf.pid"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=positive,
        default=8,
        help="seconds at full speed, up to 1 GB; then half as long at a low rate (default: 8)",
    )
    parser.add_argument("--producers", type=positive, default=3, help="number of producers (default: 3)")
    parser.add_argument("--consumers", type=positive, default=2, help="members of the consumer group (default: 2)")
    parser.add_argument("--partitions", type=positive, default=6, help="partitions of the topic (default: 6)")
    parser.add_argument(
        "--record-size", type=positive, default=1_000, metavar="BYTES", help="size of a record (default: 1000)"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="a new directory for the broker (default: a temporary one)",
    )
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    return run_on_loop(perf(args))


async def perf(args: Namespace) -> int:
    directory = _fresh_directory(args.data_dir)
    print(f"ottla {__version__}: {KERNELS} kernels, {LOOP_NAME}")
    # All members join at once.
    config = {"group.initial.rebalance.delay.ms": "0"}
    async with ChildBroker(directory / "data", directory / "broker.log", config) as broker:
        print(f"broker ready on {broker.address[0]}:{broker.address[1]} after {broker.start_seconds:.2f} s")
        results = await _load(broker, args)
        results.notice(broker)
    _check(results.ledger)
    print(_summary(results, directory))
    return 0


def _fresh_directory(wanted: Path | None) -> Path:
    """The broker's directory; removes temporary directories of earlier runs."""
    if wanted is not None:
        if wanted.exists() and any(wanted.iterdir()):
            raise OttlaError(f"{wanted} is not empty: name a new directory")
        wanted.mkdir(parents=True, exist_ok=True)
        return wanted
    for old in Path(tempfile.gettempdir()).glob("ottla-perf-*"):
        if old.stat().st_uid == os.getuid() and _is_left_over(old / _MARKER):
            shutil.rmtree(old, ignore_errors=True)
    directory = Path(tempfile.mkdtemp(prefix="ottla-perf-"))
    (directory / _MARKER).write_text(str(os.getpid()))
    return directory


def _is_left_over(marker: Path) -> bool:
    """Whether the run that created this directory has ended."""
    try:
        os.kill(int(marker.read_text()), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):
        return False
    return False


@dataclass
class _Results:
    """The measurements of both phases."""

    ledger: Ledger
    producers: int
    partitions: int
    shares: Sequence[int] = ()
    """The number of partitions of each consumer."""
    lag: int = 0
    full_records: int = 0
    produce_seconds: float = 0.0
    consume_seconds: float = 0.0
    latencies_ns: Sequence[int] = ()
    start_seconds: float = 0.0
    resident_bytes: int | None = None
    cpu_seconds: float | None = None

    def notice(self, broker: ChildBroker) -> None:
        self.start_seconds = broker.start_seconds
        self.resident_bytes = broker.resident_bytes()
        self.cpu_seconds = broker.cpu_seconds()


async def _load(broker: ChildBroker, args: Namespace) -> _Results:
    ledger = Ledger(args.record_size)
    results = _Results(ledger, args.producers, args.partitions)
    servers = f"{broker.address[0]}:{broker.address[1]}"
    async with AsyncAdmin(bootstrap_servers=servers, client_id="perf-admin") as admin:
        topic = NewTopic(TOPIC, args.partitions, 1, {"segment.bytes": SEGMENT_BYTES})
        await admin.create_topics(topic)
        async with AsyncExitStack() as stack:
            members = [
                Member(await stack.enter_async_context(_consumer(servers, number)), ledger)
                for number in range(args.consumers)
            ]
            reading = asyncio.create_task(_read(members))
            stack.push_async_callback(_cancel, reading)
            await _settle(members, reading, args.partitions)
            results.shares = [member.partitions for member in members]
            producers = [
                await stack.enter_async_context(_producer(servers, number, args.partitions, ledger))
                for number in range(args.producers)
            ]
            print(
                f"{plural(len(producers), 'producer')}, a group of {plural(len(members), 'consumer')}, "
                f"{plural(args.partitions, 'partition')}, records of {args.record_size:,} bytes"
            )
            await _full_speed_phase(producers, reading, results, args.seconds)
            await _steady_phase(producers[0], reading, results, args.seconds / 2)
        results.lag = await _lag(admin, ledger.produced)
    return results


def _consumer(servers: str, number: int) -> AsyncConsumer:
    name = f"perf-consumer-{number}"
    return AsyncConsumer(bootstrap_servers=servers, client_id=name, group_id=GROUP, auto_offset_reset="earliest")


async def _read(members: Sequence[Member]) -> None:
    async with asyncio.TaskGroup() as group:
        for member in members:
            group.create_task(member.run(TOPIC))


async def _settle(members: Sequence[Member], reading: asyncio.Task[None], partitions: int) -> None:
    """Wait until all partitions are assigned."""
    deadline = time.monotonic() + SETTLE_SECONDS
    fewest = 1 if partitions >= len(members) else 0
    while sum(member.partitions for member in members) != partitions or any(
        member.partitions < fewest for member in members
    ):
        if reading.done():
            reading.result()
        if time.monotonic() > deadline:
            raise OttlaError(f"the consumers did not get their partitions within {SETTLE_SECONDS:g} s")
        await asyncio.sleep(0.005)


async def _lag(admin: AsyncAdmin, produced: int) -> int:
    committed = await admin.list_group_offsets(GROUP)
    return produced - sum(offset.offset for offset in committed.values())


@asynccontextmanager
async def _producer(servers: str, number: int, partitions: int, ledger: Ledger) -> AsyncIterator[NumberedProducer]:
    name = f"perf-producer-{number}"
    async with AsyncProducer(
        bootstrap_servers=servers, client_id=name, batch_size=BATCH_BYTES, buffer_memory=BUFFER_BYTES, linger_ms=0
    ) as producer:
        yield NumberedProducer(number, TOPIC, producer, partitions, ledger)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _full_speed_phase(
    producers: Sequence[NumberedProducer], reading: asyncio.Task[None], results: _Results, seconds: float
) -> None:
    ledger = results.ledger
    begin = time.monotonic()
    limit = MAX_BYTES // ledger.record_bytes

    def keep_going() -> bool:
        return time.monotonic() - begin < seconds and ledger.produced < limit and not reading.done()

    line = LiveLine(sys.stdout)
    ticker = asyncio.create_task(_show_progress(line, ledger, seconds, limit))
    streams = [asyncio.create_task(full_speed(producer, keep_going)) for producer in producers]
    try:
        await asyncio.gather(*streams)
        results.produce_seconds = time.monotonic() - begin
        await _drain(ledger, reading)
    finally:
        for task in (ticker, *streams):
            await _cancel(task)
        line.clear()
    results.consume_seconds = time.monotonic() - begin
    results.full_records = ledger.produced


async def _steady_phase(
    producer: NumberedProducer, reading: asyncio.Task[None], results: _Results, seconds: float
) -> None:
    print(f"measuring latency: {STEADY_RECORDS:,} records/s for {seconds:g} s", flush=True)
    latencies = results.ledger.latencies = []
    await steady(producer, STEADY_RECORDS, seconds)
    await _drain(results.ledger, reading)
    results.latencies_ns = sorted(latencies)


async def _drain(ledger: Ledger, reading: asyncio.Task[None]) -> None:
    """Wait until the consumers have read everything; raises their error."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while ledger.lag > 0 and time.monotonic() < deadline:
        if reading.done():
            reading.result()
        await asyncio.sleep(0.005)


async def _show_progress(line: LiveLine, ledger: Ledger, seconds: float, limit: int) -> None:
    """Show a bar on a terminal, or else one line per second."""
    interval = 0.2 if line.is_live else 1.0
    begin = last = time.monotonic()
    produced, consumed = ledger.produced, ledger.consumed
    while True:
        await asyncio.sleep(interval)
        now = time.monotonic()
        share = min(1.0, max((now - begin) / seconds, ledger.produced / limit))
        rates = [(ledger.produced - produced) / (now - last), (ledger.consumed - consumed) / (now - last)]
        last, produced, consumed = now, ledger.produced, ledger.consumed
        line.show(_progress_text(ledger, rates, now - begin, share))


def _progress_text(ledger: Ledger, rates: Sequence[float], seconds: float, share: float) -> str:
    size = ledger.record_bytes / 1e6
    text = (
        f"in {rates[0] * size:5.1f} MB/s {rates[0]:8,.0f} records/s  out {rates[1] * size:5.1f} MB/s  "
        f"behind {ledger.lag:,}"
    )
    return f"{_bar(share)}  {text}" if sys.stdout.isatty() else f"  {seconds:4.1f} s  {text}"


def _bar(share: float, width: int = 16) -> str:
    """
    >>> _bar(0.5, 4)
    '[##  ]  50%'
    """
    done = round(share * width)
    return f"[{'#' * done}{' ' * (width - done)}] {share:4.0%}"


def _check(ledger: Ledger) -> None:
    if ledger.lag > 0:
        ledger.problems["never arrived"] = ledger.lag
    if ledger.problems or ledger.lag < 0:
        found = ", ".join(f"{count:,} {what}" for what, count in ledger.problems.items())
        raise OttlaError(f"not every record arrived exactly once and in order: {found or 'too many records'}")


def _summary(results: _Results, directory: Path) -> str:
    ledger = results.ledger
    size = results.full_records * ledger.record_bytes
    segments = list((directory / "data").glob(f"{TOPIC}-*/*.log"))
    written = sum(path.stat().st_size for path in segments)
    counts = f"{ledger.produced:,} produced, {ledger.consumed:,} consumed"
    files = f"{plural(len(segments), 'segment')} of {plural(results.partitions, 'partition')}"
    rows = [
        ("records", f"{counts}: each exactly once and in order"),
        ("in", _rate(results.full_records, size, results.produce_seconds)),
        ("out", _rate(results.full_records, size, results.consume_seconds)),
        ("group", f"{GROUP}: {' + '.join(map(str, results.shares))} partitions, final lag {results.lag:,}"),
        ("latency", _latency(results.latencies_ns)),
        ("broker", _broker_facts(results)),
        ("files", f"{files}, {megabytes(written)}"),
        ("", f"in {directory / 'data'}"),
    ]
    lines = [f"  {name:<8}  {value}" for name, value in rows]
    look = f"show the contents with: ottla log dump {min(segments)}" if segments else ""
    return "\n".join(["", "no problems found", *lines, "", look])


def _rate(records: int, size: float, seconds: float) -> str:
    rates = f"{size / seconds / 1e6:.1f} MB/s, {records / seconds:,.0f} records/s"
    return f"{rates} ({megabytes(size)} in {seconds:.1f} s)"


def _latency(sorted_ns: Sequence[int]) -> str:
    if not sorted_ns:
        return "not measured"
    p50, p99 = (sorted_ns[min(len(sorted_ns) - 1, int(len(sorted_ns) * share))] / 1e6 for share in (0.5, 0.99))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms from producer to consumer at {STEADY_RECORDS:,} records/s"


def _broker_facts(results: _Results) -> str:
    facts = [f"ready after {results.start_seconds:.2f} s"]
    if results.cpu_seconds is not None:
        facts.append(f"{results.cpu_seconds:.1f} s of CPU time")
    if results.resident_bytes is not None:
        facts.append(f"{megabytes(results.resident_bytes)} resident")
    return ", ".join(facts)
