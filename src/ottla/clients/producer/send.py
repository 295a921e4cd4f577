"""The slow path of `send`, shared by the blocking and the asyncio producer.

    interceptors ──> metadata ──> key and value to bytes ──> partition ──> append ──> future

It is a generator: it yields what it waits for (a topic, or memory), and each producer waits in its own way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import CodeType
from typing import Any

from ottla.clients import habits, serializers
from ottla.clients.columns import ColumnsFuture, Outgoing, wall_clock
from ottla.clients.producer.appending import Owner
from ottla.clients.producer.core import ProducerCore, call_safely
from ottla.config.producer import ProducerConfig
from ottla.errors import ConfigError, InvalidPartitions, KafkaError, MessageTooLarge
from ottla.producing.accumulator import Appended
from ottla.producing.batch import Batch
from ottla.producing.buffer_pool import Ticket
from ottla.producing.errors import BufferExhausted
from ottla.producing.partitioning import RoundRobinPartitioner, partition_for_key
from ottla.producing.values import EncodedBatch, ProducerRecord, RecordMetadata
from ottla.records.builder import Lanes, RecordFuture
from ottla.runtime.plugins import instance
from ottla.types import Millis, TopicPartition, millis, whole

log = logging.getLogger("ottla.producer")

Callback = Callable[[RecordMetadata | None, Exception | None], object]
Choose = Callable[..., int]
_ERRORS = ("e", "err", "error", "exc", "exception")
_YEAR = 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class WaitForTopic:
    """The topic is not known yet; wait until `deadline` (seconds of the monotonic clock)."""

    topic: str
    deadline: float


@dataclass(frozen=True, slots=True)
class WaitForMemory:
    """Memory is out; the ticket's owner is woken when there is some."""

    ticket: Ticket
    deadline: float


Waits = Generator[WaitForTopic | WaitForMemory, None, tuple[RecordFuture, bool]]
"""Returns the future, and whether a batch was filled."""
Appending = Generator[WaitForMemory, None, Appended]


class Steps:
    """A send in progress: what it waits for, and its future at the end."""

    __slots__ = ("_steps", "filled", "future", "wait")

    future: RecordFuture
    filled: bool

    def __init__(self, steps: Waits) -> None:
        self._steps = steps
        self.wait: WaitForTopic | WaitForMemory | None = None
        self.go_on()

    def go_on(self) -> None:
        """Continue after the wait."""
        try:
            self.wait = next(self._steps)
        except StopIteration as stop:
            self.wait = None
            self.future, self.filled = stop.value

    def fail(self, error: Exception) -> None:
        """The wait failed: raise the error of the send."""
        self._steps.throw(error)


class ProducerInterceptor:
    """Sees every record that is sent; its errors are logged and change nothing. Override what you need.

    >>> class Stamp(ProducerInterceptor):
    ...     def on_send(self, record):
    ...         return dataclasses.replace(record, headers=(*record.headers, ("seen", b"1")))
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Called by `send`, in the caller's thread; the returned record is the one that is sent."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Called when the record is acknowledged or has failed, before the user's callback."""

    def close(self) -> None:
        """Called when the producer is closed."""


