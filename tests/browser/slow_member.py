"""A group that rebalanced 20 times in an hour because of one slow member, in a broker with a clock of its own.

    python -m tests.browser.slow_member            starts it with a console, and waits

The members are ottla's own machines, over sockets. Ten times one of them needs longer for the records of a poll than
max.poll.interval.ms allows: it leaves, its partitions move, and when it polls again it comes back, and they move again.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from uuid import UUID

from tests.wire import Wire

from ottla import Admin, Broker, NewTopic, Producer
from ottla.assignors import BY_NAME
from ottla.consuming.classic import ClassicMember
from ottla.consuming.membership import DutyKind, MemberSettings, Request, Topics
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import decode_response, encode_request
from ottla.runtime.clock import ManualClock, SystemClock
from ottla.types import Millis

TOPIC, GROUP, SLOW = "orders", "billing", "billing-3"
PARTITIONS = 8
TIMES = 10
MAX_POLL_INTERVAL: Millis = 60_000
NEEDS: Millis = 90_000
"""How long the slow member needs for a large batch."""
CYCLE: Millis = 350_000
QUIET: Millis = 240_000
"""Before it begins: the first join is more than an hour ago."""
STEP: Millis = 1_500
_VERSIONS = {ApiKey.JOIN_GROUP: 9, ApiKey.SYNC_GROUP: 5, ApiKey.HEARTBEAT: 4, ApiKey.LEAVE_GROUP: 5}
_PARKED = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
_SIZE = struct.Struct(">i")


class Worker:
    """A member on its own connection. Its time is that of the broker."""

    def __init__(self, port: int, client_id: str, topic_id: UUID) -> None:
        self.client_id = client_id
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        settings = MemberSettings(GROUP, None, session_timeout_ms=45_000, max_poll_interval_ms=MAX_POLL_INTERVAL)
        self.machine = ClassicMember(settings, [BY_NAME["range"]()])
        self.machine.subscribe([TOPIC])
        self._topic_id = topic_id
        self._learn()
        self.busy_until: Millis = 0
        self.owned: set[int] = set()
        self.wants = False
        """Whether it has just got metadata, so it must be asked again."""
        self.asked: dict[int, Request] = {}
        self._numbers = count(1)

    def _learn(self) -> None:
        self.machine.learned(Topics({TOPIC: PARTITIONS}, {TOPIC: self._topic_id}))

    @property
    def waits(self) -> bool:
        """Whether a response should come at once."""
        return any(one.api not in _PARKED for one in self.asked.values())

    def step(self, now: Millis) -> None:
        if self.busy_until <= now:
            self.machine.polled(now=now)
            while (duty := self.machine.due()) is not None:
                numbers = {key.partition for key in duty.partitions}
                self.owned = self.owned | numbers if duty.kind is DutyKind.ASSIGN else self.owned - numbers
                self.machine.done(duty)
            self.machine.rejection(now=now)
        step = self.machine.poll(now=now)
        self.wants = step.metadata is not None
        if self.wants:
            self._learn()
        for request in step.requests:
            number = next(self._numbers)
            self.asked[number] = request
            version = _VERSIONS[request.api]
            self.socket.sendall(encode_request(request.api, version, number, self.client_id, request.message))

    def receive(self, now: Millis) -> None:
        data = self._exactly(_SIZE.unpack(self._exactly(4))[0])
        request = self.asked.pop(_SIZE.unpack_from(data)[0])
        self.machine.answered(request, decode_response(request.api, _VERSIONS[request.api], data), now=now)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            assert part, "the broker closed the connection"
            data += part
        return bytes(data)


def settle(workers: Sequence[Worker], clock: ManualClock) -> None:
    """Exchange messages until nobody has anything to say before time passes."""
    while True:
        for worker in workers:
            worker.step(clock.now())
        by_socket = {worker.socket: worker for worker in workers if worker.asked}
        patience = 1.0 if any(worker.waits for worker in workers) else 0.002
        readable = select.select(list(by_socket), [], [], patience)[0] if by_socket else []
        for one in readable:
            by_socket[one].receive(clock.now())
        if not readable and not any(worker.wants for worker in workers):
            return


@contextlib.contextmanager
def prepared_case(**options: object) -> Iterator[Broker]:
    """A broker whose group billing rebalanced 20 times in the last hour."""
    clock = ManualClock(SystemClock().now() - TIMES * CYCLE - QUIET)
    with Broker(clock=clock, config={"group.initial.rebalance.delay.ms": 0}, **options) as broker:  # type: ignore[arg-type]
        config = broker.client_config()
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with Admin(config) as admin, Producer(config) as producer:
            admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])
            with Wire(port) as wire:
                # The first question makes the broker create the topic of the groups.
                while wire.call(ApiKey.FIND_COORDINATOR, 3, {"key": GROUP, "key_type": 0}).error_code:
                    time.sleep(0.01)
            topic_id = admin.describe_topics([TOPIC])[TOPIC].topic_id
            workers = [Worker(port, f"billing-{n}", topic_id) for n in range(1, 5)]
            try:
                _hour(workers, clock, admin, producer)
            finally:
                for worker in workers:
                    worker.socket.close()
        yield broker


def _hour(workers: Sequence[Worker], clock: ManualClock, admin: Admin, producer: Producer) -> None:
    settle(workers, clock)
    slow = next(worker for worker in workers if worker.client_id == SLOW)
    began, position, written = clock.now(), [0] * PARTITIONS, [0] * PARTITIONS
    step = 0
    while clock.now() < began + QUIET + TIMES * CYCLE:
        clock.advance(STEP)
        step += 1
        now = clock.now()
        if now >= began + QUIET and (now - began - QUIET) % CYCLE < STEP:
            slow.busy_until = now + NEEDS
        settle(workers, clock)
        if step % 20 == 0:
            for number in range(PARTITIONS):
                for _ in range(12):
                    producer.send(TOPIC, b"{}", partition=number, timestamp=now)
                written[number] += 12
            producer.flush()
            for worker in workers:
                if worker.busy_until <= now:
                    for number in worker.owned:
                        position[number] = max(written[number] - 6, 0)
            _commit(workers, clock, position)


def _commit(workers: Sequence[Worker], clock: ManualClock, position: Sequence[int]) -> None:
    """Commit what each member has read, as its client would."""
    for worker in workers:
        if worker.asked or not worker.owned or worker.busy_until > clock.now():
            continue
        who = worker.machine.identity
        partitions = [
            {"partition_index": number, "committed_offset": position[number], "committed_metadata": ""}
            for number in sorted(worker.owned)
        ]
        message = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": who.generation,
            "member_id": who.member_id,
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": partitions}],
        }
        worker.socket.sendall(encode_request(ApiKey.OFFSET_COMMIT, 7, 0, worker.client_id, message))
        size = _SIZE.unpack(worker._exactly(4))[0]
        worker._exactly(size)


def main() -> None:
    began = time.monotonic()
    with prepared_case(console=True) as broker:
        print(f"ready after {time.monotonic() - began:.0f} s: {broker.console_url}", flush=True)
        print(f"ottla groups explain {GROUP} -b {broker.bootstrap_servers}", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
