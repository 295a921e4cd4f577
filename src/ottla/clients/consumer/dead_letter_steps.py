"""Decides what to do with a record whose handler fails: retry it, write it to a dead-letter topic, continue.

`steps` is a generator: it yields the next step (call the handler, wait, send, commit) and receives the outcome.
`dead_letters.py` carries out the steps, blocking or with asyncio; tests do so in virtual time.

    handler ──ok──> next record
       │ raises                ┌──────────────────────────┐
       └──> wait, again ... ──>│ dead letter, acknowledged │──> next record ──> commit at the end of the batch
                               └──────────────────────────┘

A letter has the original record and describes the error in its headers, which may make it larger than the producer or
the dead-letter topic accepts. Then it gets shorter headers, and finally no value: it only says where the record is. So
no record can stop the group.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.clients.cluster.connections import Backoff
from ottla.clients.serializers import SerializationError
from ottla.consuming.values import ConsumerRecord
from ottla.errors import ConfigError, MessageTooLarge, RecordListTooLarge
from ottla.types import Millis, TopicPartition

PREFIX = "dead-letter-"
MAX_MESSAGE_CHARACTERS = 1_000
MAX_TRACEBACK_CHARACTERS = 8_000
SHORT_MESSAGE_CHARACTERS = 100
PLACE = ("topic", "partition", "offset")
TOO_LARGE = (MessageTooLarge, RecordListTooLarge)

Headers = list[tuple[str, bytes | None]]
Serialize = Callable[[str, Any], bytes | None]


@dataclass(frozen=True, slots=True)
class Handle:
    """Call the handler; the outcome is what it raised, or None."""

    record: ConsumerRecord


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait before the next attempt; the outcome is a `Waited`."""

    ms: Millis
    pending: dict[TopicPartition, int]
    """The partitions of the unfinished records, and the first offset of each."""


@dataclass(frozen=True, slots=True)
class Waited:
    """What happened during a wait."""

    stopped: bool = False
    lost: frozenset[TopicPartition] = frozenset()
    """Partitions that went to other members, which start at the committed offsets."""


@dataclass(frozen=True, slots=True)
class Send:
    """Write a dead letter and wait until it is acknowledged."""

    letter: Letter


@dataclass(frozen=True, slots=True)
class Commit:
    offsets: dict[TopicPartition, int]


Step = Handle | Wait | Send | Commit
Steps = Generator[Step, Any, "Processed"]


@dataclass(slots=True)
class Processed:
    """What happened to some records."""

    handled: int = 0
    dead: int = 0
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Letter:
    """A record for a dead-letter topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    omitted: tuple[str, ...] = ()
    """What was too large for the letter."""

    def __str__(self) -> str:
        """For the log: where the record goes, and why."""
        told = {name: (value or b"").decode("utf-8", "replace") for name, value in self.headers}
        place = "{}-{} at offset {}".format(*(told[PREFIX + name] for name in PLACE))
        why = ": ".join(told[PREFIX + name] for name in ("error-class", "error-message") if PREFIX + name in told)
        said = f"{place} goes to {self.topic}" + (f" ({why})" if why else "")
        if not self.omitted:
            return said
        return (
            f"{said} without its {' and '.join(self.omitted)}, which is too large: copy the record while it exists, "
            f"and raise max.request.size of the producer (it counts bytes before they are compressed) or "
            f"max.message.bytes of topic {self.topic}"
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """How often a record is tried, how long to wait in between, and where it goes then."""

    topic: str
    group: str = ""
    attempts: int = 3
    backoff: Backoff = field(default_factory=lambda: Backoff(100, 10_000))
    retry_on: tuple[type[Exception], ...] = (Exception,)
    key: Serialize | None = None
    value: Serialize | None = None

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError(f"attempts must be at least 1, not {self.attempts}.")
        if "{topic}" in self.topic and self.topic.strip() == "{topic}":
            raise ConfigError("the dead letters of a topic cannot go to the topic itself: they would be read again.")

    def steps(
        self, records: Iterable[ConsumerRecord], *, chance: Callable[[], float], stopping: Callable[[], bool]
    ) -> Steps:
        """Handle records in order; commit what is done before a wait and at the end, even after an error."""
        done = Processed()
        progress: dict[TopicPartition, int] = {}
        todo = deque(records)
        try:
            while todo:
                key, offset = _key(todo[0]), todo[0].offset
                waited = Waited(stopped=True) if stopping() else (yield from self._first(todo, done, progress, chance))
                if waited.lost:
                    todo = deque(record for record in todo if _key(record) not in waited.lost)
                if waited.stopped:
                    done.stopped = True
                    break
                if key not in waited.lost:
                    progress[key] = offset + 1
                    todo.popleft()
        except Exception:
            # Earlier records are done: only the one that could not be given up is retried.
            if progress:
                yield Commit(progress)
            raise
        if progress:
            yield Commit(progress)
        return done

    def _first(
        self,
        todo: Collection[ConsumerRecord],
        done: Processed,
        progress: dict[TopicPartition, int],
        chance: Callable[[], float],
    ) -> Generator[Step, Any, Waited]:
        """Handle the first of the records; what happens during its waits concerns all of them."""
        record, attempt = next(iter(todo)), 1
        lost: frozenset[TopicPartition] = frozenset()
        while True:
            error: Exception | None = yield Handle(record)
            if error is None:
                done.handled += 1
                return Waited(lost=lost)
            if attempt >= self.attempts or not isinstance(error, self.retry_on):
                break
            # A rebalance during the wait must not give finished records to others.
            if progress:
                yield Commit(dict(progress))
                progress.clear()
            pending = {key: offset for key, offset in _firsts(todo).items() if key not in lost}
            waited: Waited = yield Wait(self.backoff.after(attempt, chance=chance()), pending)
            lost |= waited.lost
            if waited.stopped or _key(record) in lost:
                return Waited(waited.stopped, lost)
            attempt += 1
        yield from self._give_up(record, error, attempt)
        done.dead += 1
        return Waited(lost=lost)

    def undecodable(self, record: ConsumerRecord, error: Exception) -> Steps:
        """Give up a record that the consumer's deserializers cannot read."""
        yield from self._give_up(record, error, 0)
        yield Commit({_key(record): record.offset + 1})
        return Processed(dead=1)

    def _give_up(self, record: ConsumerRecord, error: Exception, attempts: int) -> Generator[Step, Any, None]:
        """Send the first letter that is not too large."""
        *larger, smallest = self.letters(record, error, attempts)
        for letter in larger:
            try:
                yield Send(letter)
            except TOO_LARGE:
                continue
            return
        yield Send(smallest)

    def letters(self, record: ConsumerRecord, error: Exception, attempts: int) -> Iterator[Letter]:
        """The original record with the error in its headers, then smaller and smaller variants."""
        topic = self.topic.replace("{topic}", record.topic)
        if topic == record.topic:
            raise ConfigError(f"topic {topic} is its own dead-letter topic: choose another one, or do not read it.")
        own = [(name, value) for name, value in record.headers if not name.startswith(PREFIX)]
        key, value = _bytes(record.topic, record.key, self.key), _bytes(record.topic, record.value, self.value)
        told = self._told(record, error, attempts)
        for some in _ever_less(told):
            yield Letter(topic, key, value, own + _headers(some))
        for omitted in (("value",), ("value", "key", "headers")):
            rest = (None, []) if "key" in omitted else (key, own)
            left_out = {"omitted": ",".join(omitted), "size": 0 if value is None else len(value)}
            for some in _ever_less(told):
                yield Letter(topic, rest[0], None, rest[1] + _headers(some | left_out), omitted)

    def _told(self, record: ConsumerRecord, error: Exception, attempts: int) -> dict[str, object]:
        return {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "group": self.group,
            "attempts": attempts,
            "error-class": f"{type(error).__module__}.{type(error).__qualname__}",
            "error-message": _cut(str(error), MAX_MESSAGE_CHARACTERS),
            "error-traceback": _cut_front("".join(traceback.format_exception(error)), MAX_TRACEBACK_CHARACTERS),
        }


