"""`deliver=exactly-once`: read_committed consumers see the rows of a micro-batch once, even if it is repeated.

Each task writes its rows in its own transaction and leaves it open; the driver decides and ends all of them. The steps
of one write (a prefix, a run, a batch number; transactional ids are ``<prefix>-<task index>``):

1. A task reads the ledger. If another run owns it, this run takes it over: older runs can no longer decide.
2. If the batch is not decided, the task takes over its id (which fences the previous owner and aborts its
   transaction), writes its rows, waits for all acknowledgements, and returns its `Prepared` numbers. On failure it
   aborts.
3. The driver checks that all transactions are still open, and writes to the ledger: decided, with these numbers.
4. It commits all of them. Then Spark records the end of the batch.

The ledger is a committed offset of the consumer group ``<prefix>``: the number of decided batches, with the run, the
batch and its transactions as metadata. It changes only in transactions of the id ``<prefix>``. Taking over that id,
reading and writing is atomic, because a concurrent takeover fences this one.

So the driver may die at any time. Before 3, nothing is decided, and the batch is written again; the next run aborts the
open transactions when it takes over the ledger. After 3, the next run finds the batch decided, writes nothing, and does
4. Only a decided transaction that the broker aborted (transaction.timeout.ms) must be written again, by the task with
the same index, which requires a plan that gives the same rows to the same tasks. docs/exactly-once.md lists all
failures; keep it up to date.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from ottla.clients.producer.prepared import ONGOING, Prepared, PreparingProducer, fate
from ottla.consuming.values import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.errors import (
    InvalidProducerEpoch,
    InvalidTransactionTimeout,
    InvalidTxnState,
    OttlaError,
    ProducerFenced,
    TransactionAbortable,
)
from ottla.spark.ledger import Ledger
from ottla.spark.options import OptionError, WriteOptions
from ottla.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("ottla.spark")
#: How long a step is retried after a concurrent takeover.
PATIENCE_SECONDS = 60.0
#: In a new run, the first task takes over the ledger; the others wait this long for it.
GIVE_WAY_SECONDS = 0.5
ABORT_SECONDS = 10.0
#: How long a killed Python worker may keep running (spark.python.task.killTimeout).
KILL_SECONDS = 2.5
_FENCED = (ProducerFenced, InvalidProducerEpoch, InvalidTxnState, TransactionAbortable)

_idle: dict[tuple[tuple[str, str], ...], list[PreparingProducer]] = {}


class NotDelivered(OttlaError):
    """A micro-batch could not be written exactly once; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Write:
    """The write that a task belongs to."""

    prefix: str
    run: str
    batch: int
    decides: bool = True
    """Whether the batch may be repeated, so that a ledger is needed."""

    def id_of(self, index: int) -> str:
        return f"{self.prefix}-{index}"


@dataclass
class Delivered(WriterCommitMessage):
    """The result of a task: rows written in a transaction, or nothing if they were delivered before."""

    write: Write
    index: int
    rows: int = 0
    topic: str = ""
    prepared: Prepared | None = None


# ── A task ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_task(
    options: WriteOptions,
    write: Write,
    index: int,
    tables: Iterator[tuple[str, pa.RecordBatch]],
) -> Delivered:
    """Write a task's rows in its transaction, unless they were delivered before."""
    first = next(tables, None)
    if first is None:
        return Delivered(write, index)
    topic = first[0]
    if write.decides and _is_delivered(options, write, index, topic):
        for _ in tables:  # Spark does not reuse a worker with unread input
            pass
        return Delivered(write, index, topic=topic)
    with _borrowed(options) as producer:
        _take_over(producer, write.id_of(index), options)
        producer.begin_transaction()
        rows = _send(producer, first, tables)
        return Delivered(write, index, rows, topic, producer.prepare())


def _send(
    producer: PreparingProducer, first: tuple[str, pa.RecordBatch], tables: Iterator[tuple[str, pa.RecordBatch]]
) -> int:
    from ottla.spark.sink import send_tables

    def all_tables() -> Iterator[tuple[str, pa.RecordBatch]]:
        yield first
        yield from tables

    return send_tables(producer.producer, all_tables())


