"""Dead letters go back to the topics that they came from, after whatever broke them was repaired.

    with Replay(["orders.dead"], group="orders.dead.replay", config={"bootstrap.servers": "…"}) as replay:
        plan = replay.plan(Choice(error="not a number"))
        done = replay.run(plan)

It serves the dead letters of pipelines and those of `ottla.DeadLetters` alike: both have the same headers. Records, and
how far the group has read the dead letters, are written in one transaction each time, so that every chosen letter is
sent once, whatever fails and whenever. A letter that is not chosen goes on to wait: if one behind it in its log is
chosen, it is written to the end of its partition again, in the same transaction.

A record that was sent back has the header `ottla-replays`, a count, which dead letters keep; a record that has failed
often enough is not sent again, so that nothing goes round for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.blocking import Consumer
from ottla.clients.consumer.dead_letter_steps import DeadLetter, Headers
from ottla.clients.producer.blocking import Producer
from ottla.config.admin import AdminConfig
from ottla.config.consumer import ConsumerConfig
from ottla.config.producer import ProducerConfig
from ottla.config.table import rows
from ottla.consuming.values import ConsumerRecord
from ottla.errors import InvalidProducerEpoch, OttlaError, ProducerFenced
from ottla.spark.options import Offsets
from ottla.types import Millis, TopicPartition

REPLAYS = "ottla-replays"
REPLAYED_FROM = "ottla-replayed-from"
MAX_REPLAYS = 3
FOR_EVER: Millis = 2**63
#: Letters of one transaction.
TOGETHER = 500
POLL_SECONDS = 1.0
#: No record for so long, although there must be more.
PATIENCE_POLLS = 60


class ReplayError(OttlaError):
    """Dead letters cannot be sent back."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A dead letter in its topic."""

    place: TopicPartition
    offset: int
    timestamp: Millis
    letter: DeadLetter
    replays: int

    @classmethod
    def of(cls, record: ConsumerRecord) -> Waiting | None:
        """None for a record that is no dead letter."""
        try:
            letter = DeadLetter.of(record)
        except ValueError:
            return None
        place = TopicPartition(record.topic, record.partition)
        return cls(place, record.offset, record.timestamp, letter, _replays(letter.headers))

    @property
    def error(self) -> str:
        kind = self.letter.error_class.rpartition(".")[2]
        return ": ".join(part for part in (kind, self.letter.error_message) if part)

    def headers(self) -> Headers:
        """The record's own headers, and what tells that it comes back."""
        own = [(name, value) for name, value in self.letter.headers if name not in (REPLAYS, REPLAYED_FROM)]
        origin = f"{self.place}:{self.offset}"
        return [*own, (REPLAYS, str(self.replays + 1).encode()), (REPLAYED_FROM, origin.encode())]


def _replays(headers: Headers) -> int:
    """How often a record was sent back.

    >>> _replays([("trace", b"1"), ("ottla-replays", b"2")])
    2
    """
    counts = [int(value) for name, value in headers if name == REPLAYS and value is not None and value.isdigit()]
    return max(counts, default=0)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which dead letters to send back; all, unless something is given."""

    error: str | None = None
    """A part of the error's class or message, in any case."""
    topic: str | None = None
    """The topic that the record came from."""
    since: Millis | None = None
    until: Millis | None = None
    """When the record was given up."""
    max_replays: int = MAX_REPLAYS

    def against(self, one: Waiting | None) -> str | None:
        """Why a letter is not chosen."""
        if one is None:
            return "no dead letter"
        if self.topic is not None and one.letter.topic != self.topic:
            return "from another topic"
        if self.error is not None and self.error.lower() not in f"{one.letter.error_class}: {one.error}".lower():
            return "another error"
        if not (self.since or 0) <= one.timestamp < (FOR_EVER if self.until is None else self.until):
            return "another time"
        if one.letter.topic == one.place.topic:
            return "came from the dead letters themselves"
        if one.letter.omitted:
            return "without the value, which was too large for a letter"
        if one.replays >= self.max_replays:
            return f"sent back {self.max_replays} times already"
        return None


@dataclass(slots=True)
class Plan:
    """What a replay will do."""

    choice: Choice
    start: Offsets
    stop: Offsets = field(default_factory=dict)
    """After the last chosen letter of each partition; what lies behind it stays as it is."""
    chosen: int = 0
    by_topic: Counter[str] = field(default_factory=Counter)
    """The topics that the chosen letters go to."""
    left: Counter[str] = field(default_factory=Counter)
    """Why others are left to wait."""

    @property
    def waiting(self) -> int:
        return self.chosen + sum(self.left.values())


@dataclass(slots=True)
class Replayed:
    """What a replay has done."""

    sent: int = 0
    kept: int = 0
    """Not chosen, and written to the end of the dead letters again."""


