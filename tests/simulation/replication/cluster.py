"""A cluster in virtual time: machines with disks and clocks, a network that delays, loses and cuts, and ZooKeeper.

Everything follows from the seed. A request may arrive after its sender has given up, also at a later life of the
broker that it was sent to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

from tests.simulation.replication.broker import Broker
from tests.simulation.replication.controller import Operation
from tests.simulation.replication.disks import Disk
from tests.simulation.replication.invariants import Invariants
from tests.simulation.replication.messages import AlterPartition, Fetch, Request
from tests.simulation.replication.replica import Replica
from tests.simulation.replication.zookeeper import ZooKeeper

from ottla.metadata import Metadata
from ottla.metadata.values import ReplicationSettings, Topic

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
LOST = object()
"""What a caller gets if no answer comes in time."""


@dataclass
class Options:
    """The shape of a cluster, by the seed."""

    brokers: int
    partitions: int
    replication_factor: int
    min_isr: int
    unclean: bool = False
    """Whether unclean elections are allowed. Then committed records may be lost."""
    boot_ids: bool = False
    """Whether brokers can tell that only their process was killed. Then they have lost nothing."""

    @classmethod
    def choose(cls, random: Random, *, unclean: bool) -> Options:
        brokers = random.choice([3, 3, 3, 4, 5])
        factor = random.choice([3, 3, 3, 3, 2, 4 if brokers > 3 else 3])
        partitions, min_isr = random.choice([1, 1, 2]), random.choice([1, 2, 2, 2, factor])
        return cls(brokers, partitions, factor, min_isr, unclean, boot_ids=random.random() < 0.5)


@dataclass
class Host:
    """A machine. At most one broker runs on it at a time."""

    broker_id: int
    disk: Disk = field(default_factory=Disk)
    broker: Broker | None = None
    suspected: set[int] = field(default_factory=set)
    """The partitions whose ISR it has not joined again since its broker ended uncleanly."""
    lost: set[int] = field(default_factory=set)
    """Those of them where it may have lost records."""

    @property
    def is_up(self) -> bool:
        return self.broker is not None and self.broker.is_alive


@dataclass
class Weather:
    """The fault rates of the network."""

    lost: float = 0.0
    slow: float = 0.0
    slow_proposals: float = 0.0
    """How often a proposal of an ISR is late, so that the world has changed when it arrives."""
    slow_fetches: float = 0.0


class Call:
    """A request on its way, and its answer."""

    __slots__ = ("_cluster", "_is_done", "_on_answer", "_request", "_source", "_target")

    def __init__(
        self, cluster: Cluster, source: Broker | None, target: int, request: Request, on_answer: Callable[[Any], None]
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._target = target
        self._request = request
        self._on_answer = on_answer
        self._is_done = False

    def arrive(self) -> None:
        cluster = self._cluster
        if cluster.is_cut(self._source, self._target):
            return
        broker = cluster.hosts[self._target].broker
        if broker is None or not broker.is_alive:
            self.answer(LOST)  # The port refuses connections.
        else:
            broker.do(partial(self._handle, broker))

    def _handle(self, broker: Broker) -> None:
        broker.handle(self._request, self.answer)

    def answer(self, answer: Any) -> None:
        """Send the answer. Answers to an earlier life of the sender are lost."""
        cluster = self._cluster
        if cluster.loses():
            return
        deliver = partial(self._deliver, answer)
        if self._source is None:
            cluster.after(cluster.latency(), deliver)
        else:
            self._source.after(cluster.latency(), deliver)

    def _deliver(self, answer: Any) -> None:
        if not self._cluster.is_cut(self._source, self._target, back=True):
            self.finish(answer)

    def finish(self, answer: Any) -> None:
        """Give the answer to the sender, once."""
        if not self._is_done:
            self._is_done = True
            self._on_answer(answer)


class Cluster:
    """Time, machines, network and ZooKeeper."""

    topic = "orders"
    topic_id = UUID(int=1)

    def __init__(self, seed: int, options: Options) -> None:
        self.random = Random(seed)
        self.options = options
        self.now = 0
        self.steps = 0
        self.trace: deque[tuple[int, str]] = deque(maxlen=3_000)
        self.weather = Weather()
        self.cuts: set[tuple[int, int]] = set()
        """The pairs of brokers between which messages are lost, from one to the other."""
        self.cut_from_zookeeper: set[int] = set()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self.truth = Metadata(self.settings)
        """What the whole metadata log says."""
        self.invariants = Invariants(self)
        self.zookeeper = ZooKeeper(self)
        self.on_lead: Callable[[Replica], None] = lambda replica: None
        self.on_resign: Callable[[Replica], None] = lambda replica: None
        self.hosts = {broker_id: Host(broker_id) for broker_id in range(1, options.brokers + 1)}

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def say(self, text: str) -> None:
        self.trace.append((self.now, text))

    def after(self, delay: float, event: Callable[[], None]) -> None:
        heappush(self._events, (self.now + (int(delay) if delay > 0 else 0), next(self._order), event))

    def run_until(self, end: int) -> None:
        """Run events until a time, and check the invariants after each."""
        events, invariants = self._events, self.invariants
        while events and events[0][0] <= end:
            at, _, event = heappop(events)
            self.now = at
            event()
            self.steps += 1
            if invariants.changed:
                invariants.check()
        self.now = end

    # ── the network ───────────────────────────────────────────────────────────────────────────────────────────────

    def latency(self) -> int:
        if self.random.random() < self.weather.slow:
            return self.random.randrange(50, 2_500)
        return self.random.randrange(1, 6)

    def loses(self) -> bool:
        return self.weather.lost > 0 and self.random.random() < self.weather.lost

    def is_cut(self, source: Broker | None, target: int, *, back: bool = False) -> bool:
        if source is None or not self.cuts:
            return False
        return ((target, source.broker_id) if back else (source.broker_id, target)) in self.cuts

    def call(
        self, source: Broker | None, target: int, request: Request, timeout: int, on_answer: Callable[[Any], None]
    ) -> None:
        """Send a request to a broker. ``on_answer`` gets the answer, or LOST. Clients have no source."""
        call = Call(self, source, target, request, on_answer)
        after = self.after if source is None else source.after
        after(timeout, partial(call.finish, LOST))
        if not self.loses():
            self.after(self.latency() + self._lateness(request), call.arrive)

    def _lateness(self, request: Request) -> int:
        if isinstance(request, AlterPartition):
            late = self.weather.slow_proposals
        elif isinstance(request, Fetch):
            late = self.weather.slow_fetches
        else:
            return 0
        return self.random.randrange(3_000) if late and self.random.random() < late else 0

    # ── brokers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def settings(self, topic: Topic) -> ReplicationSettings:
        return ReplicationSettings(int(topic.configs[MIN_ISR]), topic.configs[UNCLEAN] == "true")

    def start(self, host: Host) -> None:
        """Start the broker of a machine."""
        if not host.is_up:
            self.say(f"broker {host.broker_id} starts, after {'a clean' if host.disk.clean_epoch >= 0 else 'no'} stop")
            host.broker = Broker(self, host.broker_id, host.disk)

    def kill(self, host: Host, *, loses: bool) -> None:
        """Kill a broker, or take the power of its machine away: then it loses what is not flushed."""
        if host.broker is None or not host.broker.is_alive:
            return
        host.broker.kill()
        if loses or host.disk.life_epoch < 0:
            host.suspected = set(host.disk.logs)
        text = f"broker {host.broker_id} is killed"
        if loses:
            host.disk.life_epoch = -1
            host.lost = set(host.disk.logs)
            text += f" and loses {[(index, log.lose_unflushed()) for index, log in host.disk.logs.items()]}"
        self.say(text)
        self.invariants.host_changed()

    def alive(self) -> Iterable[Broker]:
        return [host.broker for host in self.hosts.values() if host.broker is not None and host.broker.is_alive]

    def contact_changed(self, broker_id: int) -> None:
        """The connection between a broker and ZooKeeper was cut or is back."""
        broker = self.hosts[broker_id].broker
        if broker is not None and broker.is_alive:
            broker.session.contact_changed()

    def administrate(
        self, operation: Operation, *args: Any, answer: Callable[[Any], None] = lambda response: None, **kwargs: Any
    ) -> bool:
        """Have the controller run an operation; return False if there is none."""
        for broker in self.alive():
            if broker.controller is not None and not broker.is_paused:
                broker.controller.run(operation, *args, answer=answer, **kwargs)
                return True
        return False

    def leads(self, replica: Replica, begins: bool) -> None:
        """A replica leads now."""
        if begins:
            state = self.truth.topics[self.topic].states[replica.index]
            self.say(
                f"broker {replica.broker.broker_id} leads {replica.index} from {replica.log.log_end_offset} on; {state}"
            )
