"""The fetched records that were not handed out yet. They are decoded when they are taken.

In the blocking consumer `take` and `take_raw` run on the user's thread, everything else on the event loop. They need no
locks: they only pop from the queue and write `position`, `epoch` and `started` of a partition, which nothing else
writes while its token stays the same. `settle` does on the event loop what they must not do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.consuming.positions import PartitionState, Positions
from ottla.consuming.values import ConsumerRecord
from ottla.errors import CorruptMessage, KafkaError
from ottla.records import BatchHeader, CorruptBatch
from ottla.records.buffers import Buffer as Bytes
from ottla.records.consumed import decode_consumed, unpacked
from ottla.types import TopicPartition

Batches = list[tuple[int, BatchHeader]]
#: How many fetches of a partition may wait in the buffer.
AHEAD = 2


class RawFetch(NamedTuple):
    """Batches of one partition as they were fetched.

    `batches` are the places in `data` of the batches to read, with their headers; control batches and aborted
    transactions are left out. Records before `position` were read already (a batch is fetched whole), and
    `next_offset` is where the partition continues.
    """

    topic_partition: TopicPartition
    data: Bytes
    batches: Batches
    position: int
    next_offset: int
    high_watermark: int | None
    unpacked: Mapping[int, Bytes] = {}
    """The records of batches that were decompressed already, by their places."""


class Completed:
    """What one fetch returned for one partition: batches or an error."""

    __slots__ = (
        "_decoded",
        "_index",
        "_next",
        "_unpacked",
        "batches",
        "data",
        "error",
        "next_epoch",
        "next_offset",
        "out_of_range",
        "position",
        "state",
        "token",
    )

    def __init__(
        self,
        state: PartitionState,
        token: int,
        position: int,
        *,
        data: Bytes = b"",
        batches: Batches | None = None,
        next_offset: int | None = None,
        next_epoch: int | None = None,
        error: KafkaError | None = None,
        out_of_range: bool = False,
    ) -> None:
        self.state = state
        self.token = token
        self.position = position
        self.data = data
        self.batches = batches or []
        self.next_offset = position if next_offset is None else next_offset
        self.next_epoch = next_epoch
        """The leader epoch of the last batch, even if that is not read: markers and aborted records move the epoch."""
        self.error = error
        self.out_of_range = out_of_range
        self._next = 0
        self._decoded: list[ConsumerRecord] = []
        self._index = 0
        self._unpacked: dict[int, Bytes] = {}

    @property
    def weight(self) -> int:
        """How much of `AHEAD` it takes: after an error nothing is fetched until the user has seen it."""
        return AHEAD if self.error is not None or self.out_of_range else 1

    @property
    def current(self) -> bool:
        """Whether the partition still continues with this fetch."""
        return self.state.token == self.token

    @property
    def compressed_bytes(self) -> int:
        return sum(header.size for _, header in self.batches if header.attributes & 7)

    def unpack(self) -> None:
        """Decompress everything now, on another thread. Damage is reported when it is read."""
        for place, header in self.batches:
            try:
                self._unpacked[place] = unpacked(self.data, place, header)
            except CorruptBatch:
                return

    def read(self, limit: int) -> list[ConsumerRecord]:
        """Return the next records, at most `limit`; an empty list at the end."""
        while self._index >= len(self._decoded):
            if self._next == len(self.batches):
                self.position = self.next_offset
                return []
            self._decode()
        start, end = self._index, self._index + limit
        records = self._decoded[start:end] if start or end < len(self._decoded) else self._decoded
        self._index = start + len(records)
        self.position = records[-1].offset + 1
        if self._index == len(self._decoded):
            self.position = self.batches[self._next - 1][1].next_offset
            if self._next == len(self.batches):
                self.position = self.next_offset
        return records

    def _decode(self) -> None:
        place, header = self.batches[self._next]
        key = self.state.partition
        try:
            payload = self._unpacked.pop(place, None)
            if payload is None:
                payload = unpacked(self.data, place, header)
            self._decoded = decode_consumed(payload, header, place, key.topic, key.partition, self.position)
        except CorruptBatch as error:
            raise CorruptMessage(
                f"partition {key} at offset {self.position}: {error.reason}. Seek past it to continue without it"
            ) from None
        self._index = 0
        self._next += 1
        epoch = header.partition_leader_epoch
        self.state.epoch = epoch if epoch >= 0 else None

    @property
    def at_end(self) -> bool:
        return self._index >= len(self._decoded) and self._next == len(self.batches)

    def rest(self) -> Batches:
        """The batches that are not completely read."""
        return self.batches[max(0, self._next - (self._index < len(self._decoded))) :]


class Buffer:
    """Completed fetches in the order of arrival."""

    def __init__(self, positions: Positions, started: Callable[[], None]) -> None:
        self._positions = positions
        self._started = started
        """Called when a partition can be fetched again."""
        self._queue: deque[Completed] = deque()
        self._using: Completed | None = None
        self._out_of_range: deque[Completed] = deque()

    def settle(self) -> None:
        """Reset the positions that turned out to be out of range."""
        while self._out_of_range:
            one = self._out_of_range.popleft()
            self._positions.out_of_range(one.state.partition, one.token)

    def add(self, completed: Completed) -> None:
        self._queue.append(completed)

    def __len__(self) -> int:
        """How many fetches wait that `take` has not started."""
        return len(self._queue)

    def __bool__(self) -> bool:
        """Whether `take` may return something."""
        return self._using is not None or bool(self._queue)

    @property
    def is_ready(self) -> bool:
        """Whether `take` has something to do: paused partitions wait."""
        one = self._using
        if one is not None and one.current and not one.state.paused:
            return True
        return any(one.current and not one.state.paused for one in self._queue)

    def clear(self) -> None:
        self._using = None
        self._queue.clear()

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Return up to `limit` records and move the positions past them; raises the error of a failed fetch."""
        taken: list[ConsumerRecord] = []
        while len(taken) < limit:
            one = self._current(raising=not taken)
            if one is None:
                break
            try:
                records = one.read(limit - len(taken))
            except CorruptMessage:
                if taken:
                    break
                raise
            if not one.current:
                continue
            one.state.position = one.position
            if one.at_end:
                one.state.epoch = one.next_epoch
                self._using = None
            if not taken:
                taken = records if records is not one._decoded else records[:]
            else:
                taken += records
        return taken

    def take_raw(self, limit: int | None = None) -> list[RawFetch]:
        """Return everything buffered, undecoded, and move the positions past it. Stops once there are `limit` records;
        `put_back` takes back what is too much."""
        taken: list[RawFetch] = []
        records = 0
        while limit is None or records < limit:
            one = self._current(raising=not taken)
            if one is None:
                break
            start, batches = one.position, one.rest()
            self._using = None
            one.state.position = one.next_offset
            one.state.epoch = one.next_epoch
            if batches:
                state = one.state
                taken.append(
                    RawFetch(
                        state.partition,
                        one.data,
                        batches,
                        start,
                        one.next_offset,
                        state.high_watermark,
                        one._unpacked,
                    )
                )
                records += sum(header.record_count for _, header in batches)
        return taken

    def put_back(self, left: list[tuple[RawFetch, Batches, int]]) -> None:
        """Take back what was not read of raw fetches: for each, the batches and the offset to continue from."""
        aside: list[Completed] = []
        for raw, batches, position in left:
            state = self._positions.get(raw.topic_partition)
            if state is None:
                continue
            state.position = position
            one = Completed(
                state,
                state.token,
                position,
                data=raw.data,
                batches=batches,
                next_offset=raw.next_offset,
                next_epoch=state.epoch,
            )
            one._unpacked = dict(raw.unpacked)
            if self._using is None:
                self._using = one
            else:
                state.started -= 1
                aside.append(one)
        self._queue.extendleft(reversed(aside))

    def _current(self, *, raising: bool) -> Completed | None:
        """The fetch to read from: the present one, else the next usable one. Errors wait until they are first."""
        one = self._using
        if one is not None and one.current and not one.state.paused:
            return one
        if one is not None:
            self._using = None
            if one.current:
                self._queue.appendleft(one)
        return self._next(raising=raising)

    def _next(self, *, raising: bool) -> Completed | None:
        aside: list[Completed] = []
        found = None
        while self._queue:
            one = self._queue.popleft()
            if not one.current:
                continue
            if one.state.paused:
                aside.append(one)
            elif (one.error is not None or one.out_of_range) and not raising:
                self._queue.appendleft(one)
                break
            else:
                found = one
                break
        self._queue.extendleft(reversed(aside))
        if found is None:
            return None
        return self._begin(found)

    def _begin(self, one: Completed) -> Completed | None:
        one.state.started += one.weight
        error = one.error
        if one.out_of_range:
            error = self._positions.range_error(one.state.partition, one.position)
            if error is None:
                self._out_of_range.append(one)
        self._started()
        if error is not None:
            raise error
        if one.out_of_range:
            return self._next(raising=True)
        self._using = one
        return one
