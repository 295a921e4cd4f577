"""Hands fetched records out to the user, and tracks how far it got.

An iteration takes more records from the buffer than it hands out at once, and a record that cannot be deserialized
holds back the records after it. Neither count as consumed. Everything here runs on the user's thread; the event loop
only reads it while the user's thread waits.
"""

from __future__ import annotations

from collections import deque
from operator import length_hint
from typing import Any

from ottla.clients.consumer.core import Engine
from ottla.clients.consumer.records import Finisher
from ottla.consuming.buffer import RawFetch
from ottla.consuming.values import ConsumerRecord, ConsumerRecords, OffsetAndMetadata
from ottla.types import TopicPartition


class HandOut:
    """The records between the buffer and the user."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._buffer = engine.buffer
        self.finisher = Finisher(engine.config)
        self.iterator: Any = iter(())
        """Hands out `ahead` and knows how many of them are left."""
        self.ahead: list[ConsumerRecord] = []
        self.leftover: list[ConsumerRecord] = []
        """Records that were taken but could not be deserialized yet."""
        self.total = 0
        self._finished_already = False

    def limit(self, max_records: int | None) -> int:
        if max_records is None:
            return self._engine.config.max_poll_records
        if max_records < 1:
            raise ValueError(f"max_records must be at least 1, not {max_records}")
        return max_records

    def take(self, limit: int) -> list[ConsumerRecord]:
        return self._buffer.take(limit)

    def take_raw(self, limit: int) -> list[RawFetch]:
        """Like `take`, but undecoded; a limit of 0 means no limit."""
        return self._buffer.take_raw(limit or None)

    def take_rest(self, limit: int) -> list[ConsumerRecord]:
        """Return what an iteration left, else what could not be deserialized before."""
        if waiting := self.not_iterated():
            self.iterate(waiting[limit:])
            self._finished_already = True
            return waiting[:limit]
        records, self.leftover = self.leftover[:limit], self.leftover[limit:]
        return records

    def finished(self, records: list[ConsumerRecord]) -> ConsumerRecords:
        """Deserialize what was taken and run the interceptors."""
        if self._finished_already:
            self._finished_already = False
            return ConsumerRecords(records)
        before = self.leftover
        try:
            finished, leftover = self.finisher.finish(records)
        except Exception:
            self.leftover = [*records, *before]
            raise
        if leftover or before:
            self.leftover = [*leftover, *before]
        self.total += len(finished)
        return finished

    def not_iterated(self) -> list[ConsumerRecord]:
        return self.ahead[len(self.ahead) - length_hint(self.iterator) :]

    def iterate(self, records: list[ConsumerRecord]) -> Any:
        """Return an iterator over these records; the previous iterator ends."""
        deque(self.iterator, maxlen=0)
        self.ahead = records
        self.iterator = iter(records)
        return self.iterator

    def held_back(self) -> dict[TopicPartition, int]:
        """Return the first offset of each partition that was taken but not handed out."""
        first: dict[TopicPartition, int] = {}
        for record in (*self.not_iterated(), *self.leftover):
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return first

    def put_back(self) -> None:
        """Return what was not handed out; if it is still wanted, it is fetched again."""
        positions = self._engine.positions
        for key, offset in self.held_back().items():
            if key in positions:
                positions.seek(key, offset)
        self.total -= len(self.not_iterated())
        self.iterate([])
        self.leftover = []

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets after everything that was handed out."""
        offsets = self._engine.positions.consumed()
        for key, offset in self.held_back().items():
            if key in offsets:
                offsets[key] = OffsetAndMetadata(offset, "", offsets[key].leader_epoch)
        return offsets
