"""The steps of ``ottla demo``.

A broker, producers with skewed, broken and repeated events, a consumer group that loses a member, a Spark pipeline with
deduplication and dead letters, and an audit of every record.
"""

from __future__ import annotations

import asyncio
import shutil
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import islice
from pathlib import Path

from ottla import __version__
from ottla.cli.child import ChildBroker
from ottla.cli.demo.events import Event, Events, Kind, Lines, Orders
from ottla.cli.demo.group import Coverage, Group
from ottla.cli.demo.pipeline import DemoPipeline, Outcome, SparkThread, check_spark
from ottla.cli.demo.screen import Screen
from ottla.cli.groups.common import existing_groups
from ottla.cli.groups.timeline import Names, rebalance_lines
from ottla.cli.session import run as run_on_loop
from ottla.cli.terminal import plural
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.offsets_topic import read_history
from ottla.clients.admin.values import NewTopic, OffsetSpec
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.errors import OttlaError
from ottla.types import TopicPartition

GROUP = "readers"
CHUNK = 20
#: The share of the events after which a member is killed.
KILL_AT = 0.4
READ_SECONDS = 60.0
_MARKER = ".ottla-demo"
_TICK = 0.1


def run(args: Namespace) -> int:
    check_spark()
    events: Events = Lines(args.data) if args.data else Orders(args.events)
    return run_on_loop(Demo(args, events, _fresh_directory(args.out)).run())


def _fresh_directory(wanted: Path) -> Path:
    """An empty directory; only results of an earlier demo are removed."""
    if wanted.exists() and not wanted.is_dir():
        raise OttlaError(f"{wanted} is a file: name a directory with --out")
    if wanted.is_dir() and any(wanted.iterdir()):
        if not (wanted / _MARKER).exists():
            raise OttlaError(f"{wanted} is not empty and not from an earlier demo: name another directory with --out")
        shutil.rmtree(wanted)
    wanted.mkdir(parents=True, exist_ok=True)
    (wanted / _MARKER).touch()
    return wanted.resolve()


