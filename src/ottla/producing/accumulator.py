"""The records that wait to be sent: a queue of batches per partition, of which the last may still grow.

    append ──> open batch of the partition ──(full, or linger.ms over)──> ready ──> drain ──> in flight ──> finished
                                                                            ^                    │
                                                                            └──── again ─────────┘

The shell calls everything here under one lock. Only the fast path (`ottla.records.builder`) appends without it,
and only to an open batch: `close` ends that before anything else uses the batch.

A muted partition is not drained. The incomplete set holds every unfinished batch: `flush` waits for those that are in
it when it is called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ottla.producing.batch import Batch, is_before
from ottla.producing.buffer_pool import BufferPool, Ticket
from ottla.producing.values import EncodedBatch, View
from ottla.records.builder import Lanes
from ottla.records.compression import Packer
from ottla.records.header import BATCH_OVERHEAD
from ottla.records.values import Headers, Record
from ottla.types import BrokerId, Millis, TopicPartition

MakeBatch = Callable[..., Batch]
Backoff = Callable[[int], Millis]
"""How long to wait before the n-th retry."""
_VARINTS = 5 + 1 + 10 + 5 + 5 + 5 + 5


class Queue:
    """The batches of one partition that wait to be sent."""

    __slots__ = ("batches", "lanes", "muted", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, lanes: Lanes | None) -> None:
        self.topic_partition = topic_partition
        self.lanes = lanes
        self.batches: deque[Batch] = deque()
        self.muted = False


_NO_QUEUES: dict[int, Queue] = {}


@dataclass(slots=True)
class Appended:
    """Where a record went."""

    batch: Batch
    index: int
    new_batch: bool
    filled: bool = False
    """Another batch had no room for the record."""


@dataclass(slots=True)
class Ready:
    """The brokers that something can be sent to, and when to check again."""

    nodes: list[BrokerId] = field(default_factory=list)
    wait: Millis | None = None
    leaderless: set[str] = field(default_factory=set)
    """Topics with a batch for a partition without a known leader."""


class Accumulator:
    """All queues, and the memory that their batches take."""

    def __init__(
        self,
        *,
        batch_size: int,
        linger_ms: Millis,
        buffer_memory: int,
        delivery_timeout_ms: Millis,
        backoff: Backoff,
        make_batch: MakeBatch = Batch,
        packer: Packer | None = None,
    ) -> None:
        self.batch_size = batch_size
        self.linger_ms = linger_ms
        self.delivery_timeout_ms = delivery_timeout_ms
        self.pool = BufferPool(buffer_memory, max(batch_size, 1))
        self.incomplete: dict[Batch, None] = {}
        self.closing = False
        self._flushes = 0
        self._backoff = backoff
        self._make_batch = make_batch
        self._packer = packer
        self._lanes: dict[str, Lanes] = {}
        self._queues: dict[TopicPartition, Queue] = {}
        self._of_topic: dict[str, dict[int, Queue]] = {}
        self._waiting: dict[TopicPartition, Queue] = {}
        self._by_node: dict[BrokerId, list[Queue]] = {}
        self._by_node_of: tuple[View | None, int] = (None, 0)
        self._drain_from: dict[BrokerId, TopicPartition] = {}
        self._granted: list[Ticket] = []

    # Appending.

    def add_topic(self, lanes: Lanes) -> None:
        """Use these lanes from now on, because the topic is new or has more partitions."""
        old = self._lanes.get(lanes.topic)
        self._lanes[lanes.topic] = lanes
        for key, queue in self._queues.items():
            if key.topic == lanes.topic:
                queue.lanes = lanes
                lanes.open(key.partition, old.opened(key.partition) if old is not None else None)

    def size_for(self, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        """The maximum size of a batch with only this record."""
        size = BATCH_OVERHEAD + _VARINTS + len(key or b"") + len(value or b"")
        for name, content in headers:
            size += 10 + (1 if name.isascii() else 4) * len(name) + len(content or b"")
        return size

    def append(
        self,
        topic_partition: TopicPartition,
        timestamp: Millis,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        *,
        now: Millis,
        ticket: Ticket | None = None,
    ) -> Appended | Ticket:
        """Append a record, or return a ticket if memory is out: repeat the call with it once it is granted."""
        queue = self._queue(topic_partition)
        last = queue.batches[-1] if queue.batches else None
        if last is not None and (index := last.append(timestamp, key, value, headers)) >= 0:
            if ticket is not None:
                self.give_up(ticket)
            return Appended(last, index, False)
        if last is not None:
            self.full(last)
        memory = max(self.batch_size, self.size_for(key, value, headers))
        ticket = self.pool.reserve(memory, now=now) if ticket is None else ticket
        if not ticket.granted:
            return ticket
        batch = self._make_batch(topic_partition, self.pool.buffer(ticket.size), memory=ticket.size, now=now)
        try:
            index = batch.append(timestamp, key, value, headers)
        except BaseException:
            # A record that cannot be encoded takes no memory.
            self.give_up(ticket)
            raise
        self._enqueue(queue, batch)
        if queue.lanes is not None:
            queue.lanes.open(topic_partition.partition, batch)
        return Appended(batch, index, True, filled=last is not None)

    def begin_batch(self, topic: str, partition: int, *, now: Millis) -> Batch | None:
        """Open a new, empty batch of batch.size for a partition that has none with room; the caller appends at once.
        None if that needs the slow path, because memory is out or the partition is new."""
        pool = self.pool
        queue = self._of_topic.get(topic, _NO_QUEUES).get(partition)
        if queue is None or queue.lanes is None or pool.waiting or pool.available < self.batch_size:
            return None
        if queue.batches:
            self.full(queue.batches[-1])
        pool.take(self.batch_size)
        batch = self._make_batch(queue.topic_partition, pool.buffer(self.batch_size), memory=self.batch_size, now=now)
        self._enqueue(queue, batch)
        queue.lanes.open(partition, batch)
        return batch

    def append_batch(self, encoded: EncodedBatch, *, now: Millis, ticket: Ticket | None = None) -> Appended | Ticket:
        """Append a batch of encoded records. Header, numbers, compression and CRC are added when it is drained.

        As with `append`, a ticket means that memory is out.
        """
        payload, framed = encoded.payload, encoded.framed
        if framed and not isinstance(payload, bytearray):
            raise TypeError(f"a framed payload must be a bytearray, not {type(payload).__name__}")
        memory = len(memoryview(payload)) + (0 if framed else BATCH_OVERHEAD)
        ticket = self.pool.reserve(memory, now=now) if ticket is None else ticket
        if not ticket.granted:
            return ticket
        queue = self._queue(encoded.topic_partition)
        buffer = payload if isinstance(payload, bytearray) and framed else self.pool.buffer(ticket.size)
        batch = self._make_batch(encoded.topic_partition, buffer, memory=ticket.size, now=now)
        batch.fill(None if framed else payload, encoded.records, encoded.base_timestamp, encoded.max_timestamp)
        if queue.batches:
            self.full(queue.batches[-1])
        self.full(batch)
        self._enqueue(queue, batch)
        return Appended(batch, 0, True, filled=True)

    def full(self, batch: Batch) -> None:
        """Close a batch, and compress it while others wait to be sent."""
        batch.close()
        if self._packer is not None:
            batch.pack_ahead(self._packer)

    def give_up(self, ticket: Ticket) -> None:
        """Leave the queue for memory, because it took too long or an open batch has room now."""
        self._granted += self.pool.leave(ticket)

    def take_granted(self) -> list[Ticket]:
        """The tickets granted since the last call, whose owners must be woken."""
        granted, self._granted = self._granted, []
        return granted

    def _queue(self, key: TopicPartition) -> Queue:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue(key, self._lanes.get(key.topic))
            self._of_topic.setdefault(key.topic, {})[key.partition] = queue
        return queue

    def _enqueue(self, queue: Queue, batch: Batch) -> None:
        queue.batches.append(batch)
        self._waiting[queue.topic_partition] = queue
        self.incomplete[batch] = None

    # Sending.

    def ready(self, view: View, *, now: Millis) -> Ready:
        """The brokers that lead a partition with a batch that is full, old enough, wanted or being flushed."""
        ready = Ready()
        nodes: dict[BrokerId, None] = {}
        pressed = self.pool.waiting > 0 or self.closing or self._flushes > 0
        for key, queue in self._waiting.items():
            leader = view.leaders.get(key)
            if leader is None:
                ready.leaderless.add(key.topic)
            elif not queue.muted and leader not in nodes:
                wait = self._wait_of(queue, pressed, now=now)
                if wait <= 0:
                    nodes[leader] = None
                elif ready.wait is None or wait < ready.wait:
                    ready.wait = wait
        ready.nodes = list(nodes)
        return ready

    def _wait_of(self, queue: Queue, pressed: bool, *, now: Millis) -> Millis:
        first = queue.batches[0]
        if first.attempts:
            return first.retry_at - now
        if pressed or first.wanted or first.closed or len(queue.batches) > 1 or first.size >= self.batch_size:
            return 0
        return first.created + self.linger_ms - now

    def drain(
        self, node: BrokerId, view: View, max_bytes: int, must_wait: Callable[[Batch], bool], *, now: Millis
    ) -> list[Batch]:
        """At most one batch per partition for one request, starting after the partition where the last one ended."""
        batches: list[Batch] = []
        size = 0
        for queue in self._queues_of(node, view):
            if not queue.batches or queue.muted:
                continue
            first = queue.batches[0]
            if (first.attempts and first.retry_at > now) or must_wait(first):
                continue
            first.close()
            if batches and size + first.size > max_bytes:
                break
            size += first.size
            self._remove(queue, first)
            batches.append(first)
            self._drain_from[node] = queue.topic_partition
        return batches

    def _queues_of(self, node: BrokerId, view: View) -> Iterator[Queue]:
        if self._by_node_of[0] is not view or self._by_node_of[1] != len(self._queues):
            self._by_node = {}
            for key, queue in self._queues.items():
                if (leader := view.leaders.get(key)) is not None:
                    self._by_node.setdefault(leader, []).append(queue)
            self._by_node_of = (view, len(self._queues))
        queues = self._by_node.get(node, [])
        last = self._drain_from.get(node)
        start = next((index + 1 for index, queue in enumerate(queues) if queue.topic_partition is last), 0)
        yield from queues[start:]
        yield from queues[:start]

    def _remove(self, queue: Queue, batch: Batch) -> None:
        batch.close()
        queue.batches.remove(batch)
        if not queue.batches:
            del self._waiting[queue.topic_partition]
        if queue.lanes is not None and queue.lanes.opened(queue.topic_partition.partition) is batch:
            queue.lanes.open(queue.topic_partition.partition, None)

    def has_full(self, drained: Iterable[Batch]) -> bool:
        """Whether a partition that was just drained has another batch that need not wait."""
        for batch in drained:
            queue = self._queues[batch.topic_partition]
            if queue.batches and (len(queue.batches) > 1 or queue.batches[0].closed):
                return True
        return False

    def mute(self, key: TopicPartition) -> None:
        self._queue(key).muted = True

    def unmute(self, key: TopicPartition) -> None:
        self._queue(key).muted = False

    # Retries, expiry and outcomes.

    def again(self, batch: Batch, *, now: Millis) -> None:
        """Queue a batch for a retry, before everything that comes after it."""
        batch.attempts += 1
        batch.retry_at = now + self._backoff(batch.attempts)
        self._put_back(batch)

    def _put_back(self, batch: Batch) -> None:
        queue = self._queue(batch.topic_partition)
        place = 0
        if batch.has_sequence:
            for other in queue.batches:
                if not other.has_sequence or is_before(batch.base_sequence, other.base_sequence):
                    break
                place += 1
        queue.batches.insert(place, batch)
        self._waiting[queue.topic_partition] = queue
        self.incomplete[batch] = None

    def replace(self, batch: Batch, parts: Sequence[Batch]) -> None:
        """Queue the parts of a split batch. Their memory is not counted, because the whole batch released its own."""
        for part in reversed(parts):
            self._put_back(part)
        self.finished(batch)
        # The oldest must come first for `expired`.
        self.incomplete = dict.fromkeys(sorted(self.incomplete, key=lambda each: each.created))

    def rebuilt(self, batch: Batch, records: Sequence[Record]) -> Batch:
        """A batch of some records of another one, with the same age."""
        size = sum(self.size_for(record.key, record.value, record.headers) for record in records)
        part = self._make_batch(batch.topic_partition, bytearray(size), memory=0, now=batch.created)
        for record in records:
            part.append(record.timestamp, record.key, record.value, record.headers)
        part.close()
        return part

    def expired(self, *, now: Millis) -> list[Batch]:
        """The batches unfinished for longer than delivery.timeout.ms; those that wait are removed."""
        late: list[Batch] = []
        for batch in self.incomplete:
            if batch.age(now=now) < self.delivery_timeout_ms:
                break
            late.append(batch)
        for batch in late:
            queue = self._queues[batch.topic_partition]
            if batch in queue.batches:
                self._remove(queue, batch)
        return late

    def next_expiry(self, *, now: Millis) -> Millis | None:
        """How long until the oldest batch expires."""
        oldest = next(iter(self.incomplete), None)
        return None if oldest is None else max(0, oldest.created + self.delivery_timeout_ms - now)

    def drop_all(self, among: Callable[[TopicPartition], bool] = lambda partition: True) -> list[Batch]:
        """Remove everything that waits for these partitions, because it will not be sent."""
        dropped: list[Batch] = []
        for queue in list(self._waiting.values()):
            while queue.batches and among(queue.batches[0].topic_partition):
                dropped.append(queue.batches[0])
                self._remove(queue, queue.batches[0])
        return dropped

    def drop_unsent(self) -> list[Batch]:
        """Remove the batches that were never numbered; numbered ones that wait for a retry stay."""
        dropped: list[Batch] = []
        for queue in list(self._waiting.values()):
            for batch in [each for each in queue.batches if not each.has_sequence]:
                dropped.append(batch)
                self._remove(queue, batch)
        return dropped

    def finished(self, batch: Batch) -> None:
        """Release the memory of a finished batch to those who wait."""
        if batch in self.incomplete:
            del self.incomplete[batch]
            memory, batch.memory = batch.memory, 0
            # A buffer that a connection still reads from is not reused.
            buffer = None if batch.in_flight else batch.release()
            self._granted += self.pool.release(memory, buffer)

    # Flushing.

    def begin_flush(self) -> list[Batch]:
        """Send everything without waiting for more, until `end_flush`; returns the batches to wait for."""
        self._flushes += 1
        for queue in self._waiting.values():
            queue.batches[-1].close()
        return list(self.incomplete)

    def end_flush(self) -> None:
        self._flushes -= 1

    # For partitioners.

    def queue_lengths(self, topic: str, partitions: Iterable[int]) -> list[tuple[int, int]]:
        queues = self._of_topic.get(topic, {})
        return [(each, len(queues[each].batches) if each in queues else 0) for each in partitions]

    @property
    def has_waiting(self) -> bool:
        """Whether a batch waits to be sent."""
        return bool(self._waiting)