def _is_delivered(options: WriteOptions, write: Write, index: int, topic: str) -> bool:
    ledger = _own_ledger(options, write, index, topic)
    if write.batch > ledger.batch:
        return False
    known = ledger.prepared.get(index) if write.batch == ledger.batch else None
    if known is None:
        return True
    with _borrowed(options) as producer:
        found = producer.describe([known.transactional_id])
    if fate(known, found[known.transactional_id]) != "lost":
        return True
    log.warning(
        "the transaction of task %d of batch %d was decided, but the broker aborted it: writing its rows again",
        index,
        write.batch,
    )
    return False


def _own_ledger(options: WriteOptions, write: Write, index: int, topic: str) -> Ledger:
    """The ledger, after this run has taken it over."""
    with _borrowed(options) as producer:
        producer.producer.partitions_for(topic)  # the ledger is stored under an existing topic
        give_way_until = time.monotonic() + (GIVE_WAY_SECONDS * random.uniform(1, 2) if index else 0)
        while True:
            # Not `_read`: a driver that died while deciding left a transaction, which only a takeover ends.
            ledger = Ledger.newest(write.prefix, producer.committed_offsets(write.prefix).values())
            if ledger.run == write.run:
                return ledger
            if time.monotonic() >= give_way_until:
                break
            time.sleep(0.01)
    left: list[Prepared] = []

    def take(found: Ledger, producer: PreparingProducer) -> Ledger | None:
        left.clear()
        if found.run == write.run:
            return None
        decided = set(found.prepared.values())
        left.extend(one for one in producer.open_transactions(write.prefix) if not _is_among(one, decided))
        return found.taken_by(write.run)

    ledger = _step(options, write, topic, take)
    if left:
        with _borrowed(options) as producer:
            # Epochs protect tasks of this run that have taken over an id in the meantime.
            producer.end(left, commit=False)
    return ledger


def _is_among(one: Prepared, decided: set[Prepared]) -> bool:
    numbers = (one.transactional_id, one.producer_id, one.producer_epoch)
    return any((each.transactional_id, each.producer_id, each.producer_epoch) == numbers for each in decided)


# ── The driver ───────────────────────────────────────────────────────────────────────────────────────────────────────