class SendPath:
    """The plugins of a producer, and the steps of a send."""

    def __init__(self, config: ProducerConfig, core: ProducerCore) -> None:
        self._core = core
        self._appender = core.appender
        self._config = config
        self._key = serializers.serializer(config.key_serializer, "key.serializer")
        self._value = serializers.serializer(config.value_serializer, "value.serializer")
        self._bytes = serializers.BytesSerializer()
        self._choose = _partitioner(config)
        self._outgoing: Outgoing | None = None
        self.interceptors = tuple(instance(each, "interceptor.classes") for each in config.interceptor_classes)

    @property
    def plain(self) -> bool:
        """Whether records may take the fast path, because no plugin needs to see them."""
        return not (self.interceptors or self._key or self._value or self._choose)

    def steps(self, record: ProducerRecord, callback: Callback | None, owner: Callable[[], Owner]) -> Waits:
        """Send a record. `owner` creates the function that wakes the caller when memory is free."""
        check_order(callback)
        record = self._intercepted(record)
        try:
            return (yield from self._steps(record, callback, owner))
        except Exception as error:
            self._core.send_failed(error)
            self._acknowledge(None, error)
            raise

    def _steps(self, record: ProducerRecord, callback: Callback | None, owner: Callable[[], Owner]) -> Waits:
        deadline = self._deadline()
        asked = None if record.partition is None else whole(record.partition, "the partition")
        lanes = self._core.topics.lanes_of(record.topic)
        if lanes is None or (asked is not None and asked >= lanes.partitions):
            yield WaitForTopic(record.topic, deadline)
            lanes = self._core.topics.lanes_of(record.topic)
        if lanes is None:
            raise KafkaError(f"topic {record.topic} vanished during a send to it")
        key = self._serialized(self._key, record.topic, record.key, "key")
        value = self._serialized(self._value, record.topic, record.value, "value")
        self._check_size(record, key, value)
        partition = _checked(asked, lanes, "") if asked is not None else self._partition(record, key, value, lanes)
        timestamp = time.time_ns() // 1_000_000 if record.timestamp is None else _timestamp(record.timestamp)
        append = partial(self._appender.append, lanes, partition, timestamp, key, value, record.headers, owner=owner)
        outcome = yield from self._appended(append, deadline)
        return self._future(outcome.batch, outcome.index, timestamp, key, value, callback), outcome.filled

    def send_to_next_batch(
        self, topic: str, value: bytes, timestamp: Millis | None, callback: Callback | None
    ) -> RecordFuture | None:
        """A shortcut for a record of a plain producer, see `Appender.append_to_next_batch`."""
        lanes = self._core.topics.lanes_of(topic)
        if lanes is None:
            return None
        check_order(callback)
        at = time.time_ns() // 1_000_000 if timestamp is None else _timestamp(timestamp)
        appended = self._appender.append_to_next_batch(lanes, at, value)
        if appended is None:
            return None
        return self._future(*appended, at, None, value, callback)

    def batch_steps(self, encoded: EncodedBatch, owner: Callable[[], Owner]) -> Waits:
        """Send a batch of encoded records; the future is that of its first record."""
        deadline = self._deadline()
        to = encoded.topic_partition
        encoded = encoded._replace(topic_partition=TopicPartition(to.topic, whole(to.partition, "the partition")))
        outcome = yield from self._appended(partial(self._appender.append_batch, encoded, owner=owner), deadline)
        return RecordFuture(outcome.batch, outcome.index, encoded.base_timestamp, -1, -1), True

    def _appended(self, append: Callable[..., Appended | Ticket], deadline: float) -> Appending:
        """Append as soon as there is memory; give up the ticket if the wait ends early."""
        ticket: Ticket | None = None
        try:
            while True:
                self._check_open()
                outcome = append(ticket=ticket)
                if not isinstance(outcome, Ticket):
                    return outcome
                ticket = outcome
                yield WaitForMemory(ticket, deadline)
        except Exception:
            self._appender.give_up(ticket)
            raise

    def columns(self, topic: str, data: Any, partitions: int) -> Iterator[EncodedBatch]:
        """The batches of a table."""
        if self._outgoing is None:
            self._outgoing = Outgoing(self._config, self._choose is not None)
        leaders = self._core.topics.view.leaders
        available = [each for each in range(partitions) if TopicPartition(topic, each) in leaders]
        return self._outgoing.payloads(topic, data, partitions, available, now=wall_clock())

    def table_failed(self, error: BaseException, sent: ColumnsFuture) -> None:
        """A table was not sent, or only in part, so its transaction would lack rows. The error gets the future of the
        queued rows."""
        if sent.records:
            error.sent = sent  # type: ignore[attr-defined]
            error.add_note(f"{sent.records:,} rows were queued before; `sent` of this error is their future")
        if not isinstance(error, KafkaError):
            error = KafkaError(f"a table for topic {sent.topic} could not be sent: {error!r}")
        self._core.send_failed(error)

    def _future(
        self,
        batch: Batch,
        index: int,
        timestamp: Millis,
        key: bytes | None,
        value: bytes | None,
        callback: Callback | None,
    ) -> RecordFuture:
        sizes = (-1 if key is None else len(key), -1 if value is None else len(value))
        future = RecordFuture(batch, index, timestamp, *sizes)
        for each in (self._acknowledge if self.interceptors else None, callback):
            if each is not None and not batch.call_back(future, each):
                # It was acknowledged in the meantime.
                error = future.exception()
                call_safely(each, None if error is not None else future.result(), error)
        return future

    def _deadline(self) -> float:
        """No wait is longer than a year, since clocks and locks have limits."""
        return time.monotonic() + min(self._config.max_block_ms / 1000, _YEAR)

    def memory_ran_out(self, wait: WaitForMemory, topic: str) -> BufferExhausted:
        """Leave the queue for memory, and return the error."""
        self._appender.give_up(wait.ticket)
        return BufferExhausted(
            f"no memory for a record of topic {topic} within {self._config.max_block_ms / 1000:g} s (max.block.ms): "
            f"all {self._config.buffer_memory:,} bytes of buffer.memory wait to be sent. Are the brokers running?"
        )

    def _check_open(self) -> None:
        if self._core.sender.fatal is not None:
            raise self._core.sender.fatal
        self._core.check_open()

    # Interceptors.

    def _intercepted(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self.interceptors:
            try:
                record = _given_back(interceptor.on_send(record))
            except Exception:
                log.exception("the interceptor %r failed in on_send", interceptor)
        return record

    def _acknowledge(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        for interceptor in self.interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except BaseException:
                log.exception("the interceptor %r failed in on_acknowledgement", interceptor)

    def close(self) -> None:
        for interceptor in self.interceptors:
            try:
                interceptor.close()
            except Exception:
                log.exception("the interceptor %r failed in close", interceptor)

    # Bytes and partitions.

    def _serialized(self, serialize: serializers.Serialize | None, topic: str, given: Any, what: str) -> bytes | None:
        if given is None:
            return None
        try:
            made = given if serialize is None else serialize(topic, given)
            return None if made is None else self._bytes.serialize(topic, made)
        except Exception as error:
            raise serializers.SerializationError(f"the {what} of a record for topic {topic}: {error}") from error

    def _check_size(self, record: ProducerRecord, key: bytes | None, value: bytes | None) -> None:
        size = self._core.accumulator.size_for(key, value, record.headers)
        for name, limit in (
            ("max.request.size", self._config.max_request_size),
            ("buffer.memory", self._config.buffer_memory),
        ):
            if size > limit:
                raise MessageTooLarge(
                    f"a record for topic {record.topic} takes {size:,} bytes, which is more than {name} ({limit:,}): "
                    "make it smaller, or raise the limit"
                )

    def _partition(self, record: ProducerRecord, key: bytes | None, value: bytes | None, lanes: Lanes) -> int | None:
        """The partition of a record without one; None for the sticky one, chosen when the record is appended."""
        if self._choose is not None:
            partitions = range(lanes.partitions)
            available = [*self._core.topics.view.led.get(lanes.topic, ())]
            chosen = whole(
                self._choose(record.topic, key, value, partitions, available), "what the partitioner returns"
            )
            return _checked(chosen, lanes, "the partitioner chose wrongly: ")
        if key is not None and not self._config.partitioner_ignore_keys:
            return partition_for_key(key, lanes.partitions)
        return None


def record_of(
    topic: str, value: Any, key: Any, partition: int | None, timestamp: Millis | None, headers: Any
) -> ProducerRecord:
    """The arguments of `send` as a record, with headers as pairs."""
    return ProducerRecord(topic_name(topic), value, key, partition, timestamp, _headers(headers))


def check_order(callback: Callback | None) -> None:
    """Refuse a callback for confluent-kafka, which would take every success for an error."""
    code = getattr(callback, "__code__", None)
    if code is not None and _takes_error_first(code):
        raise TypeError("the callback is called with the metadata first, as f(metadata, error): swap its parameters")


@lru_cache(maxsize=256)
def _takes_error_first(code: CodeType) -> bool:
    names = [name for name in code.co_varnames[: code.co_argcount] if name != "self"]
    return len(names) == 2 and names[0] in _ERRORS and names[1] not in _ERRORS


def topic_name(given: str) -> str:
    """A topic name as plain text, even for a member of an enum."""
    if not given or not isinstance(given, str):
        raise TypeError(f"the topic must be a name, not {given!r}")
    return str.__str__(given)


def _given_back(record: object) -> ProducerRecord:
    """Check the record of an interceptor, which may have changed everything."""
    if not isinstance(record, ProducerRecord):
        raise TypeError(f"on_send returned {record!r}: it must return the record")
    return record_of(record.topic, record.value, record.key, record.partition, record.timestamp, record.headers)


def _headers(given: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] | None) -> Any:
    if not given:
        return ()
    try:
        pairs = tuple((name, value) for name, value in (given.items() if isinstance(given, Mapping) else given))
    except (TypeError, ValueError):
        raise TypeError(f"headers must be pairs of a name and a value, or a dict, not {given!r}") from None
    for name, value in pairs:
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise TypeError(f"a header must be a name (str) and a value (bytes or None), not {name!r} and {value!r}")
    return pairs


def _timestamp(given: Millis) -> Millis:
    at = millis(given, "the timestamp")
    if habits.is_in_seconds(at):
        habits.warn_of_seconds("write int(time.time() * 1000) for the present", stacklevel=3)
    return at


def _checked(partition: int, lanes: Lanes, who: str) -> int:
    if not 0 <= partition < lanes.partitions:
        raise InvalidPartitions(
            f"{who}topic {lanes.topic} has no partition {partition}: it has 0 to {lanes.partitions - 1}"
        )
    return partition


def _partitioner(config: ProducerConfig) -> Choose | None:
    given = config.partitioner_class
    if isinstance(given, str) and given.rpartition(".")[2] == "RoundRobinPartitioner":
        return RoundRobinPartitioner().partition
    found = instance(given, "partitioner.class")
    if found is None:
        return None
    choose = getattr(found, "partition", found)
    if not callable(choose):
        raise ConfigError(f"partitioner.class: {found!r} is neither a Partitioner nor a function.")
    return choose  # type: ignore[no-any-return]
