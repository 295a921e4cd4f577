"""A group under test: members that come and go, a stream of records, and the checks.

After each change `settle` waits until the group is stable and every partition has exactly one owner, according to the
broker and to the members. At the end `finish` looks for every produced record.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from ..clients.base import TP
from ..clients.confluent import REQUEST_TIMEOUT
from ..conftest import unique_name
from ..waiting import until
from .drivers import CONSUMER_PROTOCOL, DRIVERS
from .members import Journal, Member, Options, Owners, Read
from .process import MemberProcess
from .raw import need_consumer_protocol

PACE_SECONDS = 0.003
SETTLE_SECONDS = 40.0
DESCRIBE_TIMEOUT = 5.0


class AnyMember(Protocol):
    options: Options
    journal: Journal

    @property
    def owned(self) -> frozenset[TP]: ...

    @property
    def is_running(self) -> bool: ...

    def begin_to_leave(self) -> None: ...

    def leave(self) -> None: ...


class Feed:
    """Produces numbered records to all partitions of some topics until it is stopped."""

    def __init__(self, bootstrap_servers: str, topics: dict[str, int]) -> None:
        self.topics = dict(topics)
        config = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 2, "log_level": 2}
        self._producer = Producer(config)
        self._stop = threading.Event()
        self._numbers: Iterator[int] = iter(range(10**9))
        self.sent: dict[int, TP] = {}
        self.problems: list[str] = []
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(PACE_SECONDS):
            for topic, partitions in list(self.topics.items()):
                number = next(self._numbers)
                self._send(TP(topic, number % partitions), number)
            self._producer.poll(0)

    def _send(self, tp: TP, number: int) -> None:
        self.sent[number] = tp
        self._producer.produce(tp.topic, b"%d" % number, partition=tp.partition, on_delivery=self._delivered)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.problems.append(str(error))

    def grow(self, topic: str, partitions: int) -> None:
        """Produce to this many partitions of a topic from now on."""
        until(lambda: self._knows(topic, partitions), f"the producer knows of {partitions} partitions")
        self.topics[topic] = partitions

    def _knows(self, topic: str, partitions: int) -> bool:
        return len(self._producer.list_topics(topic, REQUEST_TIMEOUT).topics[topic].partitions) == partitions

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def stop(self) -> dict[int, TP]:
        """Write a last record to every partition and wait until all are written; return what was sent."""
        self.close()
        for topic, partitions in self.topics.items():
            for partition in range(partitions):
                self._send(TP(topic, partition), next(self._numbers))
        left = self._producer.flush(30)
        assert left == 0, f"{left} records were not delivered"
        assert self.problems == []
        return self.sent


class Scenario:
    """One group on one broker."""

    def __init__(self, bootstrap_servers: str, topics: dict[str, int]) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topics = dict(topics)
        self.group = unique_name("group")
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
        self.owners = Owners()
        self.members: list[AnyMember] = []
        self._all: list[AnyMember] = []
        self._feed: Feed | None = None

    # ── members ───────────────────────────────────────────────────────────────────────────────────────────────────

    def options(self, kind: str, **changes: Any) -> Options:
        if kind == CONSUMER_PROTOCOL:
            need_consumer_protocol(self.bootstrap_servers)
        common = Options(bootstrap_servers=self.bootstrap_servers, group=self.group, topics=tuple(self.topics))
        return replace(common, client_id=f"{kind}-{len(self._all)}", **changes)

    def join(self, kind: str, **changes: Any) -> Member:
        """A member on a thread of this process."""
        options = self.options(kind, **changes)
        member = Member(DRIVERS[kind], options, Journal(options.client_id, self.owners))
        self._keep(member)
        return member.start()

    def join_process(self, kind: str, **changes: Any) -> MemberProcess:
        """Start a member in a separate process."""
        options = self.options(kind, **changes)
        # Its callbacks arrive late, so its owners are not compared with those of other members.
        member = MemberProcess(kind, options, Journal(options.client_id, Owners()))
        self._keep(member)
        return member

    def _keep(self, member: AnyMember) -> None:
        self.members.append(member)
        self._all.append(member)

    def leave(self, member: AnyMember) -> None:
        self.members.remove(member)
        member.leave()

    def forget(self, member: AnyMember) -> None:
        """Expect nothing more of a member: it is dead or about to be fenced."""
        self.members.remove(member)
        self.owners.give(member.options.client_id, self.partitions)

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()
        running = [member for member in self._all if member.is_running]
        for member in running:
            member.begin_to_leave()
        for member in running:
            member.leave()

    # ── checks ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def partitions(self) -> set[TP]:
        return {TP(topic, number) for topic, count in self.topics.items() for number in range(count)}

    def settle(self, timeout: float = SETTLE_SECONDS, *, balanced: bool = True) -> dict[str, frozenset[TP]]:
        """Wait until every partition has exactly one owner; return the owners by client id."""
        seen: list[str] = []
        owners: dict[str, frozenset[TP]] = {}

        def is_settled() -> bool:
            owners.update((member.options.client_id, member.owned) for member in self.members)
            seen[:] = [self._unsettled(list(owners.values()), balanced)]
            return seen == [""]

        try:
            until(is_settled, f"{self.group} settles", timeout)
        except AssertionError as late:
            told = {member.options.client_id: [*map(str, member.journal.errors)] for member in self._all}
            raise AssertionError(f"{late}: {seen}; the broker: {self.described()}; errors told: {told}") from None
        self._check_owners()
        return owners

    def _unsettled(self, owned: list[frozenset[TP]], balanced: bool) -> str:
        """Describe what is still missing."""
        for member in self.members:
            assert member.is_running, f"{member.options.client_id} ended"
        counts = Counter(tp for each in owned for tp in each)
        if set(counts) != self.partitions or max(counts.values(), default=1) != 1:
            return f"owned by members: {[sorted(each) for each in owned]}"
        sizes = sorted(map(len, owned))
        if balanced and sizes and sizes[-1] - sizes[0] > len(self.topics):
            return f"unbalanced: {sizes}"
        told = self.described()
        return "" if sorted(map(sorted, owned)) == told else f"by the broker's account: {told}"

    def described(self) -> list[list[TP]] | str:
        """Return the assignments according to the broker, or the state of the group."""
        try:
            found = self.admin.describe_consumer_groups([self.group])[self.group].result(DESCRIBE_TIMEOUT)
        except KafkaException as problem:
            return str(problem)
        except TimeoutError:
            # librdkafka does not always repeat a request that a restarting broker has lost.
            self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 2})
            return "no answer"
        if found.state != ConsumerGroupState.STABLE:
            return str(found.state)
        return sorted(
            sorted(TP(p.topic, p.partition) for p in member.assignment.topic_partitions) for member in found.members
        )

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────

    def feed(self) -> None:
        """Start to produce."""
        self._feed = Feed(self.bootstrap_servers, self.topics)

    def produce(self, count: int, start: int = 0) -> None:
        """Write numbered records, evenly over all partitions."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "log_level": 2})
        partitions = sorted(self.partitions)
        for number in range(start, start + count):
            tp = partitions[number % len(partitions)]
            producer.produce(tp.topic, b"%d" % number, partition=tp.partition)
        assert producer.flush(30) == 0

    def committed(self) -> dict[TP, int]:
        """Return the committed offsets according to the broker."""
        asked = [ConsumerGroupTopicPartitions(self.group)]
        found = self.admin.list_consumer_group_offsets(asked)[self.group].result(REQUEST_TIMEOUT)
        return {TP(each.topic, each.partition): each.offset for each in found.topic_partitions}

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic, or create it."""
        self.topics[topic] = partitions
        if self._feed is not None:
            self._feed.grow(topic, partitions)

    def finish(self, *, exactly_once: bool = True) -> None:
        """Check that every produced record was read: once, or at least once."""
        assert self._feed is not None
        sent = self._feed.stop()
        until(lambda: not missing(sent, self.reads()), "everything is read", SETTLE_SECONDS)
        if exactly_once:
            self._check_nothing_twice()
        self._check_owners()

    def _check_nothing_twice(self) -> None:
        found = twice(self.reads())
        told = {member.options.client_id: [*map(str, member.journal.errors)] for member in self._all}
        assert not found, f"read twice: {found}; by {self._readers(found[0])}; errors told: {told}"

    def _readers(self, read: Read) -> list[str]:
        return [member.options.client_id for member in self._all for each in member.journal.reads if each == read]

    def _check_owners(self) -> None:
        assert not self.owners.conflicts, self.owners.conflicts

    def flowing(self, more: int = 100) -> None:
        """Wait until the members have read this many more records."""
        goal = len(self.reads()) + more
        until(lambda: len(self.reads()) >= goal, f"{more} more records are read")

    def reads(self) -> list[Read]:
        return [read for member in self._all for read in member.journal.reads]


def missing(sent: Collection[int], reads: Sequence[Read]) -> list[int]:
    return sorted(set(sent) - {read.value for read in reads})[:10]


def twice(reads: Sequence[Read]) -> list[Read]:
    return [read for read, count in Counter(reads).items() if count > 1][:10]
