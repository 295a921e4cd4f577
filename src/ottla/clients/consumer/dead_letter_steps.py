"""What to do with a record whose handler fails: try again, give it up to a dead-letter topic, go on. Decisions only.

`steps` is a generator: it yields what to do next (call the handler, wait, send, commit) and is told the outcome.
The two faces in `dead_letters.py` do it, one blocking and one with asyncio; tests do it in virtual time.

    handler ──ok──> next record
       │ raises                ┌──────────────────────────┐
       └──> wait, again ... ──>│ dead letter, acknowledged │──> next record ──> commit at the end of the batch
                               └──────────────────────────┘

A letter has the record as it was and tells of the error in its headers, which may make it larger than the producer or
the dead-letter topic takes. Then the headers say less and less, and at last the letter has no value: it tells where
the record lies. Whatever a record is, the group goes on.
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
    """Call the handler; the answer is what it raised, or None."""

    record: ConsumerRecord


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait before the next attempt; the answer is a `Waited`."""

    ms: Millis
    pending: dict[TopicPartition, int]
    """The partitions of the records that are not done yet, and the first of them."""


@dataclass(frozen=True, slots=True)
class Waited:
    """What happened meanwhile."""

    stopped: bool = False
    lost: frozenset[TopicPartition] = frozenset()
    """Partitions that went to other members, which begin with what was committed."""


@dataclass(frozen=True, slots=True)
class Send:
    """Write a dead letter and come back when it is acknowledged."""

    letter: Letter


@dataclass(frozen=True, slots=True)
class Commit:
    offsets: dict[TopicPartition, int]


Step = Handle | Wait | Send | Commit
Steps = Generator[Step, Any, "Processed"]


@dataclass(slots=True)
class Processed:
    """What became of some records."""

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
    """What of the record was too large for it."""

    def __str__(self) -> str:
        """For the log: where the record goes, and why."""
        told = {name: (value or b"").decode("utf-8", "replace") for name, value in self.headers}
        place = "{}-{} at offset {}".format(*(told[PREFIX + name] for name in PLACE))
        why = ": ".join(told[PREFIX + name] for name in ("error-class", "error-message") if PREFIX + name in told)
        said = f"{place} goes to {self.topic}" + (f" ({why})" if why else "")
        if not self.omitted:
            return said
        return (
            f"{said} without its {' and '.join(self.omitted)}, which is too large: copy the record while it is there, "
            f"and raise max.request.size of the producer (it counts bytes before they are compressed) or "
            f"max.message.bytes of topic {self.topic}"
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """How often a record is tried, how long it waits, and where it goes then."""

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
            raise ConfigError("the dead letters of a topic cannot go to the topic itself: they would come back.")

    def steps(
        self, records: Iterable[ConsumerRecord], *, chance: Callable[[], float], stopping: Callable[[], bool]
    ) -> Steps:
        """Handle records in their order; commit what is done before a wait and at the end, whatever the end is."""
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
            # What was done before is done: only the record that could not be given up is tried again.
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
        """Handle the first of the records; what happened while it waited concerns all of them."""
        record, attempt = next(iter(todo)), 1
        lost: frozenset[TopicPartition] = frozenset()
        while True:
            error: Exception | None = yield Handle(record)
            if error is None:
                done.handled += 1
                return Waited(lost=lost)
            if attempt >= self.attempts or not isinstance(error, self.retry_on):
                break
            # A rebalance meanwhile must not give to others what is done already.
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
        """A record that the consumer's deserializers cannot read: nobody can handle it."""
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
        """The record as it was, with what went wrong in its headers; then smaller and smaller ones."""
        topic = self.topic.replace("{topic}", record.topic)
        if topic == record.topic:
            raise ConfigError(f"topic {topic} has dead letters of its own: give them another topic, or do not read it.")
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
    """What a letter tells: all of it, without the traceback, with a short message, only where the record lies."""
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
        f"a dead letter needs the bytes of the record, and has a {type(value).__name__}: give key_serializer and "
        "value_serializer that undo the consumer's deserializers"
    )


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _cut_front(text: str, limit: int) -> str:
    """Of a traceback the end matters."""
    return text if len(text) <= limit else f"…{text[1 - limit :]}"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of a dead-letter topic, read again: `DeadLetter.of(record)`."""

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
    """That the record had before."""
    omitted: tuple[str, ...] = ()
    """What of the record was too large for a letter: its value, or its key and headers too. It lies in its topic."""
    size: int | None = None
    """The bytes of a value that was omitted."""

    @classmethod
    def of(cls, record: ConsumerRecord) -> DeadLetter:
        """ValueError if the record is no dead letter."""
        told = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
        if PREFIX + "topic" not in told:
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            raise ValueError(f"the record of {where} is no dead letter: it has no header {PREFIX}topic")

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
