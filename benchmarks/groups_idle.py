"""The cost of many groups with one member each that only send heartbeats.

The groups share `CONNECTIONS` connections. The heartbeats of a connection are spread evenly over the interval, so
that they do not wait for each other. Each is sent when it is due, whether or not earlier ones have a response. The
sessions are long, because the members of a broker are silent while the other broker is measured.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from benchmarks.groups_classic import NEVER_SLOWER, Group, Member
from benchmarks.groups_wire import Connection, connect, percentile, request, watch
from benchmarks.peer import Peer
from benchmarks.report import Report, Target
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import decode_response

CONNECTIONS = 100
INTERVAL = 3.0  # heartbeat.interval.ms of Kafka's consumer
SESSION = 1_800_000  # milliseconds, Kafka's limit
SETTLE = 3.0
NEVER_MORE = Target("<=", 1.0)
Members = list[Member]


async def open_groups(peer: Peer, connections: int, per_connection: int) -> Members:
    """Return groups of one member. Neighbours in the list use different connections."""
    opened = await connect(peer, connections)

    async def open_on(number: int) -> Members:
        return [await _only_member(peer, opened[number]) for _ in range(per_connection)]

    by_connection = await asyncio.gather(*(open_on(number) for number in range(connections)))
    return [members[index] for index in range(per_connection) for members in by_connection]


async def _only_member(peer: Peer, connection: Connection) -> Member:
    group = Group(peer, [connection])
    (member,) = group.absent
    member.session_timeout = SESSION
    await member.join()
    return member


def close_groups(members: Members) -> None:
    for connection in {member.connection for member in members}:
        connection.close()


async def fill(peer: Peer, report: Report, groups: int) -> Members:
    """Open the groups and report the memory of the broker before and after."""
    section = _section(groups)
    report.measure(section, "resident memory before", "MB").add(peer.name, peer.resident_bytes() / 1e6)
    members = await open_groups(peer, CONNECTIONS, groups // CONNECTIONS)
    await Heartbeats(members).run(INTERVAL)
    await asyncio.sleep(SETTLE)
    report.measure(section, "resident memory after", "MB", NEVER_MORE).add(peer.name, peer.resident_bytes() / 1e6)
    return members


async def measure(peer: Peer, report: Report, members: Members, seconds: float) -> None:
    """Send heartbeats for a while and measure CPU time and latency."""
    beats = Heartbeats(members)
    with watch(peer) as cost:
        await beats.run(seconds)
    section = _section(len(members))
    report.measure(section, "CPU a minute", "s", NEVER_MORE).add(peer.name, cost.broker / cost.wall * 60)
    for name, share in {"p50": 0.50, "p99": 0.99}.items():
        latency = report.measure(section, f"heartbeat latency {name}", "ms", NEVER_SLOWER)
        latency.add(peer.name, percentile(beats.latencies, share) * 1e3)
        latency.notes[peer.name] = f"sent {percentile(beats.late, share) * 1e3:.1f} ms late"
    report.other_cores.append(cost.other_cores)


def _section(groups: int) -> str:
    return f"{groups:,} groups of one member, heartbeats every {INTERVAL:g} s"


class Heartbeats:
    """The heartbeats of all members, each due once per interval."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._frames = [
            request(
                ApiKey.HEARTBEAT,
                {
                    "group_id": member.group.group_id,
                    "generation_id": member.generation,
                    "member_id": member.member_id,
                },
            )
            for member in members
        ]
        self._fine = b""
        self._wrong = 0
        self.latencies: list[float] = []
        self.late: list[float] = []  # delays of the load generator itself

    async def run(self, seconds: float) -> None:
        begin, sent = time.monotonic(), 0
        between = INTERVAL / len(self._members)
        total = int(seconds / between)
        while sent < total:
            now = time.monotonic()
            while sent < total and begin + sent * between <= now:
                self.late.append(now - begin - sent * between)
                self._send(sent % len(self._members))
                sent += 1
            await asyncio.sleep(0.001)
        async with asyncio.timeout(60):
            while len(self.latencies) < total:
                await asyncio.sleep(0.01)
        if self._wrong:
            raise RuntimeError(f"{self._wrong} of {total} heartbeats were not answered as they should be")

    def _send(self, index: int) -> None:
        on_answer = partial(self._answered, time.monotonic())
        self._members[index].connection.send(self._frames[index], on_answer)

    def _answered(self, sent_at: float, payload: bytes) -> None:
        self.latencies.append(time.monotonic() - sent_at)
        if payload != self._fine:
            self._check(payload)

    def _check(self, payload: bytes) -> None:
        """Compare each response with the first valid one."""
        if payload and decode_response(ApiKey.HEARTBEAT, 4, payload).error_code == 0:
            self._fine = payload
        else:
            self._wrong += 1
