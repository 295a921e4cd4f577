"""Applications of coordinators: one kind commits offsets, the other writes in transactions.

- commits last: an offset whose commit was acknowledged, or that was read, is there in the end
- all or nothing: a reader of committed records sees all records of a transaction or none, each once
- acknowledged: what an application was told about a transaction is what readers see
- nothing hangs: in the end all transactions are over
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.replication.coordinators import DATA, INPUT, OFFSETS, STATE, producers_of
from tests.simulation.replication.invariants import Violation
from tests.simulation.replication.messages import Coordinate, Request, Write

from ottla import errors
from ottla.coordinator import messages as groups
from ottla.metadata.values import NO_LEADER
from ottla.transactions import messages as m

if TYPE_CHECKING:
    from tests.simulation.replication.cluster import Cluster

PATIENCE, PAUSE, TIMEOUT = 2_000, 100, 4_000
COMMITS_LAST = "CommitsLast"
ALL_OR_NOTHING = "AllOrNothing"
ACKNOWLEDGED = "Acknowledged"
NOTHING_HANGS = "NothingHangs"
_TRY_AGAIN = (
    errors.NotLeaderOrFollower,
    errors.UnknownTopicOrPartition,
    errors.NotEnoughReplicas,
    errors.NotEnoughReplicasAfterAppend,
    errors.RequestTimedOut,
    errors.CoordinatorNotAvailable,
    errors.CoordinatorLoadInProgress,
    errors.NotCoordinator,
    errors.ConcurrentTransactions,
)
Steps = Generator[Request, Any, None]


class Fatal(Exception):
    """The application cannot go on and starts again."""


class Application:
    """Sends one request after the other, and each of them until it has an answer."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.random = cluster.random
        self.is_open = True
        self.is_done = False
        self._life = 0
        self.start()

    def work(self) -> Steps:
        """Yield requests, and get their answers."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin anew. Requests of an earlier life may still arrive."""
        self._life += 1
        steps = self.work()
        self._go_on(steps, None, self._life)

    def _go_on(self, steps: Steps, answer: Any, life: int) -> None:
        if life != self._life:
            return
        try:
            request = steps.send(answer)
        except StopIteration:
            self.is_done = True
        except Fatal:
            self.cluster.after(PAUSE, self.start)
        else:
            self._send(steps, request, life)

    def _send(self, steps: Steps, request: Any, life: int) -> None:
        if life != self._life:
            return
        leader = self._leader(request.partition)
        again = partial(self._send, steps, request, life)

        def answered(answer: Any) -> None:
            code = getattr(answer, "error_code", 0)
            error = errors.error_class(code)("") if isinstance(code, int) and code else answer
            if isinstance(error, _TRY_AGAIN) or not isinstance(error, int | tuple | errors.KafkaError):
                self.cluster.after(PAUSE, again)
            else:
                pause = self.random.expovariate(1 / PAUSE) if self.is_open else 0
                self.cluster.after(pause, partial(self._go_on, steps, error, life))

        if leader == NO_LEADER:
            self.cluster.after(PAUSE, again)
        else:
            self.cluster.call(None, leader, request, PATIENCE, answered)

    def _leader(self, index: int) -> int:
        alive = list(self.cluster.alive())
        topic = self.random.choice(alive).image.topics.get(self.cluster.topic) if alive else None
        return NO_LEADER if topic is None else topic.states[index].leader


class Committer(Application):
    """Commits an offset of one partition after the other."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.partition = 0
        self.known: set[int] = set()
        """The partitions whose commit was acknowledged or read."""
        super().__init__(cluster)

    def work(self) -> Steps:
        while self.is_open:
            self.partition += 1
            offsets = ((INPUT, self.partition, 7, -1, "", None),)
            yield Coordinate(OFFSETS, "commit", groups.CommitRequest(self.name, offsets=offsets))
            self.known.add(self.partition)
        missing = self.known - (yield from self.read())
        if missing and not self.cluster.invariants.is_lossy:
            raise Violation(COMMITS_LAST, f"{self.name} has lost the committed offsets of {sorted(missing)}")

    def read(self) -> Generator[Request, Any, set[int]]:
        """Return the partitions that have an offset."""
        topics = (groups.TopicToFetch(INPUT, tuple(range(1, self.partition + 1))),)
        answer = yield Coordinate(OFFSETS, "fetch", groups.FetchRequest(self.name, topics))
        return {each.partition for each in answer.partitions if each.offset >= 0}


class Reader(Application):
    """Reads the offsets that a committer commits. They may be old, but what was read must stay."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        super().__init__(committer.cluster)

    def work(self) -> Steps:
        while self.is_open:
            self._committer.known |= yield from self._committer.read()


