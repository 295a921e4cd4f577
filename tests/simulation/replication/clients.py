"""Producers and consumers. They follow the metadata that some broker gives them, which may be old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.replication.messages import Produce, Read, ReadAnswer

from ottla.metadata.values import NO_LEADER

if TYPE_CHECKING:
    from tests.simulation.replication.cluster import Cluster

PATIENCE = 4_000


class Clients:
    """All producers and consumers of a cluster. Every record has its own number."""

    def __init__(self, cluster: Cluster, pause: int, *, reads_only: bool = False) -> None:
        """``pause`` is the mean time between two requests, in milliseconds."""
        self._writes = 0.0 if reads_only else 0.75
        self.cluster = cluster
        self.random = cluster.random
        self.is_open = True
        self.pending = 0
        self.acknowledged = 0
        self.refused = 0
        self._pause = pause
        self._next = 0
        cluster.after(0, self._work)

    def _work(self) -> None:
        if not self.is_open:
            return
        if self.random.random() < self._writes:
            self.produce()
        else:
            self._consume()
        self.cluster.after(self.random.expovariate(1 / self._pause), self._work)

    def produce(self) -> None:
        """Write a record."""
        index = self.random.randrange(self.cluster.options.partitions)
        if (target := self._leader(index)) is None:
            return
        self._next += 1
        self.pending += 1
        needs_all = self.random.random() < 0.8
        request = Produce(index, self._next, needs_all)
        self.cluster.call(None, target, request, PATIENCE, lambda answer: self._answered(request, answer))

    def _answered(self, request: Produce, answer: Any) -> None:
        self.pending -= 1
        if isinstance(answer, int) and request.needs_all:
            self.acknowledged += 1
            self.cluster.invariants.acknowledged(request.partition, answer, request.value)
        elif not isinstance(answer, int):
            self.refused += 1

    def _consume(self) -> None:
        index = self.random.randrange(self.cluster.options.partitions)
        replicas = self._replicas(index)
        if replicas:
            offset = max(0, len(self.cluster.invariants.committed[index]) - self.random.randrange(20))
            request = Read(index, offset)
            self.cluster.call(
                None, self.random.choice(replicas), request, PATIENCE, lambda answer: self._read(index, answer)
            )

    def _read(self, index: int, answer: Any) -> None:
        if isinstance(answer, ReadAnswer):
            self.cluster.invariants.read(index, answer)

    def _leader(self, index: int) -> int | None:
        """Return the leader as some broker knows it."""
        topic = self._topic()
        leader = NO_LEADER if topic is None else topic.states[index].leader
        return None if leader == NO_LEADER else leader

    def _replicas(self, index: int) -> tuple[int, ...]:
        topic = self._topic()
        return () if topic is None else topic.states[index].replicas

    def _topic(self) -> Any:
        alive = list(self.cluster.alive())
        return self.random.choice(alive).image.topics.get(self.cluster.topic) if alive else None
