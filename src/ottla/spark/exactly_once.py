"""`deliver=exactly-once`: the rows of a micro-batch appear once to read_committed readers, however often it is run.

Each task writes its rows in a transaction of its own and leaves it open; the driver decides and ends them all. Who
does what, for one write (a prefix, a run, a batch number; ids are ``<prefix>-<index of the task>``):

1. A task reads the ledger. If another run has it, this run takes it: from then on no older run can decide anything.
2. If the batch is not decided, the task takes over its id (which fences and aborts whoever had it), writes its
   rows, waits for all acknowledgements, and returns its `Prepared` numbers. A task that fails aborts.
3. The driver looks whether all of them are still open, and writes into the ledger: decided, with these numbers.
4. It commits every one of them. Spark notes the end of the batch.

The ledger is the value of one consumer group, ``<prefix>``: a committed offset (the number of decided batches) whose
metadata names the run, the batch and its transactions. It is changed in transactions of the id ``<prefix>`` only:
taking that id over, reading and writing is one step, because whoever takes it over meanwhile fences this one.

So a driver may die anywhere. Before 3 nothing is decided, and the batch is written anew; the open transactions of
before are aborted when the next run takes the ledger. After 3 the next run finds the batch decided, writes nothing,
and does 4. Only a decided transaction that the broker aborted (transaction.timeout.ms) has to be written again, by the
task of the same index: that needs a plan that gives the same rows to the same tasks. What can go wrong where
is in docs/exactly-once.md; a change of a step here changes that page.
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
#: Somebody else was faster: the step is tried again, for so long.
PATIENCE_SECONDS = 60.0
#: All tasks of a new run find that they have no ledger. The first one takes it; the others wait for that, so long.
GIVE_WAY_SECONDS = 0.5
ABORT_SECONDS = 10.0
#: A Python worker whose task is killed has some time to end (spark.python.task.killTimeout).
KILL_SECONDS = 2.5
_FENCED = (ProducerFenced, InvalidProducerEpoch, InvalidTxnState, TransactionAbortable)

_idle: dict[tuple[tuple[str, str], ...], list[PreparingProducer]] = {}


class NotDelivered(OttlaError):
    """A micro-batch could not be written exactly once; what is to be done is in the message."""


@dataclass(frozen=True, slots=True)
class Write:
    """Which write a task belongs to."""

    prefix: str
    run: str
    batch: int
    decides: bool = True
    """Whether the batch may come again, so that a ledger is needed."""

    def id_of(self, index: int) -> str:
        return f"{self.prefix}-{index}"


@dataclass
class Delivered(WriterCommitMessage):
    """What a task has done: rows that it wrote in a transaction, or nothing, if that was done before."""

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
    """Write what a task has in its transaction, unless that was delivered before. `tables` is by topic."""
    first = next(tables, None)
    if first is None:
        return Delivered(write, index)
    topic = first[0]
    if write.decides and _is_delivered(options, write, index, topic):
        for _ in tables:  # a worker that leaves its input unread is not used again
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
        "the transaction of task %d of batch %d was decided, but the broker has aborted it: its rows are written again",
        index,
        write.batch,
    )
    return False


def _own_ledger(options: WriteOptions, write: Write, index: int, topic: str) -> Ledger:
    """The ledger, after this run has taken it."""
    with _borrowed(options) as producer:
        producer.producer.partitions_for(topic)  # the ledger is kept under a topic that exists
        give_way_until = time.monotonic() + (GIVE_WAY_SECONDS * random.uniform(1, 2) if index else 0)
        while True:
            # Not `_read`: a driver that died while it decided has left a transaction, and only taking over ends it.
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
            # By their epochs: a task of this run may have taken over an id meanwhile, and is not meant.
            producer.end(left, commit=False)
    return ledger


def _is_among(one: Prepared, decided: set[Prepared]) -> bool:
    numbers = (one.transactional_id, one.producer_id, one.producer_epoch)
    return any((each.transactional_id, each.producer_id, each.producer_epoch) == numbers for each in decided)


# ── The driver ───────────────────────────────────────────────────────────────────────────────────────────────────────


def commit_all(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """All tasks are done: decide, and commit every transaction."""
    told = [one for one in messages if isinstance(one, Delivered)]
    topics = sorted(one.topic for one in told if one.topic)
    if not topics:
        return
    write = told[0].write
    new = {one.index: one.prepared for one in told if one.prepared is not None}
    if not write.decides:
        _commit(options, write, new.values())
        return
    ledger = decide(options, write, topics[0], new)
    if ledger.batch == write.batch:
        _commit(options, write, ledger.prepared.values())


def decide(options: WriteOptions, write: Write, topic: str, new: dict[int, Prepared]) -> Ledger:
    """Write down that the batch is delivered by these transactions; nothing but a commit can follow."""

    def change(found: Ledger, producer: PreparingProducer) -> Ledger | None:
        if found.run != write.run:
            raise NotDelivered(
                f"another run of this query has taken over ({write.prefix}), so that this one may not decide about "
                f"batch {write.batch}: let only one of them run"
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
            f"{what} before the batch was complete, and nothing of the batch counts. Either the batch took longer than "
            "kafka.transaction.timeout.ms: raise it (and transaction.max.timeout.ms of the brokers), or make "
            "batches smaller. Or another attempt of the task took over: leave spark.speculation off"
        )
    return NotDelivered(
        f"{what} by the broker after it had been decided, and the repeated batch has no rows for this task: its plan "
        "is another one than before. Run it once with the settings of before (partitions, cores)"
    )


def _commit(options: WriteOptions, write: Write, prepared: Iterable[Prepared]) -> None:
    with _borrowed(options) as producer:
        errors = {name: error for name, error in producer.end(prepared, commit=True).items() if error is not None}
    for name, error in errors.items():
        raise NotDelivered(
            f"the transaction {name} of batch {write.batch} could not be committed: {type(error).__name__}: {error} "
            "What is left of the batch is committed when the query is started again"
        ) from error


def abort_all(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], write: Write | None = None
) -> None:
    """The job has failed: nothing of it may count, unless it was decided before it failed.

    Spark has no message of tasks that it killed, some of which had finished. If nothing tells which `write` it was,
    they are left to the next run, or to transaction.timeout.ms.
    """
    told = [one for one in messages if isinstance(one, Delivered)]
    write = write or next((one.write for one in told), None)
    if write is None:
        return
    prepared = [one.prepared for one in told if one.prepared is not None]
    untold = sorted(set(range(len(messages))) - {one.index for one in told})
    try:
        if write.decides and not _is_undecided(options, write):
            return
        with _borrowed(options) as producer:
            producer.end(prepared, commit=False)
            _fence(producer, {write.id_of(index) for index in untold}, 0 if write.decides else KILL_SECONDS)
    except OttlaError as error:
        log.warning("transactions of batch %d were left open: %s", write.batch, error)


def _fence(producer: PreparingProducer, ids: set[str], seconds: float) -> None:
    """Abort what tasks without a message have open. They may live on for a while, and where no later run would find
    what they write, it is waited for."""
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
    """Whether this run may still say that the batch does not count; a decision that is under way is fenced by it."""
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
    """Read the ledger and change it, with nobody in between; None changes nothing. What holds after it."""
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
            f"the broker allows no transaction of {options.producer_config()['transaction.timeout.ms']} ms: set "
            "kafka.transaction.timeout.ms to at most its transaction.max.timeout.ms, or raise that"
        ) from error


# ── Producers ────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _borrowed(options: WriteOptions) -> Iterator[PreparingProducer]:
    """A producer of this process that nobody uses now; one that went through an error is closed, and aborts."""
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
    """Close the producers that this process keeps."""
    while _idle:
        for producer in _idle.popitem()[1]:
            producer.close(0)
