"""Consume, transform and produce under churn, from a seed.

A transaction coordinator, partitions and the offsets of a group run in virtual time. The network delays, loses and
repeats messages; producers and brokers are killed. The coordinator, its driver, the producer state of partitions and
the committed offsets are real; `Broker` replaces the handlers between them. Only the logs survive a kill. In some lives
of the broker the coordinator's journal commits late; a kill may lose what is not committed. Invariants:

- all or nothing: read_committed consumers see every record of a transaction or none
- exactly once: in the end they see every input once
- acknowledged: what a producer was told is what its consumers see
- together: the committed offset matches the visible records
- fenced: nothing is written with an old epoch, or outside of a transaction that will end
- nothing hangs: after churn every transaction ends, and the last stable offset reaches the end of the log

In the second version of the protocol, requests and markers may also arrive after their sender has given up. In the
first version they are lost instead, because it cannot distinguish them from new ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from tests.simulation.world import Violation, Weather
from tests.virtual import Log, Timeline, VirtualClock, VirtualJournal, VirtualReply

from ottla import errors
from ottla.coordinator import records as r
from ottla.coordinator.messages import FetchRequest, TopicToFetch
from ottla.coordinator.offsets import Offsets
from ottla.driver import Driver
from ottla.machine import Outcome
from ottla.records import BatchHeader
from ottla.storage.producers import Marker, ProducerState
from ottla.transactions import messages as m
from ottla.transactions.config import TransactionConfig
from ottla.transactions.coordinator import TransactionCoordinator
from ottla.transactions.records import TransactionRecord, decode, encode
from ottla.transactions.transaction import Transaction
from ottla.transactions.transitions import PREPARED, State
from ottla.types import TopicPartition

START = 1_700_000_000_000
CHURN, CALM = 40_000, 400_000
PATIENCE, TIMEOUT = 800, 4_000
OUTPUTS = tuple(TopicPartition("out", index) for index in range(3))
OFFSETS = TopicPartition("__consumer_offsets", 0)
INPUTS = 25
TRY_AGAIN = frozenset({14, 15, 16, 19, 51, 88})
CONFIG = TransactionConfig(transaction_abort_timed_out_transaction_cleanup_interval_ms=500)
_TRANSACTIONAL, _CONTROL = 0x10, 0x30
LOST = object()
"""What a client gets if there is no response."""


class Entry(NamedTuple):
    """A batch in a log: one record, or a marker."""

    header: BatchHeader
    value: Any
    commits: bool | None = None


class Partition:
    """A log in memory with the producer state of a real one."""

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.log: list[Entry] = []
        self.restart()

    def restart(self) -> None:
        """Rebuild the state from the log."""
        self.producers = ProducerState(self.place)
        for offset, entry in enumerate(self.log):
            self._learn(entry, offset)

    def _learn(self, entry: Entry, offset: int) -> None:
        if entry.commits is None:
            self.producers.update(entry.header, offset, offset, START)
        else:
            self.producers.complete(entry.header, Marker(0, not entry.commits, START), offset)

    def append(self, producer_id: int, epoch: int, sequence: int, value: Any, *, checked: bool = True) -> bool:
        """Write a batch; return False if it is a duplicate."""
        header = _header(producer_id, epoch, sequence, _TRANSACTIONAL)
        known = self.producers.entries.get(producer_id)
        if checked and known is not None and known.duplicate_of(header) is not None:
            return False
        (self.producers.check if checked else self.producers.check_own)(header, len(self.log))
        self._write(Entry(header, value))
        return True

    def mark(self, markers: m.Markers) -> None:
        header = _header(markers.producer_id, markers.producer_epoch, -1, _CONTROL)
        marker = Marker(0, not markers.committed, START)
        self.producers.check_marker(header, marker, len(self.log), version=markers.version)
        self._write(Entry(header, None, markers.committed))

    def _write(self, entry: Entry) -> None:
        self._learn(entry, len(self.log))
        self.log.append(entry)

    @property
    def last_stable_offset(self) -> int:
        unstable = self.producers.first_unstable_offset(len(self.log))
        return len(self.log) if unstable is None else unstable

    def committed(self) -> list[Any]:
        """Return the records that a read_committed consumer sees."""
        open_: dict[int, list[Any]] = {}
        seen: list[Any] = []
        for entry in self.log[: self.last_stable_offset]:
            producer = entry.header.producer_id
            if entry.commits is None:
                open_.setdefault(producer, []).append(entry.value)
            elif (values := open_.pop(producer, [])) and entry.commits:
                seen += values
        return seen


def _header(producer_id: int, epoch: int, sequence: int, attributes: int) -> BatchHeader:
    return BatchHeader(0, 0, 0, 2, 0, attributes, 0, 0, START, producer_id, epoch, sequence, 1)


class World(Timeline):
    """Time, randomness and the network."""

    def __init__(self, seed: int, version: int, *, late: bool) -> None:
        super().__init__(seed, START)
        self.version = version
        self.late = late
        self.weather = Weather(lost=0.04, slow=0.05, late=0.05)
        self.broker = Broker(self)

    def delay(self) -> int:
        slow = self.random.random() < self.weather.slow
        return self.random.randint(200, 3_000) if slow else self.random.randint(1, 20)

    def loses(self) -> bool:
        return self.random.random() < self.weather.lost


Task = Generator[VirtualReply, Any, Any]
"""A request that the broker works on. It yields what it waits for, and returns the response."""


class Broker:
    """The coordinator and the partitions, with what the real handlers and shards do."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.records: Log = []
        self.committed: dict[str, Transaction] = {}
        """What the committed records of the coordinator say."""
        self._committed_end = 0
        self.partitions = {place: Partition(place) for place in (*OUTPUTS, OFFSETS)}
        self._ids = count(1)
        self.is_up = False
        self.start()

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def kill(self) -> None:
        end = self.world.random.choice([self.journal.committed_end, *self.journal.uncommitted_ends])
        self.world.say(f"the broker is killed and loses {len(self.records) - end} records")
        self.world.next_life()
        self.is_up = False
        del self.records[end:]
        self._note_committed(end)

    def start(self) -> None:
        lags = self.world.random.random() < 0.4
        self.world.say(f"the broker starts{', and commits late' if lags else ''}")
        self.world.next_life()
        self.coordinator = TransactionCoordinator(CONFIG)
        self.journal = VirtualJournal(
            self.records, encode, commit_later=self.world.commit_later if lags else None, on_commit=self._on_commit
        )
        self.driver: Driver[TransactionRecord] = Driver(
            self.coordinator,
            self.journal,
            VirtualClock(self.world),
            call_later=partial(self.world.call_later, late=self.world.weather.late),
            new_reply=VirtualReply,
        )
        self._marking: set[m.Markers] = set()
        for key, value in self.records:
            record = decode(key, value)
            assert record is not None
            self.coordinator.replay(record)
        for partition in self.partitions.values():
            partition.restart()
        self._load_offsets()
        self.is_up = True
        self.driver.begin(self.coordinator.loaded)
        self._finish()

    def _load_offsets(self) -> None:
        self.offsets = Offsets(100)
        for entry in self.partitions[OFFSETS].log:
            self._learn_offset(entry)

    def _learn_offset(self, entry: Entry) -> None:
        producer_id = entry.header.producer_id
        if entry.commits is not None:
            self.offsets.end_transaction(producer_id, committed=entry.commits)
        else:
            group, offset = entry.value
            self.offsets.replay(r.OffsetCommitKey(group, "in", 0), r.OffsetCommitValue(offset), producer_id)

    def _on_commit(self, end: int) -> None:
        self._note_committed(end)
        self._finish()

    def _note_committed(self, end: int) -> None:
        for key, value in self.records[self._committed_end : end]:
            record = decode(key, value)
            assert record is not None
            assert record.value is not None
            self.committed[record.transactional_id] = record.value
        self._committed_end = end

    # ── markers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _finish(self) -> None:
        """Send the markers of every transaction whose decision is committed."""
        for markers in self.coordinator.unfinished():
            known = self.committed.get(markers.transactional_id)
            decided = known is not None and known.state in PREPARED and known.producer_epoch == markers.producer_epoch
            if decided and markers not in self._marking:
                self._marking.add(markers)
                missing = set(markers.partitions)
                for place in sorted(markers.partitions):
                    self._mark_later(markers, place, missing)
                if not missing:
                    self.world.after_unless_killed(0, partial(self._complete, markers))

    def _mark_later(self, markers: m.Markers, place: TopicPartition, missing: set[TopicPartition]) -> None:
        world, life = self.world, self.world.life

        def arrive() -> None:
            if not self.is_up or (life != world.life and not world.late):
                return
            self._mark(markers, place)
            if life == world.life and place in missing:
                missing.discard(place)
                if not missing:
                    self._complete(markers)

        def give_up() -> None:
            if place in missing:
                self._mark_later(markers, place, missing)

        if not world.loses():
            world.after(world.delay() if world.late else world.random.randint(1, 20), arrive)
        world.after_unless_killed(PATIENCE, give_up)

    def _mark(self, markers: m.Markers, place: TopicPartition) -> None:
        partition = self.partitions[place]
        try:
            partition.mark(markers)
        except (errors.InvalidProducerEpoch, errors.TransactionCoordinatorFenced):
            return
        if place == OFFSETS:
            self._learn_offset(partition.log[-1])

    def _complete(self, markers: m.Markers) -> None:
        self.perform(self._run(self.coordinator.markers_written, markers), lambda _: self._marking.discard(markers))

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def perform(self, task: Task, respond: Callable[[Any], object]) -> None:
        """Work on a request until it has a response. A kill of the broker ends it."""

        def go_on(value: Any) -> None:
            try:
                task.send(value).callbacks.append(go_on)
            except StopIteration as end:
                respond(end.value)

        go_on(None)

    def _run(self, operation: Callable[..., Outcome[TransactionRecord, Any]], request: Any) -> Task:
        begun = self.driver.begin(operation, request)
        return (yield begun) if isinstance(begun, VirtualReply) else begun

    def init(self, name: str) -> Task:
        spare = next(self._ids) if self.coordinator.needs_producer_id(name) else -1
        request = m.InitRequest(transactional_id=name, timeout=TIMEOUT, spare_producer_id=spare)
        return self._run(self.coordinator.init_producer_id, request)

    def add(self, name: str, producer_id: int, epoch: int, place: TopicPartition) -> Task:
        request = m.AddPartitionsRequest(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            partitions=frozenset({place}),
            version=self.world.version,
        )
        return (yield from self._run(self.coordinator.add_partitions, request)).error_code

    def _allows(self, name: str, producer_id: int, epoch: int, place: TopicPartition) -> Task:
        if self.partitions[place].producers.has_ongoing(producer_id, epoch):
            return 0
        if self.world.version >= m.SECOND_VERSION:
            return (yield from self.add(name, producer_id, epoch, place))
        request = m.AddPartitionsRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, partitions=frozenset({place})
        )
        return (yield from self._run(self.coordinator.verify, request)).codes[place]

    def commit_offset(self, name: str, producer_id: int, epoch: int, offset: int) -> Task:
        code = yield from self.produce(name, producer_id, epoch, OFFSETS, -1, (name, offset))
        if not code:
            self._learn_offset(self.partitions[OFFSETS].log[-1])
        return code

    def produce(
        self, name: str, producer_id: int, epoch: int, place: TopicPartition, sequence: int, value: Any
    ) -> Task:
        code = yield from self._allows(name, producer_id, epoch, place)
        if code:
            return code
        try:
            written = self.partitions[place].append(producer_id, epoch, sequence, value, checked=place != OFFSETS)
        except errors.KafkaError as error:
            return error.code
        if written:
            self._check_write(name, producer_id, epoch, place)
        return 0

    def _check_write(self, name: str, producer_id: int, epoch: int, place: TopicPartition) -> None:
        known = self.committed.get(name)
        if known is not None and known.producer_id == producer_id and place in known.partitions:
            of_last = epoch == known.producer_epoch - 1 and known.state in PREPARED
            if of_last or (epoch == known.producer_epoch and known.state in (State.ONGOING, *PREPARED)):
                return
        raise Violation("fenced", f"{name} wrote with {producer_id} epoch {epoch} to {place} while it is {known}")

    def end(self, name: str, producer_id: int, epoch: int, committed: bool) -> Task:
        second = self.world.version >= m.SECOND_VERSION
        spare = next(self._ids) if second and self.coordinator.needs_producer_id(name) else -1
        request = m.EndRequest(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
            version=self.world.version,
            spare_producer_id=spare,
        )
        return self._run(self.coordinator.end, request)

    def fetch(self, name: str) -> Task:
        yield from ()
        return self.fetch_offset(name)

    def fetch_offset(self, name: str) -> tuple[int, int]:
        asked = FetchRequest(group_id=name, topics=(TopicToFetch("in", (0,)),), require_stable=True)
        (found,) = self.offsets.fetch(asked).partitions
        return found.error_code, found.offset


