"""The base of simulated consumers: a process that can crash, pause and be busy, its connection and its offsets.

It records what it believes to own, for the invariants. A paused process does everything when it wakes, even if that is
too late. A busy process sends heartbeats but does not poll.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.world import TOPIC, TOPIC_ID, World

from ottla import errors
from ottla.coordinator import messages as m
from ottla.metadata import PartitionState, Topic
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import decode_request_header, encode_request
from ottla.protocol.commits import read_commit

HEARTBEAT = 3_000
COMMIT = 5_000
COMMIT_VERSION = 9
BACKOFF = 100
REQUEST_TIMEOUT = 10_000


class Member:
    """One consumer process."""

    def __init__(self, world: World, group_id: str, name: str, instance_id: str | None = None) -> None:
        self.world = world
        self.group_id = group_id
        self.name = name
        self.instance_id = instance_id
        self.rebalance_timeout = world.random.choice([8_000, 20_000, 30_000])
        self.is_alive = True
        self.paused_until = 0
        self.busy_until = 0
        self.fatal: str | None = None
        self.member_id = ""
        self.generation = -1
        """The generation, or the member epoch."""
        self.owned: frozenset[int] = frozenset()
        self.positions: dict[int, int] = {}
        self.observers: list[Callable[[Member], None]] = []
        """Called when it believes to own new partitions."""
        self._epoch = 0
        self._connect()

    def __repr__(self) -> str:
        return f"{self.name}({self.member_id or '?'})"

    @property
    def identity(self) -> str:
        """The owner of its partitions: a static member is the same after a restart."""
        return self.instance_id or self.member_id

    @property
    def is_stable(self) -> bool:
        """Whether it believes to be working normally."""
        raise NotImplementedError

    def leave(self) -> None:
        """Close cleanly and leave the group."""
        raise NotImplementedError

    def change_subscription(self) -> None:
        """Change the subscription."""

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def crash(self) -> None:
        self.world.say(f"{self} crashes")
        self._end()

    def pause(self, duration: int) -> None:
        self.world.say(f"{self} is paused for {duration} ms")
        self.paused_until = max(self.paused_until, self.world.now + duration)

    def be_busy(self, duration: int) -> None:
        self.world.say(f"{self} is busy for {duration} ms")
        self.busy_until = max(self.busy_until, self.world.now + duration)

    def _end(self) -> None:
        self.is_alive = False
        self.owned = frozenset()
        self.world.close(self.connection, tell=False)

    def _die(self, error: Any) -> None:
        self.world.say(f"{self} ends with {type(error).__name__}")
        self.fatal = type(error).__name__
        self._end()

    def _own(self, partitions: frozenset[int]) -> None:
        self.owned = partitions
        for observe in self.observers:
            observe(self)

    def _every(self, interval: int, task: Callable[[], None]) -> None:
        def again() -> None:
            if self.is_alive:
                task()
                self.world.after(interval, guarded)

        guarded = self._when_awake(again)
        self.world.after(self.world.random.uniform(0, interval), guarded)

    def _when_awake(self, task: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            if self.paused_until > self.world.now:
                self.world.after(self.paused_until - self.world.now, run)
            elif self.is_alive:
                task()

        return run

    def _later(self, task: Callable[[], None]) -> None:
        """Do something after the back-off, unless something else was started meanwhile."""
        self._epoch += 1
        epoch = self._epoch
        delay = max(BACKOFF, self.busy_until - self.world.now)
        self.world.after(delay, self._when_awake(lambda: task() if epoch == self._epoch else None))

    # ── the connection ────────────────────────────────────────────────────────────────────────────────────────────

    def _connect(self) -> None:
        self.connection = self.world.connect(self._when_awake(self._lost_connection))

    def _lost_connection(self) -> None:
        self._connect()
        self._disconnected()

    def _disconnected(self) -> None:
        """The connection broke; its requests get no response."""

    def _call(self, name: str, request: Any, on_answer: Callable[[Any], None], timeout: int = REQUEST_TIMEOUT) -> None:
        connection = self.connection

        def answered(answer: Any) -> None:
            def handle() -> None:
                if connection is self.connection:
                    on_answer(answer)

            self._when_awake(handle)()

        self.world.call(connection, name, request, timeout, answered)

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _fetch_positions(self) -> None:
        """Fetch the committed offsets of new partitions."""
        generation = self.generation
        wanted = m.TopicToFetch(TOPIC, tuple(sorted(self.owned - self.positions.keys())))

        def answered(answer: Any) -> None:
            if generation != self.generation or not self.is_stable:
                return
            if error_of(answer) is not None:
                self.world.after(BACKOFF, self._when_awake(self._fetch_positions))
                return
            for entry in answer.partitions:
                # An earlier response may have arrived in between, and work may have continued from it.
                if entry.partition in self.owned:
                    self.positions.setdefault(entry.partition, max(entry.offset, 0))

        self._call("fetch", m.FetchRequest(group_id=self.group_id, topics=(wanted,)), answered)

    def _commit(self) -> None:
        if not self.is_stable or not self.positions:
            return
        for partition in self.positions:
            self.positions[partition] += self.world.random.randrange(0, 100)
        request = m.CommitRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            generation_id=self.generation,
            group_instance_id=self.instance_id,
            # Use both paths in turn: with most requests, and separately.
            offsets=self._packed() if self.generation % 2 else self._unpacked(),
        )
        self._call("commit", request, lambda _: None)

    def _unpacked(self) -> tuple[m.OffsetToCommit, ...]:
        return tuple(m.OffsetToCommit(TOPIC, number, offset) for number, offset in self.positions.items())

    def _packed(self) -> bytes:
        partitions = [
            {"partition_index": number, "committed_offset": offset, "committed_metadata": ""}
            for number, offset in self.positions.items()
        ]
        message = {
            "group_id": self.group_id, "member_id": self.member_id,
            "topics": [{"name": TOPIC, "partitions": partitions}],
        }  # fmt: skip
        frame = encode_request(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, 0, None, message)[4:]
        body = decode_request_header(frame).body
        topics = {TOPIC: Topic(TOPIC, TOPIC_ID, [PartitionState.new((1,))] * self.world.partitions, {})}
        commit = read_commit(frame, body, COMMIT_VERSION, 0, topics, 0)
        assert commit is not None
        return commit[0][-1]


def error_of(answer: Any) -> errors.KafkaError | None:
    """Return the error in a response, or the response if it is an error."""
    if isinstance(answer, errors.KafkaError):
        return answer
    code = getattr(answer, "error_code", 0)
    return errors.error_class(code)() if code else None
