"""Fetch sessions (KIP-227): the broker remembers the partitions of a client, so messages carry only changes.

There are no sockets and no clock here; callers pass the time. Each request must have the next epoch of its session.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from ottla import errors
from ottla.protocol.codec import Message, Struct
from ottla.types import Millis

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_AFTER: Millis = 120_000


class Key(NamedTuple):
    """A partition as the client names it: by topic id, or by topic name in versions without ids."""

    topic: str | None
    topic_id: UUID | None
    partition: int


class Wanted:
    """What a session fetches from one partition, and what was last reported to the client."""

    __slots__ = (
        "current_leader_epoch", "fetch_offset", "high_watermark", "key", "last_fetched_epoch", "log_start_offset",
        "max_bytes", "replica_log_start_offset",
    )  # fmt: skip

    def __init__(self, key: Key, request: Struct) -> None:
        self.key = key
        self.high_watermark = -1
        self.log_start_offset = -1
        self.update(request)

    def update(self, request: Struct) -> None:
        """Apply the changes of an incremental request."""
        self.fetch_offset: int = request.fetch_offset
        self.max_bytes: int = request.partition_max_bytes
        self.current_leader_epoch: int = request.current_leader_epoch
        self.last_fetched_epoch: int = request.last_fetched_epoch
        self.replica_log_start_offset: int = request.log_start_offset

    def knows_less_than(self, response: Message) -> bool:
        """Return whether the client was told a lower high watermark than the one of this response."""
        return bool(self.high_watermark < response["high_watermark"])

    def is_news(self, response: Message, size: int) -> bool:
        """Return whether the response must include this partition, and remember what is reported."""
        news = (
            size > 0
            or is_urgent(response)
            or response["high_watermark"] != self.high_watermark
            or response["log_start_offset"] != self.log_start_offset
        )
        self.high_watermark = response["high_watermark"]
        self.log_start_offset = response["log_start_offset"]
        # After an error the client's state is unknown: the next response includes the partition in any case.
        if response["error_code"] != 0:
            self.high_watermark = -1
        return news


def is_urgent(response: Message) -> bool:
    """Return whether the client must know of a partition's response at once, although it has no records."""
    return response["error_code"] != 0 or "diverging_epoch" in response or "preferred_read_replica" in response


class Session:
    """The partitions that one client fetches."""

    __slots__ = ("by_id", "created", "epoch", "id", "last_used", "wanted")

    def __init__(self, id_: int, wanted: dict[Key, Wanted], by_id: bool, *, now: Millis) -> None:
        self.id = id_
        self.epoch = 1
        self.wanted = wanted
        self.by_id = by_id
        self.created = self.last_used = now

    def change(self, topics: Iterable[Struct], forgotten: Iterable[Struct]) -> None:
        """Add, change and remove partitions as an incremental request says."""
        for key, request in _partitions(topics):
            if key in self.wanted:
                self.wanted[key].update(request)
            else:
                self.wanted[key] = Wanted(key, request)
        for key in _forgotten(forgotten):
            self.wanted.pop(key, None)

    def move_to_end(self, keys: Iterable[Key]) -> None:
        """Read partitions that were just served last next time, so that none starves."""
        for key in keys:
            if key in self.wanted:
                self.wanted[key] = self.wanted.pop(key)


class FetchPlan(NamedTuple):
    """What one request fetches, and its session."""

    wanted: list[Wanted]
    session: Session | None
    is_incremental: bool

    @property
    def session_id(self) -> int:
        return self.session.id if self.session is not None else NO_SESSION


class FetchSessions:
    """The sessions of a broker, up to a limit."""

    def __init__(self, slots: int, new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._new_id = new_id
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: Struct, *, by_id: bool, now: Millis) -> FetchPlan:
        """Return what a request fetches. Raises an error if its session is missing or has another epoch."""
        if not is_incremental(request):
            if request.session_id != NO_SESSION:
                self._sessions.pop(request.session_id, None)
            return self._full(request, by_id=by_id, now=now)
        session = self._expected(request, by_id)
        session.change(request.topics, request.forgotten_topics_data)
        session.epoch = session.epoch + 1 if session.epoch < 2**31 - 1 else 1
        session.last_used = now
        return FetchPlan(list(session.wanted.values()), session, is_incremental=True)

    def partitions(self, request: Struct, *, by_id: bool) -> list[Key]:
        """Return the partitions that `plan` would let a request fetch, without a change. Raises the same errors."""
        known = self._expected(request, by_id).wanted if is_incremental(request) else {}
        asked = {key: None for key, _ in _partitions(request.topics)}
        forgotten = set(_forgotten(request.forgotten_topics_data)) if known else ()
        return [key for key in {**known, **asked} if key not in forgotten]

    def get(self, session_id: int) -> Session | None:
        return self._sessions.get(session_id)

    def close(self, session_id: int) -> None:
        """Forget a session."""
        self._sessions.pop(session_id, None)

    def _expected(self, request: Struct, by_id: bool) -> Session:
        """Return the session of an incremental request, if this request is its next one."""
        session = self._sessions.get(request.session_id)
        if session is None:
            raise errors.FetchSessionIdNotFound(f"There is no fetch session {request.session_id}.")
        if session.by_id != by_id:
            raise errors.FetchSessionTopicIdError("A fetch session uses topic ids or names, not both. Start a new one.")
        if session.epoch != request.session_epoch:
            raise errors.InvalidFetchSessionEpoch(
                f"The fetch session {session.id} expects epoch {session.epoch}, not {request.session_epoch}."
            )
        return session

    def _full(self, request: Struct, *, by_id: bool, now: Millis) -> FetchPlan:
        wanted = {key: Wanted(key, partition) for key, partition in _partitions(request.topics)}
        session = None
        if request.session_epoch == INITIAL_EPOCH and wanted and self._has_room(now=now):
            id_ = next(i for i in iter(self._new_id, None) if i != NO_SESSION and i not in self._sessions)
            session = self._sessions[id_] = Session(id_, wanted, by_id, now=now)
        return FetchPlan(list(wanted.values()), session, is_incremental=False)

    def _has_room(self, *, now: Millis) -> bool:
        if len(self._sessions) < self._slots:
            return True
        oldest = min(self._sessions.values(), key=lambda session: session.last_used, default=None)
        if oldest is None or now - oldest.last_used < EVICTION_AFTER:
            return False
        del self._sessions[oldest.id]
        return True


def is_incremental(request: Struct) -> bool:
    """Return whether a request only tells the changes of its session."""
    return request.session_epoch not in (FINAL_EPOCH, INITIAL_EPOCH)


def _forgotten(topics: Iterable[Struct]) -> Iterator[Key]:
    for topic in topics:
        for partition in topic.partitions:
            yield Key(topic.topic or None, topic.topic_id, partition)


def _partitions(topics: Iterable[Struct]) -> Iterator[tuple[Key, Struct]]:
    for topic in topics:
        name, topic_id = topic.topic or None, topic.topic_id
        for partition in topic.partitions:
            yield Key(name, topic_id, partition.partition), partition


def grouped(partitions: Iterable[tuple[Key, Message]]) -> list[Message]:
    """Group partitions by topic in their order: adjacent partitions of a topic share an entry."""

    def topic_of(partition: tuple[Key, Message]) -> tuple[Any, ...]:
        return partition[0][:2]

    return [
        {"topic": topic or "", "topic_id": topic_id, "partitions": [message for _, message in group]}
        for (topic, topic_id), group in itertools.groupby(partitions, key=topic_of)
    ]