Steps = Generator[Callable[[], Task], Any, None]


class Fatal(Exception):
    """The producer cannot continue and starts again."""


@dataclass
class Attempt:
    """A transaction that an application attempted."""

    values: list[tuple[str, int, int]] = field(default_factory=list)
    told: bool | None = None
    """Whether the broker has said that it is committed (True) or aborted (False)."""


class Client:
    """An application that reads its input, writes it to the outputs and commits both. It is killed and restarted."""

    _attempts = count()

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.lives: set[int] = set()
        self.is_done = False
        self.attempts: list[Attempt] = []
        self._numbers = count()
        self.start()

    def start(self) -> None:
        """Start an instance. Another one may still run that was assumed dead."""
        life = next(self._numbers)
        self.lives.add(life)
        steps = self._work()
        self._ask(steps, next(steps), life)

    def kill(self) -> None:
        """Its requests get no response any more, but may still arrive."""
        if not self.is_done:
            self.world.say(f"{self.name} is killed")
            self.lives.clear()
            self.world.after(self.world.random.randint(1, 1_500), self._start_if_gone)

    def double(self) -> None:
        """Start another instance next to the running one."""
        if not self.is_done:
            self.world.say(f"{self.name} has a double")
            self.start()

    def _start_if_gone(self) -> None:
        if not self.lives and not self.is_done:
            self.start()

    def _ask(self, steps: Steps, call: Callable[[], Task], life: int) -> None:
        world, answered = self.world, [False]
        late = world.late

        def arrive() -> None:
            waits = not answered[0] and life in self.lives
            if world.broker.is_up and (waits or late):
                world.broker.perform(call(), respond)

        def respond(answer: Any) -> None:
            if not world.loses():
                world.after(world.delay() if late else world.random.randint(1, 20), lambda: reply(answer))

        def reply(answer: Any) -> None:
            if not answered[0] and life in self.lives:
                answered[0] = True
                self._go_on(steps, answer, life)

        if not world.loses():
            world.after(world.delay(), arrive)
        world.after(PATIENCE, lambda: reply(LOST))

    def _go_on(self, steps: Steps, answer: Any, life: int) -> None:
        try:
            self._ask(steps, steps.send(answer), life)
        except StopIteration:
            self.world.say(f"{self.name} has done everything")
            self.is_done = True
            self.lives.discard(life)
        except Fatal as error:
            self.world.say(f"{self.name} ends: {error}")
            self.lives.discard(life)
            self.world.after(self.world.random.randint(10, 300), self._start_if_gone)

    # ── what it does ──────────────────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> Steps:
        broker, name, chance = self.world.broker, self.name, self.world.random
        answer = yield from self._patiently(partial(broker.init, name), lambda found: found.error_code)
        producer_id, epoch = answer.producer_id, answer.producer_epoch
        sequences = dict.fromkeys(OUTPUTS, 0)
        _, position = yield from self._patiently(partial(broker.fetch, name), lambda found: found[0])
        while (position := max(0, position)) < INPUTS:
            attempt = Attempt()
            self.attempts.append(attempt)
            number, commits = next(self._attempts), chance.random() < 0.75
            taken = range(position, min(INPUTS, position + chance.randint(1, 4)))
            who = (name, producer_id, epoch)
            for value in taken:
                place = chance.choice(OUTPUTS)
                yield from self._add(producer_id, epoch, place)
                attempt.values.append((name, value, number))
                yield from self._write(partial(broker.produce, *who, place, sequences[place], attempt.values[-1]))
                sequences[place] += 1
            yield from self._add(producer_id, epoch, OFFSETS)
            end = taken[-1] + 1
            yield from self._write(partial(broker.commit_offset, *who, end))
            ended = yield from self._patiently(partial(broker.end, *who, commits), lambda found: found.error_code)
            attempt.told = commits
            position = end if commits else position
            if self.world.version >= m.SECOND_VERSION:
                producer_id, epoch = ended.producer_id, ended.producer_epoch
                sequences = dict.fromkeys(OUTPUTS, 0)

    def _add(self, producer_id: int, epoch: int, place: TopicPartition) -> Generator[Any, Any, None]:
        if self.world.version < m.SECOND_VERSION:
            yield from self._write(partial(self.world.broker.add, self.name, producer_id, epoch, place))

    def _write(self, call: Callable[[], Task]) -> Generator[Any, Any, None]:
        yield from self._patiently(call, lambda code: code)

    def _patiently(self, call: Callable[[], Task], code_of: Callable[[Any], int]) -> Generator[Any, Any, Any]:
        """Repeat a request until it gets a response that is not retriable."""
        while True:
            answer = yield call
            if answer is LOST or code_of(answer) in TRY_AGAIN:
                continue
            if code_of(answer):
                raise Fatal(errors.error_name(code_of(answer)))
            return answer