@dataclass
class Attempt:
    """A transaction that was begun."""

    values: list[tuple[str, int]] = field(default_factory=list)
    told: bool | None = None
    """Whether it was told that it is committed (True) or aborted (False)."""


class Transactor(Application):
    """Writes in transactions, and is killed now and then."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.attempts: list[Attempt] = []
        self._values = 0
        super().__init__(cluster)
        cluster.after(self.random.randrange(1_000, 6_000), self._die)

    def _die(self) -> None:
        if self.is_open:
            self.cluster.say(f"{self.name} is killed")
            self.start()
            self.cluster.after(self.random.randrange(1_000, 8_000), self._die)

    def work(self) -> Steps:
        answer = yield from self._ask(Coordinate(STATE, "init_producer_id", m.InitRequest(self.name, TIMEOUT)))
        producer = (answer.producer_id, answer.producer_epoch)
        while self.is_open:
            attempt = Attempt()
            self.attempts.append(attempt)
            sequences = dict.fromkeys(DATA, 0)
            for _ in range(self.random.randint(1, 3)):
                self._values += 1
                value, index = (self.name, self._values), self.random.choice(DATA)
                attempt.values.append(value)
                yield from self._ask(Write(index, self.name, *producer, sequences[index], value))
                sequences[index] += 1
            commits = self.random.random() < 0.75
            ended = yield from self._ask(
                Coordinate(STATE, "end", m.EndRequest(self.name, *producer, commits, m.SECOND_VERSION))
            )
            attempt.told = commits
            producer = (ended.producer_id, ended.producer_epoch)

    def _ask(self, request: Request) -> Generator[Request, Any, Any]:
        answer = yield request
        if isinstance(answer, errors.KafkaError):
            raise Fatal
        return answer


class Applications:
    """All applications of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.transactors = [Transactor(cluster, f"copy-{number}") for number in range(2)]
        committer = Committer(cluster, "group")
        self._all: list[Application] = [*self.transactors, committer, Reader(committer)]

    def stop(self) -> None:
        """Let all of them finish what they do."""
        for application in self._all:
            application.is_open = False

    def unfinished(self) -> str | None:
        """Return what is not over yet, or None."""
        if not all(application.is_done for application in self._all):
            return f"{[application.is_done for application in self._all]} of the applications are done"
        for index in DATA:
            entries = self._log(index)
            unstable = producers_of(entries, index).first_unstable_offset(len(entries))
            if unstable is not None:
                return f"the transaction at {index}@{unstable} is open"
        return None

    def check(self) -> None:
        """Compare what readers see with what applications were told."""
        seen = [value for index in DATA for value in self._visible(index)]
        if len(set(seen)) < len(seen):
            raise Violation(ALL_OR_NOTHING, f"{sorted({each for each in seen if seen.count(each) > 1})} are seen twice")
        for transactor in self.transactors:
            for attempt in transactor.attempts:
                visible = [value for value in attempt.values if value in seen]
                if visible and visible != attempt.values:
                    raise Violation(ALL_OR_NOTHING, f"of {attempt.values} are seen {visible}")
                if attempt.told is not None and attempt.told != bool(visible):
                    raise Violation(ACKNOWLEDGED, f"{attempt.values}: committed {attempt.told}, seen {bool(visible)}")

    def _visible(self, index: int) -> list[Any]:
        open_: dict[int, list[Any]] = {}
        seen: list[Any] = []
        for entry in self._log(index):
            written = entry.value
            values = open_.setdefault(written.header.producer_id, [])
            if written.commits is None:
                values.append(written.value)
            else:
                seen += values if written.commits else ()
                values.clear()
        return seen

    def _log(self, index: int) -> list[Any]:
        leader = self.cluster.truth.topics[self.cluster.topic].states[index].leader
        log = self.cluster.hosts[leader].disk.logs[index]
        return log.read(0, log.log_end_offset)