def _ever_less(told: dict[str, object]) -> Iterator[dict[str, object]]:
    """The contents of the headers: everything, without the traceback, with a short message, only the record's place."""
    yield told
    brief = {name: value for name, value in told.items() if name != "error-traceback"}
    yield brief
    yield brief | {"error-message": _cut(str(told["error-message"]), SHORT_MESSAGE_CHARACTERS)}
    yield {name: told[name] for name in PLACE}


def _headers(told: dict[str, object]) -> Headers:
    return [(PREFIX + name, str(value).encode("utf-8", "replace")) for name, value in told.items()]


def _key(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


def _firsts(records: Iterable[ConsumerRecord]) -> dict[TopicPartition, int]:
    firsts: dict[TopicPartition, int] = {}
    for record in records:
        firsts.setdefault(_key(record), record.offset)
    return firsts


def _bytes(topic: str, value: Any, serialize: Serialize | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if serialize is not None:
        return serialize(topic, value)
    raise SerializationError(
        f"a dead letter needs the bytes of the record, not a {type(value).__name__}: give key_serializer and "
        "value_serializer that reverse the consumer's deserializers"
    )


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _cut_front(text: str, limit: int) -> str:
    """Keep the end of a traceback, which matters most."""
    return text if len(text) <= limit else f"…{text[1 - limit :]}"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter that was read back: `DeadLetter.of(record)`."""

    topic: str
    partition: int
    offset: int
    timestamp: Millis
    group: str
    attempts: int
    error_class: str
    error_message: str
    traceback: str
    key: Any
    value: Any
    headers: Headers
    """The headers of the original record."""
    omitted: tuple[str, ...] = ()
    """What was too large for the letter: the value, or also the key and headers. The record itself has it."""
    size: int | None = None
    """The size of an omitted value in bytes."""

    @property
    def reason(self) -> str:
        """Why the record was given up: the message of the error."""
        return self.error_message

    @classmethod
    def of(cls, record: ConsumerRecord) -> DeadLetter:
        """ValueError if the record is not a dead letter."""
        told = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
        if PREFIX + "topic" not in told:
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            raise ValueError(f"the record of {where} is not a dead letter: it has no header {PREFIX}topic")

        def number(name: str) -> int:
            text = told.get(PREFIX + name, "")
            return int(text) if text.lstrip("-").isdigit() else -1

        return cls(
            topic=told[PREFIX + "topic"],
            partition=number("partition"),
            offset=number("offset"),
            timestamp=number("timestamp"),
            group=told.get(PREFIX + "group", ""),
            attempts=number("attempts"),
            error_class=told.get(PREFIX + "error-class", ""),
            error_message=told.get(PREFIX + "error-message", ""),
            traceback=told.get(PREFIX + "error-traceback", ""),
            key=record.key,
            value=record.value,
            headers=[(name, value) for name, value in record.headers if not name.startswith(PREFIX)],
            omitted=tuple(filter(None, told.get(PREFIX + "omitted", "").split(","))),
            size=number("size") if PREFIX + "size" in told else None,
        )