class Scenario:
    """Some applications, a time of churn, and then calm until everything is done."""

    def __init__(self, seed: int, version: int, *, late: bool | None = None) -> None:
        self.world = World(seed, version, late=version >= m.SECOND_VERSION if late is None else late)
        self.clients = [Client(self.world, f"app-{number}") for number in range(3)]

    def run(self) -> None:
        world = self.world
        world.after(world.random.randint(100, 3_000), self._trouble)
        world.run_until(START + CHURN)
        world.weather = Weather()
        if not world.broker.is_up:
            world.broker.start()
        world.run_until(START + CALM, self._is_over)
        self._check()

    def _trouble(self) -> None:
        world = self.world
        if world.now >= START + CHURN:
            return
        kind = world.random.random()
        if kind < 0.35:
            world.random.choice(self.clients).kill()
        elif kind < 0.55:
            world.random.choice(self.clients).double()
        elif world.broker.is_up:
            world.broker.kill()
            world.after(world.random.randint(10, 2_000), self._start_broker)
        world.after(world.random.randint(200, 3_000), self._trouble)

    def _start_broker(self) -> None:
        if not self.world.broker.is_up:
            self.world.broker.start()

    def _is_over(self) -> bool:
        return all(client.is_done for client in self.clients) and not any(
            each.state not in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
            for each in self.world.broker.coordinator.transactions.values()
        )

    # ── invariants ────────────────────────────────────────────────────────────────────────────────────────────────

    def _check(self) -> None:
        broker = self.world.broker
        if not self._is_over():
            states = {each.transactional_id: each.state for each in broker.coordinator.transactions.values()}
            raise Violation("nothing hangs", f"{states}, {[client.is_done for client in self.clients]}")
        for place, partition in broker.partitions.items():
            if partition.last_stable_offset != len(partition.log):
                raise Violation("nothing hangs", f"{place} is stable up to {partition.last_stable_offset} only")
        seen = [value for place in OUTPUTS for value in broker.partitions[place].committed()]
        for client in self.clients:
            self._check_client(client, [value for value in seen if value[0] == client.name])

    def _check_client(self, client: Client, seen: list[tuple[str, int, int]]) -> None:
        for attempt in client.attempts:
            visible = [value for value in attempt.values if value in seen]
            if visible and visible != attempt.values:
                raise Violation("all or nothing", f"of {attempt.values} are seen {visible}")
            if attempt.told is not None and attempt.told != bool(visible):
                raise Violation("acknowledged", f"{attempt.values}: committed {attempt.told}, seen {bool(visible)}")
        if sorted(value for _, value, _ in seen) != list(range(INPUTS)):
            raise Violation("exactly once", f"{client.name}: {sorted(seen)}")
        code, offset = self.world.broker.fetch_offset(client.name)
        if (code, offset) != (0, INPUTS):
            raise Violation("together", f"{client.name} has committed {offset} of {INPUTS}, code {code}")


def run_seed(seed: int, version: int, *, late: bool | None = None) -> tuple[str | None, list[str]]:
    """Run one seed; return the violation, if any, and the events."""
    scenario = Scenario(seed, version, late=late)
    try:
        scenario.run()
    except Violation as violation:
        return str(violation), list(scenario.world.trace)
    return None, list(scenario.world.trace)


def main() -> int:
    """``python -m tests.simulation.transactions --seeds 0:1000 --version 2``."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", default="0:200", help="from:to")
    parser.add_argument("--version", type=int, choices=(m.FIRST_VERSION, m.SECOND_VERSION), default=m.SECOND_VERSION)
    args = parser.parse_args()
    first, last = map(int, args.seeds.split(":"))
    failed = 0
    for seed in range(first, last):
        problem, trace = run_seed(seed, args.version)
        if problem is not None:
            failed += 1
            print(f"seed {seed}: {problem}", *trace[-30:], sep="\n")
    print(f"{last - first} seeds, {failed} with a violation")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
