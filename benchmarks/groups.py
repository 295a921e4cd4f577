"""Compare consumer groups with Apache Kafka: `python -m benchmarks.groups`.

Both brokers run on this machine and take turns. Our load generator uses real sockets. The table shows both results,
the ratio and its target. benchmarks/results/ has every repetition as JSON. Both brokers have Kafka's defaults except
`CONFIG`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import (
    apache_kafka,
    groups_classic,
    groups_commits,
    groups_consumer,
    groups_idle,
    groups_wire,
    ottla_broker,
)
from benchmarks.comparison import RESULTS, add_quick, new_parser, reporting, say
from benchmarks.peer import Peer
from benchmarks.report import Report
from ottla.protocol.apis import ApiKey
from ottla.runtime.loops import LOOP_NAME

CONFIG = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    **groups_consumer.CONFIG,
}
T = TypeVar("T")
Run = Callable[[list[Peer], Report, argparse.Namespace], Coroutine[Any, Any, None]]


class GroupsReport(Report):
    """The report of the group benchmarks, without librdkafka and with its own file name."""

    def heading(self) -> str:
        about = self.about
        who = f"Apache Kafka {about['kafka']}, Python {about['python']}, {about['loop']}"
        return f"{about['cpus']} x {about['cpu_model']}, {about['memory_gb']} GB, {about['system']}; {who}"

    def write(self, folder: Path) -> Path:
        """Write all results and replace an earlier file of this run."""
        began = datetime.fromisoformat(self.about["started"])
        return super().write(folder).rename(folder / f"groups-{began:%Y%m%d-%H%M%S}.json")


def main() -> None:
    options = parse()
    report = GroupsReport({"kafka": apache_kafka.KAFKA_VERSION, "loop": LOOP_NAME})
    make_peers = choose_peers(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    with reporting(report):
        for name in options.only:
            with contextlib.ExitStack() as stack:
                peers = [stack.enter_context(make(CONFIG)) for make in make_peers]
                groups_wire.run(BENCHMARKS[name](peers, report, options))
            report.write(RESULTS)


def parse() -> argparse.Namespace:
    parser = new_parser("Compare consumer groups with Apache Kafka on this machine.", list(BENCHMARKS))
    add_quick(parser)
    parser.add_argument("--without-ottla", action="store_true", help="measure Apache Kafka alone")
    options = parser.parse_args()
    options.only = options.only or list(BENCHMARKS)
    return options


def choose_peers(options: argparse.Namespace) -> list[Callable[[dict[str, int]], Peer]]:
    chosen: list[Callable[[dict[str, int]], Peer]] = []
    if not options.without_ottla:
        if problem := ottla_broker.missing():
            raise SystemExit(problem)
        chosen.append(ottla_broker.OttlaBroker)
    if not options.without_kafka:
        if problem := apache_kafka.missing():
            say(f"No comparison, ottla runs alone: {problem}")
        else:
            chosen.append(apache_kafka.ApacheKafka)
    if not chosen:
        raise SystemExit("There is no broker left to measure.")
    return chosen


async def classic(peers: list[Peer], report: Report, options: argparse.Namespace) -> None:
    """Classic groups, from the trigger until all members have an assignment."""
    for peer in peers:
        say(f"classic groups, warm-up of {peer.name}")
        await groups_wire.wait_for_coordinators(peer)
        await groups_classic.warm_up(peer, quick=options.quick)
    for case in groups_classic.cases(quick=options.quick):
        for repetition in range(case.repetitions):
            say(f"classic groups of {case.members}, round {repetition + 1} of {case.repetitions}")
            for peer in in_turn(peers, repetition):
                await groups_classic.measure(peer, report, case)


async def consumer(peers: list[Peer], report: Report, options: argparse.Namespace) -> None:
    """KIP-848 groups, from the trigger until the group is stable, and the pauses in consumption."""
    serving = [peer for peer in peers if await groups_wire.serves(peer, ApiKey.CONSUMER_GROUP_HEARTBEAT)]
    for peer in peers:
        if peer not in serving:
            say(f"no consumer groups (KIP-848) on {peer.name}: it does not advertise ConsumerGroupHeartbeat")
    cases = groups_consumer.cases(quick=options.quick)
    for peer in serving:
        say(f"consumer groups, warm-up of {peer.name}")
        await groups_wire.wait_for_coordinators(peer)
        await groups_consumer.prepare(peer, cases)
        await groups_consumer.warm_up(peer, cases)
    for case in cases:
        for repetition in range(case.repetitions):
            say(f"consumer groups of {case.members}, round {repetition + 1} of {case.repetitions}")
            for peer in in_turn(serving, repetition):
                await groups_consumer.measure(peer, report, case)


async def idle(peers: list[Peer], report: Report, options: argparse.Namespace) -> None:
    """Many groups that only send heartbeats."""
    groups, rounds, seconds = (2_000, 1, 6.0) if options.quick else (10_000, 3, 30.0)
    members = {}
    for peer in peers:
        say(f"{groups:,} idle groups on {peer.name}")
        await groups_wire.wait_for_coordinators(peer)
        await asyncio.sleep(groups_idle.SETTLE)
        members[peer] = await groups_idle.fill(peer, report, groups)
    for repetition in range(rounds):
        say(f"{groups:,} idle groups, round {repetition + 1} of {rounds}")
        for peer in in_turn(peers, repetition):
            await groups_idle.measure(peer, report, members[peer], seconds)


async def commits(peers: list[Peer], report: Report, options: argparse.Namespace) -> None:
    """Commits as fast as the broker responds."""
    rounds, seconds = (1, 2.0) if options.quick else (4, 5.0)
    for peer in peers:
        await groups_wire.wait_for_coordinators(peer)
        await groups_commits.prepare(peer)
        say(f"commits, warm-up of {peer.name}")
        for case in groups_commits.CASES:
            await groups_commits.measure(peer, GroupsReport({}), case, seconds)
    for repetition in range(rounds):
        for case in groups_commits.CASES:
            say(f"commits, {case.label}, round {repetition + 1} of {rounds}")
            for peer in in_turn(peers, repetition):
                await groups_commits.measure(peer, report, case, seconds)


def in_turn(peers: list[T], repetition: int) -> list[T]:
    """Alternate which broker goes first."""
    return peers[::-1] if repetition % 2 else peers


BENCHMARKS: dict[str, Run] = {"classic": classic, "consumer": consumer, "idle": idle, "commits": commits}


if __name__ == "__main__":
    main()
