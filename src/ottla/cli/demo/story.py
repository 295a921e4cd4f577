"""The steps of ``ottla demo``.

A broker, producers with skewed, broken and repeated events, a consumer group that loses a member, a Spark pipeline with
deduplication and dead letters, and an audit of every record. With ``--cluster`` there are three brokers, and one of
them dies (cluster.py).
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from ottla import __version__
from ottla.cli.child import ChildBroker
from ottla.cli.demo.cluster import UNSAFE, DemoCluster, check_cluster, problems, summary_lines
from ottla.cli.demo.events import Event, Events, Kind, Lines, Orders
from ottla.cli.demo.group import Coverage, Group
from ottla.cli.demo.ledger import Kept, verdict
from ottla.cli.demo.pipeline import DemoPipeline, Outcome, SparkThread, check_spark
from ottla.cli.demo.screen import Screen
from ottla.cli.session import run as run_on_loop
from ottla.cli.terminal import plural
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.offsets_topic import read_history
from ottla.clients.admin.values import NewTopic, OffsetSpec
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.errors import OttlaError
from ottla.groups.lookup import existing_groups
from ottla.groups.timeline import Names, rebalance_lines
from ottla.producing.values import RecordMetadata
from ottla.types import TopicPartition

GROUP = "readers"
CHUNK = 20
#: The share of the events after which a member is killed.
KILL_AT = 0.4
#: The same in a cluster, where a broker is killed next.
KILL_SOONER_AT = 0.25
KILL_BROKER_AT = 0.5
READ_SECONDS = 60.0
_MARKER = ".ottla-demo"
_TICK = 0.1


def run(args: Namespace) -> int:
    check_spark()
    if args.cluster:
        check_cluster()
        # Clients warn about brokers that are gone, which is the point here.
        logging.getLogger("ottla").addHandler(logging.NullHandler())
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
        self._cluster: DemoCluster | None = None
        # Lines of a file are sent at full speed, except in a cluster: there they must last for the faults.
        self._total = args.events if isinstance(events, Orders) else sum(1 for _ in events) if args.cluster else 0

    async def run(self) -> int:
        self._screen.plain(f"ottla {__version__}: {self._events.describe()}")
        async with AsyncExitStack() as stack:
            servers = await (self._start_cluster(stack) if self._args.cluster else self._start_broker(stack))
            admin = await stack.enter_async_context(AsyncAdmin(bootstrap_servers=servers))
            await admin.create_topics(self._new_topic())
            spark = stack.enter_context(SparkThread())
            pipeline = DemoPipeline(
                self._directory, self._args.master, servers, self._events, is_clustered=self._args.cluster
            )
            stack.push_async_callback(spark.call, pipeline.close)
            stack.callback(pipeline.enough)  # Else an interrupted demo would wait for the pipeline's end.
            running = asyncio.create_task(spark.call(pipeline.run))
            # Ctrl-C in a terminal ends the broker too. Nobody asks then why the pipeline failed.
            running.add_done_callback(lambda task: task.cancelled() or task.exception())
            group = Group(servers, self._events.topic, self._args.partitions, GROUP, self._args.consumers)
            await stack.enter_async_context(group)
            shares = await group.settled()
            self._screen.happened(f"group       {_shares(shares)} of {plural(self._args.partitions, 'partition')}")
            await self._produce(servers, admin, group, pipeline, running)
            ends = await _ends(admin, self._events.topic)
            covered = await group.read_all(ends, READ_SECONDS)
            self._screen.happened(f"group       {_covered(covered)}")
            rebalances = await _rebalances(admin)
            await group.stop()
            kept, history = None, []
            if self._cluster is not None:
                kept, history = await self._cluster.audit(self._events.topic, ends), await self._cluster.history(admin)
                self._screen.happened(f"audit       {verdict(kept)}")
            outcome = await self._finish(spark, pipeline, running, covered.records)
        return self._conclude(Found(self._sent, covered, outcome, rebalances, kept, history))

    def _new_topic(self) -> NewTopic:
        name, partitions = self._events.topic, self._args.partitions
        return NewTopic(name, partitions, 1) if self._cluster is None else self._cluster.new_topic(name, partitions)

    async def _start_cluster(self, stack: AsyncExitStack) -> str:
        self._screen.status("starting ZooKeeper and three brokers")
        cluster = DemoCluster(self._directory / "cluster", self._screen.happened, unsafe=self._args.unsafe)
        self._cluster = await stack.enter_async_context(cluster)
        self._screen.happened(f"topic       {cluster.describe()}")
        return cluster.servers

    async def _start_broker(self, stack: AsyncExitStack) -> str:
        # All members join at once, and a killed member must be detected soon.
        config = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
        broker = ChildBroker(self._directory / "broker", self._directory / "broker.log", config)
        await stack.enter_async_context(broker)
        servers = f"{broker.address[0]}:{broker.address[1]}"
        self._screen.happened(f"broker      ready on {servers} after {broker.start_seconds:.2f} s")
        return servers

    # ── Sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _produce(
        self, servers: str, admin: AsyncAdmin, group: Group, pipeline: DemoPipeline, running: asyncio.Task[None]
    ) -> None:
        self._screen.happened(f"producers   {self._args.producers} started")
        events = iter(self._events)
        rate = self._total / self._args.seconds / self._args.producers
        numbers = range(self._args.producers)
        senders = [asyncio.create_task(self._send(servers, number, events, rate)) for number in numbers]
        losing = [asyncio.create_task(self._lose_a_member(group, senders))]
        if self._cluster is not None:
            losing.append(asyncio.create_task(self._lose_a_leader(self._cluster, admin, senders)))
        watching = asyncio.create_task(self._watch(group, pipeline, running))
        tasks = [*senders, *losing, watching]
        try:
            await _all_or_first_failure([*senders, *losing], watching)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._screen.happened(f"producers   sent {plural(self._sent.total(), 'record')}: {_kinds(self._sent)}")

    async def _send(self, servers: str, number: int, events: Iterator[Event], rate: float) -> None:
        """Send a share of the events: generated ones evenly over time, lines of a file at full speed."""
        failures: list[Exception] = []

        def delivered(event: Event, metadata: RecordMetadata | None, error: Exception | None) -> None:
            if metadata is None:
                failures.append(error or OttlaError("a record was not delivered"))
                return
            self._sent[event.kind] += 1
            if self._cluster is not None:
                self._cluster.acknowledged(metadata, event.value, loop.time())

        loop = asyncio.get_running_loop()
        begin, sent = loop.time(), 0
        settings = {} if self._cluster is None else self._cluster.producer_config
        async with AsyncProducer(bootstrap_servers=servers, client_id=f"shop-{number}", **settings) as producer:
            while chunk := list(islice(events, CHUNK)):
                for event in chunk:
                    callback = partial(delivered, event)
                    await producer.send(self._events.topic, event.value, event.key, callback=callback)
                sent += len(chunk)
                due = begin + sent / rate if self._total else 0.0
                await asyncio.sleep(max(0.0, due - loop.time()))
            await producer.flush()
        if failures:
            raise failures[0]

    async def _lose_a_member(self, group: Group, senders: Sequence[asyncio.Task[None]]) -> None:
        """Kill a member, and wait until the group has recovered."""
        if len(group.members) < 2:
            return
        await self._reach(KILL_AT if self._cluster is None else KILL_SOONER_AT, senders)
        victim = group.members[len(group.members) // 2]
        await victim.kill()
        self._screen.happened(f"group       killed member {victim.number} (kill -9)")
        begin = self._screen.seconds
        shares = await group.settled()
        took = self._screen.seconds - begin
        self._screen.happened(f"group       {_shares(shares)} again, {took:.1f} s after the kill")

    async def _lose_a_leader(
        self, cluster: DemoCluster, admin: AsyncAdmin, senders: Sequence[asyncio.Task[None]]
    ) -> None:
        await self._reach(KILL_BROKER_AT, senders)
        ends = await _ends(admin, self._events.topic)
        busiest = TopicPartition(self._events.topic, max(ends, key=lambda partition: ends[partition]))
        await cluster.fail(admin, busiest, lambda: _are_over(senders))

    async def _reach(self, share: float, senders: Sequence[asyncio.Task[None]]) -> None:
        """Wait until this share of the events was sent."""
        while self._total and self._sent.total() < share * self._total and not _are_over(senders):
            await asyncio.sleep(_TICK)

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

    async def _finish(
        self, spark: SparkThread, pipeline: DemoPipeline, running: asyncio.Task[None], records: int
    ) -> Outcome:
        while not running.done() and not pipeline.has_read(records):
            self._screen.status(pipeline.state())
            await asyncio.wait([running], timeout=_TICK)
        pipeline.enough()
        await running
        self._screen.happened(f"pipeline    {pipeline.state()}")
        self._screen.happened("audit       checking every record")
        outcome = await spark.call(pipeline.audit)
        self._screen.happened(f"audit       {outcome.report.verdict}")
        return outcome

    def _conclude(self, found: Found) -> int:
        wrong = _problems(found, unsafe=self._args.unsafe)
        text = "\n".join(_summary(found, self._args.out, unsafe=self._args.unsafe))
        (self._directory / "summary.txt").write_text(text + "\n")
        self._screen.plain(text)
        if wrong:
            raise OttlaError(f"the demo found problems: {'; '.join(wrong)}")
        return 0


@dataclass(slots=True)
class Found:
    """The results of all parts."""

    sent: Counter[Kind]
    covered: Coverage
    outcome: Outcome
    rebalances: Sequence[str]
    kept: Sequence[Kept] | None
    """In a cluster: what the topic has of the acknowledged records."""
    history: Sequence[str]


def _are_over(senders: Sequence[asyncio.Task[None]]) -> bool:
    return all(sender.done() for sender in senders)


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


def _problems(found: Found, *, unsafe: bool) -> list[str]:
    """Compare the results with the counts of the producers."""
    sent, covered, outcome = found.sent, found.covered, found.outcome
    wrong = [] if outcome.report.ok else [f"the audit reports {outcome.report.verdict}"]
    if covered.missed:
        wrong.append(f"the group missed {covered.missed:,} records")
    if outcome.rows != outcome.distinct:
        wrong.append(f"the table has {outcome.rows - outcome.distinct:,} repeated rows")
    if found.kept is not None:
        wrong += problems(found.kept, unsafe=unsafe)
    if unsafe:
        return wrong
    if covered.records != sent.total():
        wrong.append(f"{sent.total():,} records were acknowledged, but the topic has {covered.records:,}")
    if Kind.OWN in sent:
        lines = sent[Kind.OWN]
        if lines != outcome.rows + outcome.dead:
            wrong.append(
                f"{lines:,} lines were sent; the table has {outcome.rows:,} rows, {outcome.dead:,} are dead letters"
            )
        return wrong
    for what, wanted, seen in (
        ("orders in the table", sent[Kind.GOOD], outcome.rows),
        ("dead letters", sent[Kind.BROKEN], outcome.dead),
    ):
        if wanted != seen:
            wrong.append(f"expected {wanted:,} {what}, found {seen:,}")
    return wrong


def _reasons(outcome: Outcome) -> Iterator[str]:
    yield from (f"{count:,} times: {reason}" for reason, count in outcome.reasons)
    others = outcome.dead - sum(count for _, count in outcome.reasons)
    if others:
        yield f"{others:,} times: other reasons"


def _summary(found: Found, directory: Path, *, unsafe: bool) -> Iterator[str]:
    outcome, report = found.outcome, found.outcome.report
    rows = [
        ("sent", f"{plural(found.sent.total(), 'record')}: {_kinds(found.sent)}"),
        *([("acknowledged", verdict(found.kept))] if found.kept is not None else []),
        ("group", _covered(found.covered)),
        (
            "table",
            f"{plural(outcome.rows, 'row')}, no duplicates; {report.total.duplicates:,} repeated records skipped",
        ),
        ("dead letters", f"{outcome.dead:,}"),
        *(("", line) for line in _reasons(outcome)),
    ]
    if found.kept is not None:
        yield from summary_lines(found.kept, found.history)
    yield ""
    yield "The audit (ottla audit)"
    yield report.to_text()
    yield ""
    yield "Why the group rebalanced last (ottla groups explain)"
    yield from found.rebalances
    yield ""
    yield "Summary"
    for name, text in rows:
        yield f"  {name:<13} {text}"
    for name, what in (("chart.svg", "the chart"), ("table", "the table"), ("pipeline.toml", "the pipeline")):
        yield f"  {what:<13} {directory / name}"
    if unsafe:
        yield from UNSAFE
