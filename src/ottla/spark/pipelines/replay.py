"""Send dead letters back to their original topics.

    with Replay(["orders.dead"], group="orders.dead.replay", config={"bootstrap.servers": "…"}) as replay:
        plan = replay.plan(Choice(error="not a number"))
        done = replay.run(plan)

This works for dead letters of pipelines and of `ottla.DeadLetters`, which have the same headers. Each transaction
contains records and the group's offsets in the dead letter topic, so every chosen letter is sent exactly once. A letter
that is not chosen keeps waiting: if a later one in its partition is chosen, the same transaction appends it again.

A replayed record has the header `ottla-replays`, a count that dead letters keep. It limits the number of replays.
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
from ottla.wording import plural

REPLAYS = "ottla-replays"
REPLAYED_FROM = "ottla-replayed-from"
MAX_REPLAYS = 3
FOR_EVER: Millis = 2**63
#: Letters per transaction.
TOGETHER = 500
POLL_SECONDS = 1.0
#: Empty polls before giving up.
PATIENCE_POLLS = 60


class ReplayError(OttlaError):
    """A replay failed."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A dead letter that is waiting in its topic."""

    place: TopicPartition
    offset: int
    timestamp: Millis
    letter: DeadLetter
    replays: int

    @classmethod
    def of(cls, record: ConsumerRecord) -> Waiting | None:
        """None if the record is not a dead letter."""
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
        """The original headers, plus those of the replay."""
        own = [(name, value) for name, value in self.letter.headers if name not in (REPLAYS, REPLAYED_FROM)]
        origin = f"{self.place}:{self.offset}"
        return [*own, (REPLAYS, str(self.replays + 1).encode()), (REPLAYED_FROM, origin.encode())]


def _replays(headers: Headers) -> int:
    """How often a record was replayed.

    >>> _replays([("trace", b"1"), ("ottla-replays", b"2")])
    2
    """
    counts = [int(value) for name, value in headers if name == REPLAYS and value is not None and value.isdigit()]
    return max(counts, default=0)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which dead letters to send back; by default all."""

    error: str | None = None
    """A part of the error class or message; case is ignored."""
    topic: str | None = None
    """The original topic."""
    since: Millis | None = None
    until: Millis | None = None
    """The time range of the dead letters."""
    max_replays: int = MAX_REPLAYS

    def against(self, one: Waiting | None) -> str | None:
        """Why a letter is not chosen; None if it is."""
        if one is None:
            return "not a dead letter"
        if self.topic is not None and one.letter.topic != self.topic:
            return "other topic"
        if self.error is not None and self.error.lower() not in f"{one.letter.error_class}: {one.error}".lower():
            return "other error"
        if not (self.since or 0) <= one.timestamp < (FOR_EVER if self.until is None else self.until):
            return "other time"
        if one.letter.topic == one.place.topic:
            return "comes from a dead letter topic"
        if one.letter.omitted:
            return "has no value, because it was too large for a dead letter"
        if one.replays >= self.max_replays:
            return f"already replayed {plural(self.max_replays, 'time')}"
        return None


@dataclass(slots=True)
class Plan:
    """The plan of a replay."""

    choice: Choice
    start: Offsets
    stop: Offsets = field(default_factory=dict)
    """The offset after the last chosen letter of each partition; later letters are not touched."""
    chosen: int = 0
    by_topic: Counter[str] = field(default_factory=Counter)
    """Chosen letters per target topic."""
    left: Counter[str] = field(default_factory=Counter)
    """Letters that are not chosen, by reason."""

    @property
    def waiting(self) -> int:
        return self.chosen + sum(self.left.values())


@dataclass(slots=True)
class Replayed:
    """The result of a replay."""

    sent: int = 0
    kept: int = 0
    """Letters that were not chosen and were appended again."""


class Replay:
    """The dead letters of some topics, from the position of a group. `plan` changes nothing, `run` does."""

    def __init__(
        self,
        topics: Collection[str],
        *,
        group: str,
        config: Mapping[str, object],
        to: str | None = None,
        keep_timestamps: bool = False,
    ) -> None:
        """`config` is for the clients; `to` replaces the original topic."""
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

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def plan(
        self,
        choice: Choice | None = None,
        *,
        limit: int | None = None,
        each: Callable[[Waiting | None, str | None], None] | None = None,
    ) -> Plan:
        """Check every waiting letter; `each` is called with it and the reason if it is not chosen."""
        start, end = self._bounds()
        plan = Plan(choice or Choice(), start)
        for record in self._records(start, end):
            one = Waiting.of(record)
            against = plan.choice.against(one)
            if against is None and limit is not None and plan.chosen >= limit:
                against = "over the limit"
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
        """The number of waiting letters, and whether it is exact; at most `at_most` offsets are read."""
        start, end = self._bounds()
        distance = sum(end[key] - start[key] for key in end)
        if distance > at_most:
            return distance, False
        return sum(Waiting.of(record) is not None for record in self._records(start, end)), True

    def _bounds(self) -> tuple[Offsets, Offsets]:
        """The offsets from the group's position to the current end."""
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
                raise ReplayError(f"no more dead letters received from {min(left)}, although it has more records")
            if records:
                yield records
            done = {key for key in left if self._consumer.position(key) >= end[key]}
            self._consumer.pause(*done)
            left -= done

    # ── Sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, plan: Plan, *, each: Callable[[Replayed], None] | None = None) -> Replayed:
        """Send the chosen letters; `each` is called after each transaction."""
        done = Replayed()
        if not plan.chosen:
            return done
        self._check_targets(plan)
        try:
            producer = self._transactional()
            # An earlier replay is fenced now; its finished transactions count.
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
                f"another replay of group {self._group} has taken over: {done.sent} letters were sent before"
            ) from None
        return done

    def _check_targets(self, plan: Plan) -> None:
        found = self._admin.describe_topics(sorted(plan.by_topic), raise_errors=False)
        for name, error in found.errors.items():
            raise ReplayError(
                f"cannot send {plan.by_topic[name]} dead letters to topic {name}: {error}. Create the topic, or choose "
                "another with --to"
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
