"""Commits per second: many groups with one member each, which commit as fast as the broker responds.

There are two cases: few connections with many commits in flight, and one connection per group with one commit in
flight, like consumers. Kafka handles the requests of a connection one by one and waits a little to write several
records together, so few connections cannot keep it busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle

from benchmarks.groups_classic import NEVER_SLOWER
from benchmarks.groups_idle import NEVER_MORE, Members, close_groups, open_groups
from benchmarks.groups_wire import VERSIONS, Connection, Cost, create_topic, percentile, request, watch
from benchmarks.peer import Peer
from benchmarks.report import THROUGHPUT, Report
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, decode_response

RATE = "Commits of 400 groups of one member"
LATENCY = "Commits, acknowledged within (p99)"
CPU = "Commits, broker CPU for 1,000"
TOPIC = "commits"
WARM_UP = 1.0


@dataclass(frozen=True)
class Case:
    connections: int
    per_connection: int  # groups
    depth: int  # commits in flight per connection
    partitions: int  # in each commit

    @property
    def label(self) -> str:
        return f"{self.partitions} partitions, {self.connections} connections".replace("1 partitions", "1 partition")


CASES = [
    Case(8, 50, 10, 1),
    Case(8, 50, 10, 10),
    Case(400, 1, 1, 1),
    Case(400, 1, 1, 10),
]


async def prepare(peer: Peer) -> None:
    await create_topic(peer, TOPIC, max(case.partitions for case in CASES))


async def measure(peer: Peer, report: Report, case: Case, seconds: float) -> None:
    """Open the groups, commit, and close the connections."""
    members = await open_groups(peer, case.connections, case.per_connection)
    commits = Commits(members, case)
    commits.start()
    await asyncio.sleep(WARM_UP)
    commits.latencies.clear()
    with watch(peer) as cost:
        await asyncio.sleep(seconds)
        latencies = list(commits.latencies)
    await commits.stop()
    close_groups(members)
    _note(report, peer, case, latencies, cost)


def _note(report: Report, peer: Peer, case: Case, latencies: list[float], cost: Cost) -> None:
    rate = report.measure(RATE, case.label, "commits/s", THROUGHPUT)
    rate.add(peer.name, len(latencies) / cost.wall)
    rate.notes[peer.name] = f"generator {cost.generator_share:.0%}"
    late = report.measure(LATENCY, case.label, "ms", NEVER_SLOWER)
    late.add(peer.name, percentile(latencies, 0.99) * 1e3)
    report.measure(CPU, case.label, "ms", NEVER_MORE).add(peer.name, cost.broker / len(latencies) * 1e6)
    report.other_cores.append(cost.other_cores)


class Commits:
    """Send the next commit of a connection after each response."""

    def __init__(self, members: Members, case: Case) -> None:
        self._depth = case.depth
        self._frames: dict[Connection, Iterator[bytes]] = {}
        for connection in {member.connection for member in members}:
            own = [member for member in members if member.connection is connection]
            self._frames[connection] = cycle(
                [_commit(member.group.group_id, member.member_id, member.generation, case.partitions) for member in own]
            )
        self._fine = b""
        self._running = True
        self._on_the_way = 0
        self._problem = ""
        self.latencies: list[float] = []

    def start(self) -> None:
        for connection in self._frames:
            for _ in range(self._depth):
                self._send(connection)

    async def stop(self) -> None:
        self._running = False
        async with asyncio.timeout(60):
            while self._on_the_way:
                await asyncio.sleep(0.01)
        if self._problem:
            raise RuntimeError(self._problem)

    def _send(self, connection: Connection) -> None:
        self._on_the_way += 1
        connection.send(next(self._frames[connection]), partial(self._answered, connection, time.monotonic()))

    def _answered(self, connection: Connection, sent_at: float, payload: bytes) -> None:
        self.latencies.append(time.monotonic() - sent_at)
        self._on_the_way -= 1
        if payload != self._fine:
            self._check(payload)
        if self._running:
            self._send(connection)

    def _check(self, payload: bytes) -> None:
        """Compare each response with the first valid one."""
        if not payload:
            self._fail("the broker closed a connection instead of answering a commit")
            return
        answer = decode_response(ApiKey.OFFSET_COMMIT, VERSIONS[ApiKey.OFFSET_COMMIT], payload)
        codes = {each.error_code for topic in answer.topics for each in topic.partitions}
        if codes == {0}:
            self._fine = payload
        else:
            self._fail(f"a commit was answered with the error codes {codes}")

    def _fail(self, problem: str) -> None:
        self._running = False
        self._problem = problem


def _commit(group_id: str, member_id: str, generation: int, partitions: int) -> bytes:
    offsets: list[Message] = [
        {"partition_index": index, "committed_offset": 1_000_000 + index, "committed_metadata": ""}
        for index in range(partitions)
    ]
    message: Message = {
        "group_id": group_id,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": [{"name": TOPIC, "partitions": offsets}],
    }
    return request(ApiKey.OFFSET_COMMIT, message)