class Replay:
    """The dead letters of some topics, as a group sees them. `plan` changes nothing, `run` does."""

    def __init__(
        self,
        topics: Collection[str],
        *,
        group: str,
        config: Mapping[str, object],
        to: str | None = None,
        keep_timestamps: bool = False,
    ) -> None:
        """`config` is that of clients, `to` another topic than the one that a letter came from."""
        self._topics = sorted(topics)
        self._group = group
        self._to = to
        self._keep_timestamps = keep_timestamps
        self._config = {"client.id": "ottla-replay", **config}
        self._admin = Admin(_known(self._config, rows(AdminConfig)))
        self._producer: Producer | None = None
        try:
            self._consumer = Consumer(
                {
                    **_known(self._config, rows(ConsumerConfig)),
                    "group.id": group,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "allow.auto.create.topics": False,
                    "max.poll.records": TOGETHER,
                }
            )
        except BaseException:
            self._admin.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()
        self._admin.close()
        if self._producer is not None:
            self._producer.close(0 if kind is not None else None)

    # ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def plan(
        self,
        choice: Choice | None = None,
        *,
        limit: int | None = None,
        each: Callable[[Waiting | None, str | None], None] | None = None,
    ) -> Plan:
        """Look at every letter that waits; `each` is told of it, and why it is not chosen if it is not."""
        start, end = self._bounds()
        plan = Plan(choice or Choice(), start)
        for record in self._records(start, end):
            one = Waiting.of(record)
            against = plan.choice.against(one)
            if against is None and limit is not None and plan.chosen >= limit:
                against = "above the limit"
            if each is not None:
                each(one, against)
            if against is not None or one is None:
                plan.left[against or ""] += 1
                continue
            plan.chosen += 1
            plan.by_topic[self._to or one.letter.topic] += 1
            plan.stop[one.place] = record.offset + 1
        return plan

    def waiting(self, *, at_most: int) -> tuple[int, bool]:
        """How many dead letters wait, and whether that is exact: more than `at_most` offsets are not read."""
        start, end = self._bounds()
        distance = sum(end[key] - start[key] for key in end)
        if distance > at_most:
            return distance, False
        return sum(Waiting.of(record) is not None for record in self._records(start, end)), True

    def _bounds(self) -> tuple[Offsets, Offsets]:
        """From where the group is to the end of what is committed now; letters that come meanwhile are not for us."""
        found = self._admin.describe_topics(self._topics)
        keys = [TopicPartition(one.name, part.partition) for one in found.values() for part in one.partitions]
        committed = self._consumer.committed(keys)
        first, end = self._consumer.beginning_offsets(keys), self._consumer.end_offsets(keys)
        start = {key: max(first[key], one.offset) if (one := committed[key]) else first[key] for key in keys}
        return {key: min(start[key], end[key]) for key in keys}, end

    def _records(self, start: Offsets, end: Offsets) -> Iterator[ConsumerRecord]:
        for records in self._polls(start, end):
            yield from records

    def _polls(self, start: Offsets, end: Offsets) -> Iterator[list[ConsumerRecord]]:
        """What lies between, as it comes."""
        left = {key for key in end if start[key] < end[key]}
        if not left:
            return
        self._consumer.assign(left)
        self._consumer.resume(*left)
        for key in left:
            self._consumer.seek(key, start[key])
        empty = 0
        while left:
            records = [
                record
                for record in self._consumer.poll(POLL_SECONDS)
                if record.offset < end[TopicPartition(record.topic, record.partition)]
            ]
            empty = 0 if records else empty + 1
            if empty > PATIENCE_POLLS:
                raise ReplayError(f"no more dead letters came from {min(left)}, although its log goes on")
            if records:
                yield records
            done = {key for key in left if self._consumer.position(key) >= end[key]}
            self._consumer.pause(*done)
            left -= done

    # ── Sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, plan: Plan, *, each: Callable[[Replayed], None] | None = None) -> Replayed:
        """Send what the plan has chosen; `each` is told how far it is after each transaction."""
        done = Replayed()
        if not plan.chosen:
            return done
        self._check_targets(plan)
        try:
            producer = self._transactional()
            # Whoever began before is fenced now, and what it has finished counts.
            start, _ = self._bounds()
            for records in self._polls({key: start[key] for key in plan.stop}, plan.stop):
                with producer.transaction():
                    moved = self._move(producer, plan.choice, records)
                    offsets = {TopicPartition(one.topic, one.partition): one.offset + 1 for one in records}
                    producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())
                done.sent += moved.sent
                done.kept += moved.kept
                if each is not None:
                    each(done)
        except (ProducerFenced, InvalidProducerEpoch):
            raise ReplayError(
                f"another replay of group {self._group} has begun and goes on with the rest: {done.sent} were sent here"
            ) from None
        return done

    def _check_targets(self, plan: Plan) -> None:
        found = self._admin.describe_topics(sorted(plan.by_topic), raise_errors=False)
        for name, error in found.errors.items():
            raise ReplayError(
                f"{plan.by_topic[name]} dead letters cannot go to topic {name}: {error}. Create it, or choose another "
                "with --to"
            )

    def _transactional(self) -> Producer:
        if self._producer is None:
            config = _known(self._config, rows(ProducerConfig))
            self._producer = Producer({**config, "transactional.id": f"ottla-replay-{self._group}", "linger.ms": 5})
            self._producer.init_transactions()
        return self._producer

    def _move(self, producer: Producer, choice: Choice, records: Collection[ConsumerRecord]) -> Replayed:
        moved = Replayed()
        for record in records:
            one = Waiting.of(record)
            if one is None or choice.against(one) is not None:
                producer.send(
                    record.topic,
                    record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp=record.timestamp,
                )
                moved.kept += 1
                continue
            time = one.letter.timestamp if self._keep_timestamps and one.letter.timestamp >= 0 else None
            target, headers = self._to or one.letter.topic, one.headers()
            producer.send(target, one.letter.value, key=one.letter.key, headers=headers, timestamp=time)
            moved.sent += 1
        return moved


def _known(config: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: value for name, value in config.items() if name in names}