class Demo:
    def __init__(self, args: Namespace, events: Events, directory: Path) -> None:
        self._args = args
        self._events = events
        self._directory = directory
        self._screen = Screen()
        self._sent: Counter[Kind] = Counter()

    async def run(self) -> int:
        self._screen.plain(f"ottla {__version__}: {self._events.describe()}")
        async with AsyncExitStack() as stack:
            servers = await self._start_broker(stack)
            admin = await stack.enter_async_context(AsyncAdmin(bootstrap_servers=servers))
            await admin.create_topics(NewTopic(self._events.topic, self._args.partitions, 1))
            spark = stack.enter_context(SparkThread())
            pipeline = DemoPipeline(self._directory, self._args.master, servers, self._events)
            stack.push_async_callback(spark.call, pipeline.close)
            running = asyncio.create_task(spark.call(pipeline.run))
            group = Group(servers, self._events.topic, self._args.partitions, GROUP, self._args.consumers)
            await stack.enter_async_context(group)
            shares = await group.settled()
            self._screen.happened(f"group       {_shares(shares)} of {plural(self._args.partitions, 'partition')}")
            await self._produce(servers, group, pipeline, running)
            covered = await group.read_all(await _ends(admin, self._events.topic), READ_SECONDS)
            self._screen.happened(f"group       {_covered(covered)}")
            rebalances = await _rebalances(admin)
            await group.stop()
            outcome = await self._finish(spark, pipeline, running)
        return self._conclude(covered, outcome, rebalances)

    async def _start_broker(self, stack: AsyncExitStack) -> str:
        # All members join at once, and a killed member must be detected soon.
        config = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
        broker = ChildBroker(self._directory / "broker", self._directory / "broker.log", config)
        await stack.enter_async_context(broker)
        servers = f"{broker.address[0]}:{broker.address[1]}"
        self._screen.happened(f"broker      ready on {servers} after {broker.start_seconds:.2f} s")
        return servers

    # ── Sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _produce(self, servers: str, group: Group, pipeline: DemoPipeline, running: asyncio.Task[None]) -> None:
        self._screen.happened(f"producers   {self._args.producers} started")
        events = iter(self._events)
        rate = self._args.events / self._args.seconds / self._args.producers
        numbers = range(self._args.producers)
        senders = [asyncio.create_task(self._send(servers, number, events, rate)) for number in numbers]
        losing = asyncio.create_task(self._lose_a_member(group, senders))
        watching = asyncio.create_task(self._watch(group, pipeline, running))
        try:
            await _all_or_first_failure([*senders, losing], watching)
        finally:
            for task in (*senders, losing, watching):
                task.cancel()
            await asyncio.gather(*senders, losing, watching, return_exceptions=True)
        self._screen.happened(f"producers   sent {plural(self._sent.total(), 'record')}: {_kinds(self._sent)}")

    async def _send(self, servers: str, number: int, events: Iterator[Event], rate: float) -> None:
        """Send a share of the events: generated ones evenly over time, lines of a file at full speed."""
        failures: list[Exception] = []

        def delivered(kind: Kind, error: Exception | None) -> None:
            if error is None:
                self._sent[kind] += 1
            else:
                failures.append(error)

        loop = asyncio.get_running_loop()
        begin, sent = loop.time(), 0
        async with AsyncProducer(bootstrap_servers=servers, client_id=f"shop-{number}") as producer:
            while chunk := list(islice(events, CHUNK)):
                for event in chunk:
                    callback = partial(_on_delivery, delivered, event.kind)
                    await producer.send(self._events.topic, event.value, event.key, callback=callback)
                sent += len(chunk)
                due = begin + sent / rate if isinstance(self._events, Orders) else 0.0
                await asyncio.sleep(max(0.0, due - loop.time()))
            await producer.flush()
        if failures:
            raise failures[0]

    async def _lose_a_member(self, group: Group, senders: Sequence[asyncio.Task[None]]) -> None:
        """Kill a member, and wait until the group has recovered."""
        if len(group.members) < 2:
            return
        while self._share_sent() < KILL_AT and not all(sender.done() for sender in senders):
            await asyncio.sleep(_TICK)
        victim = group.members[len(group.members) // 2]
        await victim.kill()
        self._screen.happened(f"group       killed member {victim.number} (kill -9)")
        begin = self._screen.seconds
        shares = await group.settled()
        took = self._screen.seconds - begin
        self._screen.happened(f"group       {_shares(shares)} again, {took:.1f} s after the kill")

    def _share_sent(self) -> float:
        return self._sent.total() / self._args.events if isinstance(self._events, Orders) else 1.0

    async def _watch(self, group: Group, pipeline: DemoPipeline, running: asyncio.Task[None]) -> None:
        """Show the status, and raise the first failure of the group or the pipeline."""
        announced = False
        while True:
            group.check()
            if running.done():
                running.result()
            if pipeline.is_running and not announced:
                announced = True
                self._screen.happened(f"pipeline    running on Spark, {self._args.master}")
            self._screen.status(f"sent {self._sent.total():,}   group read {group.records:,}   {pipeline.state()}")
            await asyncio.sleep(_TICK)

    # ── The end ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _finish(self, spark: SparkThread, pipeline: DemoPipeline, running: asyncio.Task[None]) -> Outcome:
        while not running.done() and not pipeline.has_read(self._sent.total()):
            self._screen.status(pipeline.state())
            await asyncio.wait([running], timeout=_TICK)
        pipeline.enough()
        await running
        self._screen.happened(f"pipeline    {pipeline.state()}")
        self._screen.happened("audit       checking every record")
        outcome = await spark.call(pipeline.audit)
        self._screen.happened(f"audit       {outcome.report.verdict}")
        return outcome

    def _conclude(self, covered: Coverage, outcome: Outcome, rebalances: Sequence[str]) -> int:
        problems = _problems(self._sent, covered, outcome)
        text = "\n".join(_summary(self._sent, covered, outcome, rebalances, self._args.out))
        (self._directory / "summary.txt").write_text(text + "\n")
        self._screen.plain(text)
        if problems:
            raise OttlaError(f"the demo found problems: {'; '.join(problems)}")
        return 0


def _on_delivery(
    delivered: Callable[[Kind, Exception | None], None], kind: Kind, _: object, error: Exception | None
) -> None:
    delivered(kind, error)


async def _all_or_first_failure(tasks: Sequence[asyncio.Task[None]], watching: asyncio.Task[None]) -> None:
    """Wait for the tasks; raise the first failure of any of them or of `watching`."""
    waiting = set(tasks)
    while waiting:
        done, _ = await asyncio.wait({*waiting, watching}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        waiting -= done


async def _ends(admin: AsyncAdmin, topic: str) -> dict[int, int]:
    (found,) = (await admin.describe_topics([topic])).values()
    keys = [TopicPartition(topic, one.partition) for one in found.partitions]
    return {
        key.partition: one.offset
        for key, one in (await admin.list_offsets(dict.fromkeys(keys, OffsetSpec.LATEST))).items()
    }


async def _rebalances(admin: AsyncAdmin) -> list[str]:
    """The last rebalance, as shown by ``ottla groups explain``."""
    history = await read_history(admin.cluster, GROUP)
    (group,) = await existing_groups(admin, [GROUP])
    names = Names(group.members, history.rebalances)
    return [line for value in history.rebalances[-1:] for line in rebalance_lines(value, names, group.type)]


# ── Text ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _shares(shares: Sequence[int]) -> str:
    """
    >>> _shares([2, 2, 2])
    '3 members have 2 + 2 + 2'
    """
    return f"{plural(len(shares), 'member')} have {' + '.join(map(str, shares))}"


def _kinds(sent: Counter[Kind]) -> str:
    words = {Kind.GOOD: "good", Kind.OWN: "lines", Kind.REPEAT: "repeated", Kind.BROKEN: "broken"}
    return ", ".join(f"{sent[kind]:,} {word}" for kind, word in words.items() if sent[kind])


def _covered(covered: Coverage) -> str:
    if covered.missed:
        return f"missed {plural(covered.missed, 'record')} of {covered.records:,}"
    again = f"; {covered.again:,} of them twice, because of the kill" if covered.again else ""
    return f"read every record{again}"


def _problems(sent: Counter[Kind], covered: Coverage, outcome: Outcome) -> list[str]:
    """Compare the results with the counts of the producers."""
    found = [] if outcome.report.ok else [f"the audit reports {outcome.report.verdict}"]
    if covered.records != sent.total():
        found.append(f"{sent.total():,} records were acknowledged, but the topic has {covered.records:,}")
    if covered.missed:
        found.append(f"the group missed {covered.missed:,} records")
    if outcome.rows != outcome.distinct:
        found.append(f"the table has {outcome.rows - outcome.distinct:,} repeated rows")
    if Kind.OWN in sent:
        lines = sent[Kind.OWN]
        wrong = lines - outcome.rows - outcome.dead
        if wrong:
            found.append(
                f"{lines:,} lines were sent; the table has {outcome.rows:,} rows, {outcome.dead:,} are dead letters"
            )
        return found
    for what, wanted, seen in (
        ("orders in the table", sent[Kind.GOOD], outcome.rows),
        ("dead letters", sent[Kind.BROKEN], outcome.dead),
    ):
        if wanted != seen:
            found.append(f"expected {wanted:,} {what}, found {seen:,}")
    return found


def _summary(
    sent: Counter[Kind], covered: Coverage, outcome: Outcome, rebalances: Sequence[str], directory: Path
) -> Iterator[str]:
    report = outcome.report
    rows = [
        ("sent", f"{plural(sent.total(), 'record')}: {_kinds(sent)}"),
        ("group", _covered(covered)),
        (
            "table",
            f"{plural(outcome.rows, 'row')}, no duplicates; {report.total.duplicates:,} repeated records skipped",
        ),
        ("dead letters", f"{outcome.dead:,}"),
        *(("", f"{count:,} times: {reason}") for reason, count in outcome.reasons),
    ]
    yield ""
    yield "The audit (ottla audit)"
    yield report.to_text()
    yield ""
    yield "Why the group rebalanced last (ottla groups explain)"
    yield from rebalances
    yield ""
    yield "Summary"
    for name, text in rows:
        yield f"  {name:<13} {text}"
    for name, what in (("chart.svg", "the chart"), ("table", "the table"), ("pipeline.toml", "the pipeline")):
        yield f"  {what:<13} {directory / name}"
