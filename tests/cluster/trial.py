"""One trial of a cluster: clients of all kinds at work, faults meanwhile, and the judgement of the checker."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.crash.loads import AioKafkaLoad, ConfluentLoad, KafkaPythonLoad, Load, PlainConfluentLoad, Watcher

import ottla
from ottla.cluster.cluster import Cluster
from ottla.types import TopicPartition

from .checker import History, Read, check, summary
from .loads import CommitLoad, OttlaLoad, Reader, Recorder, TransactionLoad, read_replicas

PARTITIONS = 3
#: Sessions with ZooKeeper and ISR membership end soon, so that rounds are short.
BROKER = {
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "100",
    "replica.socket.timeout.ms": "3000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.min.session.timeout.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "leader.imbalance.check.interval.seconds": "3",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
}
OTHERS: Sequence[type[Load]] = (KafkaPythonLoad, AioKafkaLoad, PlainConfluentLoad)


class Trial:
    """Clients on fresh topics of a cluster, until `finish` tells what went wrong."""

    def __init__(self, cluster: Cluster, name: str, seed: int, *, others: Sequence[type[Load]] = OTHERS) -> None:
        self.cluster = cluster
        self.plain, self.atomic = f"plain-{name}", f"atomic-{name}"
        self.history = History(transactional={self.atomic})
        self.recorder = Recorder(self.history)
        servers = cluster.bootstrap_servers
        with ottla.Admin(bootstrap_servers=servers) as admin:
            for topic in (self.plain, self.atomic):
                admin.create_topics(ottla.NewTopic(topic, num_partitions=PARTITIONS, replication_factor=3))
        plain = [TopicPartition(self.plain, index) for index in range(PARTITIONS)]
        atomic = [TopicPartition(self.atomic, index) for index in range(PARTITIONS)]
        self.places = plain + atomic
        kinds: dict[str, type[Load]] = {"rdkafka": ConfluentLoad, "ottla": OttlaLoad}
        if others:
            other = others[seed % len(others)]
            kinds[other.__name__] = other
            if not other.exactly_once:
                self.history.at_least_once.add(other.__name__)
        self._loads = [kind(name, servers, plain, self.recorder, seed) for name, kind in kinds.items()]
        self._loads.append(TransactionLoad(f"tx-{name}", servers, atomic, self.recorder, seed))
        self._loads.append(CommitLoad(f"group-{name}", servers, plain[:1], self.recorder, seed))
        self._watcher = Watcher(servers, plain, self.recorder)
        self._reader = Reader("reader", servers, self.places, self.recorder)

    def start(self) -> None:
        for load in self._loads:
            load.may_send.set()
            load.start()
        self._watcher.start()
        self._reader.start()

    def halt(self) -> None:
        """Tell all clients to end, without waiting for them."""
        for load in self._loads:
            load.halt.set()

    @property
    def progress(self) -> tuple[int, int, int]:
        """How many records were acknowledged, transactions begun, and offsets committed."""
        commits = sum(map(len, self.history.commits.values()))
        return len(self.history.acked), len(self.history.transactions), commits

    def await_progress(self, seconds: float = 30) -> float:
        """Wait until all kinds of clients get on, and return how long it took."""
        before, started = self.progress, time.monotonic()
        while not all(now >= then + 2 for now, then in zip(self.progress, before, strict=True)):
            if time.monotonic() > started + seconds:
                self.recorder.problem(
                    f"no progress in {seconds:g} s: records, transactions and commits {before}, now {self.progress}"
                )
                break
            time.sleep(0.02)
        return time.monotonic() - started

    def finish(self) -> list[str]:
        """Stop the clients, read all replicas, and return what is wrong."""
        for load in self._loads:
            load.halt.set()
        for load in self._loads:
            load.finish()
        history = self.history
        try:
            self.cluster.wait_until_replicated(timeout=60)
        except ottla.OttlaError as error:
            self.recorder.problem(str(error))
        directories = {broker.id: broker.data_dir for broker in self.cluster.brokers.values()}
        history.replicas, ends, differences = read_replicas(directories, self.places)
        self._reader.finish(ends)
        self._finish_watcher(ends)
        return [*self.recorder.problems, *differences, *summary(check(history))]

    def _finish_watcher(self, ends: dict[TopicPartition, int]) -> None:
        deadline = time.monotonic() + 30
        seen = self._watcher.seen
        while any(len(seen[place]) < ends[place] for place in seen) and time.monotonic() < deadline:
            time.sleep(0.05)
        self._watcher.finish()
        for place, values in seen.items():
            if len(values) < ends[place]:
                self.recorder.problem(f"the watcher is at offset {len(values)} of {place}, not at {ends[place]}")
            self.history.reads["watcher", place] = [Read(offset, value) for offset, value in enumerate(values)]

    @property
    def checked(self) -> int:
        """How many records the checker has compared."""
        return sum(map(len, self.history.replicas.values())) + sum(map(len, self.history.reads.values()))