def commit_all(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Decide, and commit all transactions."""
    delivered = [one for one in messages if isinstance(one, Delivered)]
    topics = sorted(one.topic for one in delivered if one.topic)
    if not topics:
        return
    write = delivered[0].write
    new = {one.index: one.prepared for one in delivered if one.prepared is not None}
    if not write.decides:
        _commit(options, write, new.values())
        return
    ledger = decide(options, write, topics[0], new)
    if ledger.batch == write.batch:
        _commit(options, write, ledger.prepared.values())


def decide(options: WriteOptions, write: Write, topic: str, new: dict[int, Prepared]) -> Ledger:
    """Record in the ledger that these transactions deliver the batch; they will be committed."""

    def change(found: Ledger, producer: PreparingProducer) -> Ledger | None:
        if found.run != write.run:
            raise NotDelivered(
                f"another run of this query has taken over ({write.prefix}), so this run cannot decide batch "
                f"{write.batch}: run only one of them"
            )
        if found.batch > write.batch:
            return None
        decided = found.batch == write.batch
        prepared = {**found.prepared, **new} if decided else new
        states = producer.describe([one.transactional_id for one in prepared.values()])
        for index, one in prepared.items():
            became = fate(one, states[one.transactional_id])
            if became == "lost" or (became == "committed" and not decided):
                raise _lost(write, index, decided)
        return None if decided and prepared == found.prepared else found.decided(write.batch, prepared)

    return _step(options, write, topic, change)


def _lost(write: Write, index: int, decided: bool) -> NotDelivered:
    what = f"the transaction of task {index} of batch {write.batch} was aborted"
    if not decided:
        return NotDelivered(
            f"{what} before the batch was complete, so no rows of the batch are visible. If the batch took longer than "
            "kafka.transaction.timeout.ms, increase it (and the brokers' transaction.max.timeout.ms), or use smaller "
            "batches. If another attempt of the task took over, turn off spark.speculation"
        )
    return NotDelivered(
        f"{what} by the broker after the decision, and the repeated batch has no rows for this task, because its plan "
        "has changed. Run it once with the previous settings (partitions, cores)"
    )


def _commit(options: WriteOptions, write: Write, prepared: Iterable[Prepared]) -> None:
    with _borrowed(options) as producer:
        errors = {name: error for name, error in producer.end(prepared, commit=True).items() if error is not None}
    for name, error in errors.items():
        raise NotDelivered(
            f"could not commit transaction {name} of batch {write.batch}: {type(error).__name__}: {error} "
            "The rest of the batch is committed when the query is started again"
        ) from error


def abort_all(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], write: Write | None = None
) -> None:
    """Abort the transactions of a failed job, unless the batch was decided before the failure.

    Spark has no messages of killed tasks, some of which may have finished. If `write` is unknown, their transactions
    are left to the next run, or to transaction.timeout.ms.
    """
    delivered = [one for one in messages if isinstance(one, Delivered)]
    write = write or next((one.write for one in delivered), None)
    if write is None:
        return
    prepared = [one.prepared for one in delivered if one.prepared is not None]
    missing = sorted(set(range(len(messages))) - {one.index for one in delivered})
    try:
        if write.decides and not _is_undecided(options, write):
            return
        with _borrowed(options) as producer:
            producer.end(prepared, commit=False)
            _fence(producer, {write.id_of(index) for index in missing}, 0 if write.decides else KILL_SECONDS)
    except OttlaError as error:
        log.warning("could not abort all transactions of batch %d: %s", write.batch, error)


def _fence(producer: PreparingProducer, ids: set[str], seconds: float) -> None:
    """Abort the transactions of tasks without a message. They may still be running, so wait up to `seconds` if no later
    run would abort them."""
    deadline = time.monotonic() + seconds
    while ids:
        for name, found in producer.describe(ids).items():
            if found is not None and found.state == ONGOING:
                producer.take_over(name)
                ids.discard(name)
            elif found is not None and found.state == "CompleteAbort":
                ids.discard(name)
        if time.monotonic() >= deadline:
            return
        time.sleep(0.1)


def _is_undecided(options: WriteOptions, write: Write) -> bool:
    """Whether this run can still abort the batch; fences a decision in progress."""
    found = _step(options, write, "", lambda ledger, producer: None)
    return found.run == write.run and found.batch < write.batch


# ── The ledger ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _read(producer: PreparingProducer, write: Write) -> Ledger:
    return Ledger.newest(write.prefix, producer.stable_offsets(write.prefix).values())


def _step(
    options: WriteOptions,
    write: Write,
    topic: str,
    change: Callable[[Ledger, PreparingProducer], Ledger | None],
) -> Ledger:
    """Read and change the ledger atomically; returns the new ledger. `change` returns None for no change."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with _borrowed(options) as producer:
                _take_over(producer, write.prefix, options)
                found = _read(producer, write)
                changed = change(found, producer)
                if changed is None:
                    return found
                producer.begin_transaction()
                committed = OffsetAndMetadata(changed.batch + 1, changed.to_metadata())
                group = ConsumerGroupMetadata(write.prefix)
                producer.send_offsets_to_transaction({TopicPartition(topic, 0): committed}, group)
                producer.commit_transaction()
                return changed
        except _FENCED:
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.02, 0.2))


def _take_over(producer: PreparingProducer, transactional_id: str, options: WriteOptions) -> None:
    try:
        producer.take_over(transactional_id)
    except InvalidTransactionTimeout as error:
        raise OptionError(
            f"the broker rejects a transaction timeout of {options.producer_config()['transaction.timeout.ms']} ms: "
            "set kafka.transaction.timeout.ms to at most its transaction.max.timeout.ms, or increase the latter"
        ) from error


# ── Producers ────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _borrowed(options: WriteOptions) -> Iterator[PreparingProducer]:
    """Borrow an idle producer of this process; after an error it is closed, which aborts."""
    config = options.producer_config()
    kept = _idle.setdefault(tuple(sorted(config.items())), [])
    producer = kept.pop() if kept else PreparingProducer(config)
    try:
        yield producer
    except BaseException:
        producer.close(ABORT_SECONDS)
        raise
    kept.append(producer)


def close_idle() -> None:
    """Close the idle producers of this process."""
    while _idle:
        for producer in _idle.popitem()[1]:
            producer.close(0)
