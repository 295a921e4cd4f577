"""The records between the buffer and the user, and what they mean for positions.

An iteration takes more records than it hands out at once, and records behind one that cannot be deserialized wait: they
do not count as consumed. Everything here belongs to the user's thread; the others only look while it waits.
"""

from __future__ import annotations

from collections import deque
from operator import length_hint
from typing import Any

from ottla.clients.consumer.core import Engine
from ottla.clients.consumer.records import Finisher
from ottla.config.consumer import ConsumerConfig
from ottla.consuming.buffer import RawFetch
from ottla.consuming.values import (
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndMetadata,
)
from ottla.types import TopicPartition


class Handing:
    """What was taken from the buffer, and how far it was handed out."""

    def __init__(self, config: ConsumerConfig, *, unpacks_aside: bool) -> None:
        self.config = config
        self.engine = Engine(config, unpacks_aside=unpacks_aside)
        self.finisher = Finisher(config)
        self.ahead: list[ConsumerRecord] = []
        """Records that an iteration took; its iterator knows how many of them it has handed out."""
        self.iterator: Any = iter(())
        self.leftover: list[ConsumerRecord] = []
        """Records that were taken but could not be made into the user's objects yet."""
        self.records = 0
        self._finished_already = False

    def limit(self, max_records: int | None) -> int:
        if max_records is None:
            return self.config.max_poll_records
        if max_records < 1:
            raise ValueError(f"max_records is at least 1, not {max_records}")
        return max_records

    def take(self, limit: int) -> list[ConsumerRecord]:
        return self.engine.buffer.take(limit)

    def take_raw(self, limit: int) -> list[RawFetch]:
        """As `take`, undecoded; 0 is no limit."""
        return self.engine.buffer.take_raw(limit or None)

    def _rest(self, limit: int) -> list[ConsumerRecord]:
        """What an iteration left, or what could not be deserialized before."""
        if waiting := self.not_iterated():
            self.iterate(waiting[limit:])
            self._finished_already = True
            return waiting[:limit]
        records, self.leftover = self.leftover[:limit], self.leftover[limit:]
        return records

    def finished(self, records: list[ConsumerRecord]) -> ConsumerRecords:
        """What was taken, as the user wants it. Runs on the user's thread."""
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
        self.records += len(finished)
        return finished

    def not_iterated(self) -> list[ConsumerRecord]:
        return self.ahead[len(self.ahead) - length_hint(self.iterator) :]

    def iterate(self, records: list[ConsumerRecord]) -> Any:
        """Records to hand out one by one; whoever has the iterator before gets nothing more of it."""
        deque(self.iterator, maxlen=0)
        self.ahead = records
        self.iterator = iter(records)
        return self.iterator

    def _held_back(self) -> dict[TopicPartition, int]:
        """The first offset of each partition that was taken but not handed out."""
        first: dict[TopicPartition, int] = {}
        for record in (*self.not_iterated(), *self.leftover):
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return first

    def put_back(self) -> None:
        """Give back what was taken and not handed out: it is fetched again if it is still wanted."""
        for key, offset in self._held_back().items():
            if key in self.engine.positions:
                self.engine.positions.seek(key, offset)
        self.records -= len(self.not_iterated())
        self.iterate([])
        self.leftover = []

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Everything that was handed out."""
        offsets = self.engine.positions.consumed()
        for key, offset in self._held_back().items():
            if key in offsets:
                offsets[key] = OffsetAndMetadata(offset, "", offsets[key].leader_epoch)
        return offsets
