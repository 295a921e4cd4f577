"""The core of a producer: it carries out what the machines of `ottla.producing` decide, on one event loop.

    any thread:  fast path ──> open batch;   slow path ──> append (under the lock) ──> wake
    the loop:    pump: Sender.poll ──> requests, connections, metadata, producer id ──> timer
                 response ──> Sender.answered ──> outcomes: callbacks, then futures ──> pump

Both clients (`asynchronous.py`, `blocking.py`) append through it. The lock guards the machines and is never held
while other code runs.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import random
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from ottla.clients.blocking import IllegalUse
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.retry import JITTER
from ottla.clients.producer.appending import Appender, now_ms
from ottla.clients.producer.identity import fetch_producer_id
from ottla.clients.producer.links import Links, read_results
from ottla.clients.producer.metrics import Counters
from ottla.clients.producer.packing import PackingThread
from ottla.clients.producer.topics import Topics
from ottla.clients.producer.transaction_requests import LAST_PRODUCE_OF_FIRST, carry_out
from ottla.config.producer import ProducerConfig
from ottla.errors import AuthenticationError, KafkaError, NetworkException, OttlaError
from ottla.producing.accumulator import Accumulator
from ottla.producing.batch import Batch
from ottla.producing.buffer_pool import Ticket
from ottla.producing.idempotence import Idempotence
from ottla.producing.sender import Finished, Request, Sender
from ottla.producing.transaction_states import State
from ottla.producing.transaction_values import Ask
from ottla.producing.transactions import SECOND, Transactions
from ottla.protocol.codec import Struct
from ottla.records.builder import Lanes
from ottla.records.compression import Compression, packs_ahead
from ottla.types import BrokerId, Millis

log = logging.getLogger("ottla.producer")


class ProducerCore:
    """The part of a producer that does not depend on how its callers wait."""

    def __init__(self, config: ProducerConfig, lanes: dict[str, Lanes], make_batch: Callable[..., Batch]) -> None:
        self.config = config
        self.lock = threading.Lock()
        self.counters = Counters()
        self.closed = False
        self.closing = False
        self._codec = Compression[config.compression_type.upper()]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Millis = 0
        self._identifying: asyncio.Task[None] | None = None
        self._progress: asyncio.Future[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self.set_fast: Callable[[bool], None] = lambda allowed: None
        """Enables or disables the fast path, which does not check transactions."""
        self._packing = PackingThread() if packs_ahead(self._codec, config.compression_level) else None
        self.accumulator = Accumulator(
            batch_size=config.batch_size,
            linger_ms=config.linger_ms,
            buffer_memory=config.buffer_memory,
            delivery_timeout_ms=config.delivery_timeout_ms,
            backoff=self._backoff,
            make_batch=make_batch,
            packer=None if self._packing is None else self._packing.packer,
        )
        self.transactions: Transactions | None = None
        if config.transactional_id is not None:
            self.transactions = Transactions(config.transactional_id, backoff=self._backoff)
        self.sender = Sender(
            self.accumulator,
            idempotence=self._numbers(),
            transactions=self.transactions,
            retries=config.retries,
            max_in_flight=config.max_in_flight_requests_per_connection,
            max_request_size=config.max_request_size,
            availability_timeout_ms=config.partitioner_availability_timeout_ms,
        )
        self.appender = Appender(self)
        self.cluster = Cluster.of(config)
        self.topics = Topics(config, self.cluster, lanes, self._adopt, self.wake, self._rejected)
        self._links = Links(
            config,
            self.cluster,
            self._codec,
            changed=self.wake,
            unreachable=self.topics.refresh_all_soon,
            rejected=self._rejected_by,
        )

    def _numbers(self) -> Idempotence | None:
        if self.transactions is not None:
            return self.transactions.numbers
        return Idempotence() if self.config.enable_idempotence else None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bind to this loop, from its own thread."""
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._process = os.getpid()
        _alive.add(self)
        if self._packing is not None:
            self._packing.start()

    def check_open(self) -> None:
        """IllegalUse if no more records can be sent."""
        if self.closing:
            raise IllegalUse("this producer is closed: create a new one")
        if self.transactions is not None:
            self.transactions.check_send()

    def allow_fast(self) -> None:
        """Called after every step of a transaction, since records are only accepted in one."""
        if self.transactions is not None:
            self.set_fast(self.transactions.state is State.IN_TRANSACTION and not self.closing)

    def rename(self, transactional_id: str) -> None:
        """Use another transactional id from now on; nothing may be in flight."""
        self.config = self._links.config = replace(self.config, transactional_id=transactional_id)

    def send_failed(self, error: Exception) -> None:
        """A record could not be appended, so its transaction would be incomplete."""
        if self.transactions is not None and isinstance(error, KafkaError):
            with self.lock:
                if self.transactions.state is State.IN_TRANSACTION:
                    self.transactions.batch_failed(error)
            self.allow_fast()

    @property
    def on_loop(self) -> bool:
        """Whether the caller is on the loop's own thread, where a wait would never end."""
        return threading.get_ident() == self._loop_thread

    def _backoff(self, attempt: int) -> Millis:
        config = self.config
        wait = min(config.retry_backoff_ms * 2 ** min(attempt - 1, 30), config.retry_backoff_max_ms)
        return int(wait * random.uniform(1 - JITTER, 1 + JITTER))

    # Sending: on the loop, except `wake`.

    def wake(self) -> None:
        """Schedule the pump; from any thread."""
        if self._woken or self._loop is None or self.closed:
            return
        self._woken = True
        try:
            if self.on_loop:
                self._loop.call_soon(self._pump)
            else:
                self._loop.call_soon_threadsafe(self._pump)
        except RuntimeError:
            # The loop is closed, so the pump will not run.
            self._woken = False
            raise

    def _pump(self) -> None:
        self._woken = False
        if self.closed or self._loop is None:
            return
        now = now_ms()
        with self.lock:
            self.sender.trouble = self.cluster.trouble
            plan = self.sender.poll(self.topics.view, self._links, now=now)
            granted = self.accumulator.take_granted()
        for request in plan.requests:
            self._transmit(request)
        self._tell(plan.finished, granted)
        for node in plan.connect:
            self._links.connect(node)
        if plan.refresh:
            self.topics.refresh_soon(plan.refresh)
        if plan.identify and self._identifying is None:
            self._identifying = self._loop.create_task(self._identify())
        if plan.ask is not None:
            self._asking = self._loop.create_task(self._ask(plan.ask))
        if self.transactions is not None:
            self._transaction_moved()
        if plan.wait is not None:
            self._come_again(plan.wait, now=now)

    async def _ask(self, ask: Ask) -> None:
        assert self.transactions is not None
        answer = await carry_out(self.cluster, self.config, ask)
        if answer.error is not None and self.cluster.never_reached:
            self.topics.warn_of(answer.error)
        with self.lock:
            self.transactions.answered(ask, answer, now=now_ms())
        self._transaction_moved()
        self.wake()

    def _transaction_moved(self) -> None:
        self.allow_fast()
        self._made_progress()

    def _come_again(self, wait: Millis, *, now: Millis) -> None:
        assert self._loop is not None
        at = now + wait
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_later(max(wait, 1) / 1000, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.wake()

    def _transmit(self, request: Request) -> None:
        self.counters.sent(request)
        try:
            first = self.transactions is not None and self.transactions.version < SECOND
            answer = self._links.send(request, last_version=LAST_PRODUCE_OF_FIRST if first else None)
        except OttlaError as error:
            self._landed(partial(self.sender.lost, request, _as_kafka_error(error)))
            return
        answer.add_done_callback(partial(self._on_answer, request))

    def _on_answer(self, request: Request, answer: asyncio.Future[Struct | None]) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if error is not None:
            self._landed(partial(self.sender.lost, request, _as_kafka_error(error)))
            return
        response = answer.result()
        self.counters.answered(request, now=now_ms())
        if response is None:
            self._landed(partial(self.sender.unanswered, request))
            return
        results = read_results(response, self.topics.names)
        self._landed(partial(self.sender.answered, request, results))

    def _landed(self, take: Callable[..., list[Finished]]) -> None:
        with self.lock:
            finished = take(now=now_ms())
            granted = self.accumulator.take_granted()
            idle = self.sender.is_idle
        self._tell(finished, granted)
        if not idle:
            self.wake()

    def _rejected_by(self, node: BrokerId, error: AuthenticationError) -> None:
        """A broker rejected this client. What waits for it fails; the next record tries again."""
        leaders = self.topics.view.leaders
        self._landed(partial(self.sender.rejected, error, lambda partition: leaders.get(partition) == node))

    def _rejected(self, error: AuthenticationError) -> None:
        """No broker gives metadata to this client. What has no leader to go to fails."""
        leaders = self.topics.view.leaders
        self._landed(partial(self.sender.rejected, error, lambda partition: partition not in leaders))

    def _tell(self, finished: Iterable[Finished], granted: Iterable[Ticket]) -> None:
        """Finish batches: callbacks in the order of the records, then waiting callers."""
        told = False
        for outcome in finished:
            told = True
            batch = outcome.batch
            self.counters.finished(outcome)
            callbacks, watchers = batch.finish(outcome.base_offset, outcome.log_append_time, outcome.error)
            while callbacks:
                future, callback = callbacks.pop(0)
                metadata = batch.metadata(future.batch.locate(future.index)[1], future)
                call_safely(callback, None if outcome.error is not None else metadata, outcome.error)
            while watchers:
                future, watcher = watchers.pop(0)
                call_safely(watcher, future)
        if told:
            self._made_progress()
        self.appender.wake_owners(granted)

    def _made_progress(self) -> None:
        progress, self._progress = self._progress, None
        if progress is not None and not progress.done():
            progress.set_result(None)

    async def _identify(self) -> None:
        """Get a producer id, which every request needs."""
        try:
            producer_id, producer_epoch = await fetch_producer_id(self.cluster, self.config, self._backoff)
        except AuthenticationError as error:
            self._identifying = None
            self._landed(partial(self.sender.rejected, error))
            return
        except KafkaError as error:
            self._fatal(error)
            return
        with self.lock:
            if self.sender.idempotence is not None:
                self.sender.idempotence.identify(producer_id, producer_epoch)
        self._identifying = None
        self.wake()

    def _fatal(self, error: KafkaError) -> None:
        told = type(error)(
            f"no producer id is available: {error} An idempotent producer needs one; enable.idempotence=false does not."
        )
        with self.lock:
            self.sender.fatal = told
        self.wake()

    def _adopt(self, lanes: Lanes) -> None:
        """Use a topic that is new or has more partitions."""
        with self.lock:
            self.accumulator.add_topic(lanes)

    @property
    def unfinished(self) -> int:
        """How many records have no outcome yet."""
        return sum(batch.count for batch in list(self.accumulator.incomplete))

    def metrics(self) -> dict[str, float]:
        """Metrics with Kafka's names; from any thread."""
        pool = self.accumulator.pool
        return self.counters.as_metrics() | {
            "record-retry-total": self.sender.retried,
            "requests-in-flight": self.sender.requests_in_flight,
            "buffer-total-bytes": pool.total,
            "buffer-available-bytes": pool.available,
            "waiting-threads": pool.waiting,
        }

    # Flushing and closing: on the loop.

    async def flush(self) -> None:
        """Return when all records that were sent before have their outcome."""
        with self.lock:
            batches = self.accumulator.begin_flush()
        self.wake()
        try:
            for batch in batches:
                while not _settled(batch):
                    await self.next_progress()
        finally:
            with self.lock:
                self.accumulator.end_flush()

    async def next_progress(self) -> None:
        if self._progress is None:
            self._progress = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._progress)

    async def close(self, timeout: float | None, error: Exception) -> None:
        """Send what waits, for at most `timeout` seconds; then fail the rest with `error`."""
        if self.closed:
            return
        self.closing = self.accumulator.closing = True
        self.set_fast(False)
        self.wake()
        try:
            async with asyncio.timeout(timeout):
                while self.accumulator.incomplete:
                    await self.next_progress()
        except TimeoutError:
            pass
        finally:
            await self._end(error)

    async def _end(self, error: Exception) -> None:
        with self.lock:
            self.closed = True
            left = self.sender.abandon(error)
            self.accumulator.take_granted()
            waiting = self.appender.waiting()
        if lost := sum(outcome.batch.count for outcome in left):
            log.warning("the producer was closed before %d record(s) were acknowledged: they may not be written", lost)
        # Callers that wait for memory find the producer closed.
        self._tell(left, waiting)
        if self._timer is not None:
            self._timer.cancel()
        if self._packing is not None:
            self._packing.stop()
        tasks = [
            task
            for task in (self._identifying, self._asking, *self.topics.tasks, *self._links.tasks)
            if task is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.cluster.close()


_alive: weakref.WeakSet[ProducerCore] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """Warn about a program that ends without `close`, and loses what is not sent."""
    for core in list(_alive):
        left = core.unfinished if os.getpid() == core._process else 0
        if left:
            log.warning("%d record(s) were not acknowledged when the program ended: call flush() or close()", left)


def _settled(batch: Batch) -> bool:
    parts = batch.parts
    return batch.done if parts is None else all(_settled(part) for _, part in parts)  # type: ignore[arg-type]


def call_safely(function: Callable[..., object], *arguments: object) -> None:
    """Run user code on the loop: not even `sys.exit()` in it may keep other records from their outcome."""
    try:
        function(*arguments)
    except BaseException:
        log.exception("a callback of a sent record failed")


def _as_kafka_error(error: BaseException) -> KafkaError:
    return error if isinstance(error, KafkaError) else NetworkException(str(error))
