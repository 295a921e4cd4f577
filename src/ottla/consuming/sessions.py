"""Fetch sessions (KIP-227): the broker remembers what a consumer fetches, and a request has only the changes.

    full request (epoch 0) ──> the response has a session id ──> epoch 1, 2, 3 … send the changes

A session error or a lost connection starts over with a full request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.protocol.codec import Message
from ottla.types import TopicPartition

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1


class Wanted(NamedTuple):
    """What a fetch requests of one partition."""

    topic_id: UUID | None
    offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int = -1
    """Of a follower's log."""
    log_start_offset: int = -1
    """Of a follower's log."""


class FetchSession:
    """What one broker remembers of this consumer."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self._known: dict[TopicPartition, Wanted] = {}

    def reset(self) -> None:
        """Start over with a full request, which also closes the old session."""
        self.epoch = INITIAL_EPOCH
        self._known = {}

    def message(self, wanted: Mapping[TopicPartition, Wanted]) -> Message:
        """The part of a request that says what to fetch: everything, or the changes since the last call."""
        full = self.epoch == INITIAL_EPOCH
        changed = {key: want for key, want in wanted.items() if full or self._known.get(key) != want}
        gone = {key: want.topic_id for key, want in self._known.items() if self._is_gone(key, want, wanted)}
        self._known = dict(wanted)
        return {
            "session_id": self.id,
            "session_epoch": self.epoch,
            "topics": _topics(changed),
            "forgotten_topics_data": _forgotten(gone),
        }

    @staticmethod
    def _is_gone(key: TopicPartition, known: Wanted, wanted: Mapping[TopicPartition, Wanted]) -> bool:
        now = wanted.get(key)
        return now is None or now.topic_id != known.topic_id

    def answered(self, session_id: int) -> None:
        """The broker has accepted the request; without an id it has no room for a session."""
        if session_id == NO_SESSION:
            self.id = NO_SESSION
            self.reset()
            return
        self.id = session_id
        self.epoch = 1 if self.epoch in (INITIAL_EPOCH, _MAX_EPOCH) else self.epoch + 1

    def closing(self) -> Message | None:
        """The request that closes the session on the broker; None if there is none."""
        if self.id == NO_SESSION:
            return None
        return {"session_id": self.id, "session_epoch": FINAL_EPOCH, "topics": [], "forgotten_topics_data": []}


def sessionless(wanted: Mapping[TopicPartition, Wanted]) -> Message:
    """The same part of a request without a session."""
    return {
        "session_id": NO_SESSION,
        "session_epoch": FINAL_EPOCH,
        "topics": _topics(wanted),
        "forgotten_topics_data": [],
    }


def _topics(wanted: Mapping[TopicPartition, Wanted]) -> list[Message]:
    topics: dict[str, Message] = {}
    for key, want in wanted.items():
        entry = topics.setdefault(key.topic, {"topic": key.topic, "topic_id": want.topic_id, "partitions": []})
        entry["partitions"].append(
            {
                "partition": key.partition,
                "current_leader_epoch": want.leader_epoch,
                "last_fetched_epoch": want.last_fetched_epoch,
                "log_start_offset": want.log_start_offset,
                "fetch_offset": want.offset,
                "partition_max_bytes": want.max_bytes,
            }
        )
    return list(topics.values())


def _forgotten(gone: Mapping[TopicPartition, UUID | None]) -> list[Message]:
    topics: dict[tuple[str, UUID | None], list[int]] = {}
    for key, topic_id in gone.items():
        topics.setdefault((key.topic, topic_id), []).append(key.partition)
    return [
        {"topic": topic, "topic_id": topic_id, "partitions": partitions}
        for (topic, topic_id), partitions in topics.items()
    ]
