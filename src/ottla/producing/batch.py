"""One batch of a producer: the records of one partition, their states from open to acknowledged, and its encoding.

    open ──close──> queued ──drain──> in flight ──> done
                      ^                  │
                      └── again ─────────┘   (a retriable error; a batch that is too large is split instead)

Memory, order and retries are decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ottla.producing.values import NO_OFFSET, RecordMetadata
from ottla.records._crc import crc32c
from ottla.records.buffers import Buffer
from ottla.records.builder import BatchBuilder, RecordFuture
from ottla.records.codec import decode_batch
from ottla.records.compression import Compression, Packer, Packing, compress_all
from ottla.records.header import (
    BATCH_OVERHEAD,
    CRC,
    CRC_AT,
    CRC_START,
    HEADER,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
)
from ottla.records.values import Record
from ottla.types import NO_PRODUCER_ID, Millis, TopicPartition

NO_SEQUENCE = -1
NO_EPOCH = -1
MAX_SEQUENCE = 2**31 - 1


def is_before(sequence: int, other: int) -> bool:
    """Whether a sequence number is earlier than another, which may have wrapped around to 0.

    >>> is_before(3, 5), is_before(MAX_SEQUENCE, 2), is_before(2, 2)
    (True, True, False)
    """
    return 0 < (other - sequence) & MAX_SEQUENCE <= MAX_SEQUENCE // 2


class Waiting(Protocol):
    """How callers wait for the futures of a batch: threads and event loops live in `ottla.clients.producer.batches`."""

    @property
    def finishing(self) -> AbstractContextManager[Any]:
        """The lock that is held while a batch finishes."""

    def wait(self, batch: Batch, future: RecordFuture, timeout: float | None) -> None: ...

    async def wait_async(self, batch: Batch, future: RecordFuture) -> Any: ...

    def waiters(self, future: RecordFuture) -> Any: ...


class Batch(BatchBuilder):
    """A batch in the producer."""

    # Class attributes until they change, because many batches hold only a few records.
    attempts = 0
    """How often it was queued again."""
    retry_at: Millis = 0
    wanted = False
    """A thread waits for one of its records, so it does not wait for more of them."""
    was_sent = False
    in_flight = False
    """A connection may be reading from its buffer."""
    producer_id = NO_PRODUCER_ID
    producer_epoch = NO_EPOCH
    base_sequence = NO_SEQUENCE
    numbers: Any = None
    """What `Idempotence` knows of the partition, once the batch is numbered."""
    ordinal = 0
    """Its number among the numbered batches of the partition."""
    sequence_reset = False
    """It got a new sequence number after it had been sent."""
    _sealed: Buffer | None = None
    _packed: Buffer | None = None
    """Room for the header, and the compressed records: in the place of the records if they were compressed ahead."""
    _codec = Compression.NONE
    """The codec of `_packed`."""
    _packing: Packing | None = None

    def __init__(
        self,
        topic_partition: TopicPartition,
        buffer: bytearray,
        *,
        memory: int,
        now: Millis,
        waiting: Waiting | None = None,
        transactional: bool = False,
    ) -> None:
        super().__init__(buffer)
        self._waiting: Any = waiting
        self.transactional = transactional
        self.topic_partition = topic_partition
        self.memory = memory
        """Its share of buffer.memory."""
        self.created: Millis = now

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return NO_SEQUENCE if not self.has_sequence else (self.base_sequence + self.count - 1) & MAX_SEQUENCE

    def number(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Set the numbers by which a broker recognizes it."""
        self.sequence_reset = self.has_sequence
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence
        self._sealed = None

    def age(self, *, now: Millis) -> Millis:
        return now - self.created

    def sealed(self, codec: Compression, level: int | None) -> Buffer:
        """The bytes to send: header, CRC and compressed records. They are valid until the buffer is released."""
        if self._sealed is None:
            self.close()
            if codec is not Compression.NONE and self._packed is None:
                pack([self], codec, level)
            self._sealed = self._seal(codec, self._plain() if self._packed is None else memoryview(self._packed))
        return self._sealed

    def pack_ahead(self, packer: Packer) -> None:
        """Start to compress a closed batch before it is sealed. Its records belong to the packer until then."""
        if self._packed is None and self._packing is None and self.buffer is not None:
            self._packing = packer.begin(self.buffer, BATCH_OVERHEAD, self.size)

    def _withdraw(self) -> bool:
        """Whether the packer has not started to compress it, and will not."""
        if self._packing is not None and self._packing.withdraw():
            self._packing = None
        return self._packing is None

    def _take_packed(self) -> bool:
        """Wait until it is compressed; whether it became smaller."""
        assert self._packing is not None
        size = self._packing.size()
        self._packing = None
        if size:
            self._packed, self._codec = self._plain()[: BATCH_OVERHEAD + size], Compression.LZ4
        return size > 0

    def _seal(self, codec: Compression, output: memoryview) -> memoryview:
        HEADER.pack_into(
            output,
            0,
            0,  # the broker sets the base offset and the leader epoch
            len(output) - LOG_OVERHEAD,
            -1,
            MAGIC,
            0,
            codec | (TRANSACTIONAL if self.transactional else 0),
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        )
        CRC.pack_into(output, CRC_AT, crc32c(output[CRC_START:]))
        return output

    def _plain(self) -> memoryview:
        """Room for the header, and the records."""
        if self.buffer is None:
            raise ValueError("the buffer of the batch was released")
        return memoryview(self.buffer)[: self.size]

    def records(self) -> list[Record]:
        """Decode the records, numbered from 0."""
        packed = self._plain() if self._packed is None else memoryview(self._packed)
        return decode_batch(self._seal(self._codec, packed), max_size=self.size)

    def release(self) -> bytearray | None:
        self._sealed = self._packed = self._packing = None
        return super().release()

    def wait(self, future: RecordFuture, timeout: float | None) -> None:
        self._waiting.wait(self, future, timeout)

    def wait_async(self, future: RecordFuture) -> Coroutine[Any, Any, Any]:
        return self._waiting.wait_async(self, future)  # type: ignore[no-any-return]

    def waiters(self, future: RecordFuture) -> Any:
        return self._waiting.waiters(future)

    def finishing(self) -> Any:
        return self._waiting.finishing

    def finish(self, base_offset: int, log_append_time: int, error: Exception | None) -> Any:
        if self._waiting is None:
            return super().finish(base_offset, log_append_time, error)
        with self._waiting.finishing:
            return super().finish(base_offset, log_append_time, error)

    def metadata(self, index: int, future: RecordFuture) -> RecordMetadata:
        offset = NO_OFFSET if self.base_offset < 0 else self.base_offset + index
        timestamp = future.timestamp if self.log_append_time < 0 else self.log_append_time
        topic, partition = self.topic_partition.topic, self.topic_partition.partition
        return RecordMetadata(topic, partition, offset, timestamp, future.key_size, future.value_size)

    def __repr__(self) -> str:
        state = "done" if self.done else "closed" if self.closed else "open"
        return f"<Batch {self.topic_partition} {self.count} records, {state}, sequence {self.base_sequence}>"


def pack(batches: Iterable[Batch], codec: Compression, level: int | None) -> None:
    """Compress batches that are about to be sealed: all at once is faster than one by one."""
    if codec is Compression.NONE:
        return
    new = [batch for batch in batches if batch._packed is None]
    late = [batch for batch in new if batch._withdraw()]
    _compress(late, codec, level)
    _compress([batch for batch in new if batch._packed is None and not batch._take_packed()], codec, level)


def _compress(batches: list[Batch], codec: Compression, level: int | None) -> None:
    if not batches:
        return  # and keep the interpreter lock
    for batch in batches:
        batch.close()
    pieces: list[Buffer] = [batch._plain()[BATCH_OVERHEAD:] for batch in batches]
    for batch, packed in zip(batches, compress_all(codec, pieces, level, room=BATCH_OVERHEAD), strict=True):
        batch._packed, batch._codec = packed, codec
