"""The producer's work for each record, in Python: the reference for `_builder`, and its replacement.

    BatchBuilder   a batch that grows: records are written into its buffer, after room for the header
    RecordFuture   the result of one record: its batch and its index, and nothing else until it is waited for
    Lanes          the open batches of one topic, by partition
    FastSend       `send` for the common case: find the open batch, append, return the future

The C version appends without a lock, because nothing can interrupt it. Here every send takes the slow path, which has a
lock. A subclass of BatchBuilder defines how to wait, and the metadata. Change both versions together: property tests
compare them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Sequence
from typing import Any

from ottla.records import _problems
from ottla.records._pure import _fits, _header_parts, _refuse, _write_part, _write_varint
from ottla.records.buffers import Buffer
from ottla.records.header import BATCH_OVERHEAD
from ottla.records.values import Headers

_NO_ROOM = -1
_INT32_MAX = 2**31 - 1
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF

Watcher = Callable[["RecordFuture"], object]
Callback = Callable[[Any, Any], object]


class BatchBuilder:
    """A batch that grows in a buffer of fixed size until it is closed, and then gets a result."""

    def __init__(self, buffer: bytearray) -> None:
        if len(buffer) < BATCH_OVERHEAD:
            raise ValueError(f"a batch needs {BATCH_OVERHEAD} bytes for its header")
        self.buffer: bytearray | None = buffer
        self.size = BATCH_OVERHEAD
        self.count = 0
        self.base_timestamp = self.max_timestamp = -1
        self.closed = False
        self.done = False
        self.base_offset = self.log_append_time = -1
        self.error: Exception | None = None
        self.parts: list[tuple[int, BatchBuilder]] | None = None
        self._callbacks: list[tuple[RecordFuture, Callback]] = []
        self._watchers: list[tuple[RecordFuture, Watcher]] = []

    def close(self) -> None:
        """Accept no more records."""
        self.closed = True

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
        """Append a record and return its index, or -1 if the batch is closed or full."""
        delta = timestamp - self.base_timestamp if self.count else 0
        if not (_fits(timestamp) and _fits(delta)):
            _refuse(self.count, _problems.timestamp_refusal(timestamp))
        parts = _header_parts(headers, self.count)
        record = bytearray(1)
        _write_varint(record, delta)
        _write_varint(record, self.count)
        body = bytearray()
        _write_varint(body, len(parts) // 2)
        for part in parts:
            _write_part(body, part, self.count, "header value")
        _write_part(record, key, self.count, "key")
        _write_part(record, value, self.count, "value")
        record += body
        framed = bytearray()
        _write_varint(framed, len(record))
        return self._put(timestamp, framed + record)

    def _put(self, timestamp: int, record: bytearray) -> int:
        if self.closed or self.buffer is None or self.size + len(record) > len(self.buffer):
            return _NO_ROOM
        self.buffer[self.size : self.size + len(record)] = record
        self.size += len(record)
        if self.count == 0:
            self.base_timestamp = self.max_timestamp = timestamp
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.count += 1
        return self.count - 1

    def fill(self, payload: Buffer | None, count: int, base_timestamp: int, max_timestamp: int) -> None:
        """Take encoded records and close; with None they are already in the buffer, after the header."""
        if self.count or self.closed or self.buffer is None:
            raise ValueError("only a new batch can be filled")
        size = len(self.buffer) - BATCH_OVERHEAD if payload is None else len(memoryview(payload))
        if count < 1 or size < 0 or BATCH_OVERHEAD + size > len(self.buffer):
            raise ValueError(f"{count} records of {size} bytes do not fill a batch of {len(self.buffer)}")
        if payload is not None:
            self.buffer[BATCH_OVERHEAD : BATCH_OVERHEAD + size] = payload
        self.size = BATCH_OVERHEAD + size
        self.count = count
        self.base_timestamp, self.max_timestamp = base_timestamp, max_timestamp
        self.closed = True

    def watch(self, future: RecordFuture, watcher: Watcher) -> bool:
        """Call `watcher` when the batch gets its result; False if it already has one."""
        if self.parts is not None:
            return future.batch.locate(future.index)[0].watch(future, watcher)
        return self._added(self._watchers, (future, watcher))

    def unwatch(self, future: RecordFuture, watcher: Watcher) -> int:
        """Remove a watcher; return how often it was registered."""
        if self.parts is not None:
            return future.batch.locate(future.index)[0].unwatch(future, watcher)
        forgotten = 0
        # The thread that finished the batch may remove watchers at the same time.
        while True:
            try:
                self._watchers.remove((future, watcher))
            except ValueError:
                return forgotten
            forgotten += 1

    def call_back(self, future: RecordFuture, callback: Callback) -> bool:
        """Like `watch`, for the callback given to `send`: callbacks run before watchers."""
        if self.parts is not None:
            return future.batch.locate(future.index)[0].call_back(future, callback)
        return self._added(self._callbacks, (future, callback))

    def _added(self, entries: list[Any], entry: Any) -> bool:
        entries.append(entry)
        if self.done and entry in entries:
            # The thread that finished the batch removes entries one by one: it may have missed this one.
            try:
                entries.remove(entry)
            except ValueError:
                return True
            return False
        return True

    def finish(
        self, base_offset: int, log_append_time: int, error: Exception | None
    ) -> tuple[list[tuple[RecordFuture, Callback]], list[tuple[RecordFuture, Watcher]]]:
        """Set the result of the batch, once. The caller removes the returned entries one by one and calls them."""
        if self.done or self.parts is not None:
            return [], []
        self.closed = True
        self.base_offset, self.log_append_time, self.error = base_offset, log_append_time, error
        self.done = True
        return self._callbacks, self._watchers

    def split(self, parts: Sequence[BatchBuilder]) -> None:
        """Move the records to these builders, in order."""
        first, mapped = 0, []
        for part in parts:
            mapped.append((first, part))
            first += part.count
        if first != self.count:
            raise ValueError(f"{self.count} records were split into {first}")
        self.closed = True
        self.parts = mapped
        for future, callback in self._callbacks:
            future.batch.locate(future.index)[0].call_back(future, callback)
        for future, watcher in self._watchers:
            future.batch.locate(future.index)[0].watch(future, watcher)

    def locate(self, index: int) -> tuple[BatchBuilder, int]:
        """The builder and index of a record after all splits."""
        builder = self
        while builder.parts is not None:
            first, part = next(entry for entry in reversed(builder.parts) if entry[0] <= index)
            builder, index = part, index - first
        return builder, index

    def metadata(self, index: int, future: RecordFuture) -> Any:
        """The metadata of an acknowledged record."""
        raise NotImplementedError

    def wait(self, future: RecordFuture, timeout: float | None) -> None:
        """Wait until the future is done; TimeoutError after `timeout` seconds."""
        raise NotImplementedError

    async def wait_async(self, future: RecordFuture) -> Any:
        """Wait for the result of the future."""
        raise NotImplementedError

    def finishing(self) -> Any:
        """The lock that is held while a batch gets its result, for `concurrent.futures`."""
        raise NotImplementedError

    def waiters(self, future: RecordFuture) -> Any:
        """The list of waiters of `concurrent.futures`."""
        raise NotImplementedError

    def release(self) -> bytearray | None:
        """Give up the buffer and return it to the caller."""
        self.closed = True
        buffer, self.buffer = self.buffer, None
        return buffer


class RecordFuture:
    """The result of a sent record."""

    __slots__ = ("batch", "index", "key_size", "timestamp", "value_size")

    def __init__(self, batch: BatchBuilder, index: int, timestamp: int, key_size: int, value_size: int) -> None:
        self.batch = batch
        self.index = index
        self.timestamp = timestamp
        self.key_size = key_size
        self.value_size = value_size

    def done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self.batch.locate(self.index)[0].done

    def cancelled(self) -> bool:
        return False

    def cancel(self) -> bool:
        """Always False: a sent record cannot be cancelled."""
        return False

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the metadata of the record; raise the error if it could not be written.

        After `timeout` seconds this raises TimeoutError; the record may still be written later.
        """
        if not self.done():
            self.batch.wait(self, timeout)
        batch, index = self.batch.locate(self.index)
        if batch.error is not None:
            raise batch.error
        return batch.metadata(index, self)

    def get(self, timeout: float | None = None) -> Any:
        """Like `result`, for users of Java and kafka-python."""
        return self.result(timeout)

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait for the error of the record; None if it was written."""
        if not self.done():
            self.batch.wait(self, timeout)
        return self.batch.locate(self.index)[0].error

    @property
    def is_done(self) -> bool:
        """Like `done`, as in kafka-python."""
        return self.done()

    def succeeded(self) -> bool:
        return self.done() and self.batch.locate(self.index)[0].error is None

    def failed(self) -> bool:
        return self.done() and self.batch.locate(self.index)[0].error is not None

    def add_done_callback(self, watcher: Watcher) -> None:
        """Call `watcher(future)` when it is done; immediately if it already is."""
        if not self.batch.watch(self, watcher):
            watcher(self)

    def remove_done_callback(self, watcher: Watcher) -> int:
        """Remove a watcher; return how often it was registered."""
        return self.batch.unwatch(self, watcher)

    def add_callback(self, callback: Callable[..., object], *args: object) -> RecordFuture:
        """Call `callback(*args, metadata)` when the record is acknowledged, as in kafka-python."""
        self.add_done_callback(lambda future: future.succeeded() and callback(*args, future.result()))
        return self

    def add_errback(self, errback: Callable[..., object], *args: object) -> RecordFuture:
        """Call `errback(*args, error)` if the record could not be written."""
        self.add_done_callback(lambda future: future.failed() and errback(*args, future.exception()))
        return self

    # Used by `wait` and `as_completed` of concurrent.futures.

    @property
    def _condition(self) -> Any:
        return self.batch.finishing()

    @property
    def _state(self) -> str:
        return "FINISHED" if self.done() else "PENDING"

    @property
    def _waiters(self) -> Any:
        return self.batch.waiters(self)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.batch.wait_async(self).__await__()


class Lanes:
    """The open batches of a topic by partition, and the sticky partition of records without a key."""

    def __init__(self, topic: str, partitions: int) -> None:
        if partitions < 1:
            raise ValueError("a topic has at least one partition")
        self.topic = topic
        self.partitions = partitions
        self.sticky = -1
        """-1: the slow path must choose one."""
        self.sticky_bytes = 0
        """Bytes written to it since it was chosen."""
        self.sticky_limit = 0
        """Choose another one after at most twice as many bytes."""
        self._open: list[BatchBuilder | None] = [None] * partitions

    def open(self, partition: int, builder: BatchBuilder | None) -> None:
        """Set the open batch of a partition."""
        if 0 <= partition < self.partitions:
            self._open[partition] = builder

    def opened(self, partition: int) -> BatchBuilder | None:
        return self._open[partition] if 0 <= partition < self.partitions else None


class FastSend:
    """`send` with a fast path; a subclass has the slow path."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lanes] = {}
        self._is_fast = False
        """Whether the fast path is allowed: no interceptor, serializer or custom partitioner, and not closed."""
        self._hash_keys = True

    def _attempt_send(self, *arguments: Any, **named: Any) -> RecordFuture | None:
        """Like `send`, for a record that fits into an open batch; None if it must take the slow path."""
        return None

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Any = None,
        callback: Callback | None = None,
        *,
        on_delivery: Any = None,
        timestamp_ms: Any = None,
    ) -> RecordFuture:
        """Queue a record and return its future immediately."""
        if on_delivery is not None or timestamp_ms is not None:
            raise TypeError(_problems.habit_refusal(on_delivery))
        return self._send_slowly(topic, value, key, partition, timestamp, headers, callback)

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Any,
        callback: Callback | None,
    ) -> RecordFuture:
        raise NotImplementedError


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit hash of a key, unsigned.

    >>> murmur2(b"21") == -973932308 & 0xFFFFFFFF
    True
    """
    whole = len(data) & ~3
    value = _SEED ^ len(data)
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if tail := data[whole:]:
        value = (value ^ int.from_bytes(tail, "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15
