"""What to fetch next and from which broker, and what a response means.

One Fetch is in flight to each broker that leads a fetchable partition. A partition is fetchable when its position is
known, it is not paused, its end (`fetch_until`) is not reached, no fetch of it is in flight, and less than two fetches
of it wait in the buffer. So records are processed and fetched at the same time, and the buffer is bounded.

While the user is faster than the fetches there are two, each for half of the partitions: the broker reads for one while
the other is received. A broker answers a connection in order, so both must be fetches that it answers at once: all of
their partitions are behind the high watermark.

A fetch of partitions that are all at their ends waits on the broker, and delays others of the same broker that become
fetchable in the meantime. So while something of the broker is buffered, fetches wait only for a short time, longer each
time that they return nothing.

A fetch of a range (`fetch_until`) asks for no more bytes than the rest of the range probably has: what lies behind its
end would be sent in vain. So the limit can be high, and ranges need few fetches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ottla.consuming.batches import Aborted, readable
from ottla.consuming.buffer import AHEAD, Buffer, Completed
from ottla.consuming.positions import Need, PartitionState, Positions
from ottla.consuming.sessions import NO_SESSION, FetchSession, Wanted, sessionless
from ottla.errors import (
    CorruptMessage,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaError,
    OffsetOutOfRange,
    error_class,
)
from ottla.protocol.codec import Message, Struct
from ottla.types import BrokerId, Millis, TopicPartition

SHORT_WAIT_MS: Millis = 5
#: The first fetch of a range, which shows how large the records of the topic are.
SAMPLE_BYTES = 1024 * 1024
#: A fetch of the rest of a range is larger than expected by a part and a batch, so that it is usually the last one.
MARGIN, MARGIN_BYTES = 1.1, 64 * 1024
#: How many fetches may be in flight to one broker.
PIPELINED = 2
_SESSION_ERRORS = (FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError)


Share = dict[TopicPartition, tuple[PartitionState, "Leader"]]
"""Partitions to fetch from one broker."""


class Leader(NamedTuple):
    """The leader of a partition according to the metadata."""

    node: BrokerId
    epoch: int
    topic_id: UUID | None


@dataclass(frozen=True, slots=True)
class FetchLimits:
    max_wait_ms: Millis = 500
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    partition_max_bytes: int = 1_048_576
    read_committed: bool = False
    check_crcs: bool = True
    rack: str = ""
    backoff_ms: Millis = 100
    preferred_replica_ms: Millis = 300_000


@dataclass(slots=True, eq=False)
class Fetch:
    """One request to one broker, and what it asked for."""

    node: BrokerId
    message: Message
    asked: dict[TopicPartition, tuple[PartitionState, int, int]]
    """State, token and offset of each partition."""
    names: dict[UUID | str | None, str] = field(default_factory=dict)
    in_session: bool = True
    """A second fetch to the same broker uses no session."""
    is_prompt: bool = False
    """Whether the broker can probably respond at once."""


class Outcome(NamedTuple):
    """What a response means apart from the buffered records."""

    stale: bool = False
    """Metadata is out of date."""
    completed: tuple[Completed, ...] = ()


class Fetcher:
    """Plans fetches and reads responses."""

    def __init__(self, positions: Positions, buffer: Buffer, limits: FetchLimits) -> None:
        self._positions = positions
        self._buffer = buffer
        self._limits = limits
        self._sessions: dict[BrokerId, FetchSession] = {}
        self._under_way: dict[BrokerId, list[Fetch]] = {}
        self._not_before: dict[BrokerId, Millis] = {}
        self._in_vain: dict[BrokerId, int] = {}
        """How many fetches in a row returned nothing."""
        self._record_bytes: dict[TopicPartition | str, float] = {}
        """Bytes per offset in the last fetch of a range, by partition and by topic."""

    # ── planning ──────────────────────────────────────────────────────────────────────────────────────────────────

    def poll(
        self, leader_of: Callable[[TopicPartition], Leader | None], *, now: Millis
    ) -> tuple[list[Fetch], bool, Millis | None]:
        """Return the fetches to send now, whether a partition has no leader, and when to call again at the latest."""
        shares: dict[BrokerId, Share] = {}
        busy: set[BrokerId] = set()
        leaderless, wake = False, None
        for state in self._positions.states():
            if state.need is not Need.NOTHING or state.paused or state.position is None or state.fetching:
                continue
            if state.until is not None and state.fetch_offset >= state.until:
                continue
            if state.received - state.started >= AHEAD:
                if (leader := leader_of(state.partition)) is not None:
                    busy.add(leader.node)
                continue
            if state.retry_at > now:
                wake = state.retry_at if wake is None else min(wake, state.retry_at)
                continue
            leader = leader_of(state.partition)
            if leader is None:
                leaderless = True
                continue
            node = state.read_from(now=now)
            shares.setdefault(leader.node if node is None else node, {})[state.partition] = (state, leader)
        fetches = []
        for node, share in shares.items():
            under_way = self._under_way.setdefault(node, [])
            if under_way and (len(under_way) == PIPELINED or not under_way[0].is_prompt):
                continue
            if (due := self._not_before.get(node, 0)) > now:
                wake = due if wake is None else min(wake, due)
                continue
            planned = self._planned(node, share, self._wait(node, node in busy))
            under_way += planned
            fetches += planned
        return fetches, leaderless, wake

    def _wait(self, node: BrokerId, busy: bool) -> Millis:
        longest = self._limits.max_wait_ms
        return min(longest, SHORT_WAIT_MS << min(self._in_vain.get(node, 0), 16)) if busy else longest

    def _planned(self, node: BrokerId, share: Share, wait_ms: Millis) -> list[Fetch]:
        """Plan one fetch of everything, two of half each, or none beside the one in flight."""
        under_way = self._under_way[node]
        is_prompt = self._limits.min_bytes <= 1 and all(self._is_behind(state) for state, _ in share.values())
        # If the buffer has more than this fetch brings, the user is slower than the fetches, and large ones cost less.
        pipelines = is_prompt and len(self._buffer) <= len(share)
        if under_way:
            in_session = not under_way[0].in_session
            return [self._fetch(node, share, wait_ms, in_session, is_prompt)] if pipelines else []
        if not pipelines or len(share) == 1:
            return [self._fetch(node, share, wait_ms, True, is_prompt)]
        entries = list(share.items())
        half = (len(entries) + 1) // 2
        return [
            self._fetch(node, dict(entries[:half]), wait_ms, True, is_prompt),
            self._fetch(node, dict(entries[half:]), wait_ms, False, is_prompt),
        ]

    def _is_behind(self, state: PartitionState) -> bool:
        end = state.last_stable_offset if self._limits.read_committed else state.high_watermark
        return end is not None and state.fetch_offset < end

    def _fetch(self, node: BrokerId, share: Share, wait_ms: Millis, in_session: bool, is_prompt: bool) -> Fetch:
        limits = self._limits
        wanted, asked = {}, {}
        names: dict[UUID | str | None, str] = {}
        for key, (state, leader) in share.items():
            state.fetching = True
            asked[key] = (state, state.token, state.fetch_offset)
            wanted[key] = Wanted(leader.topic_id, state.fetch_offset, self._most_bytes(state), leader.epoch)
            names[key.topic] = names[leader.topic_id] = key.topic
        session = self._sessions.setdefault(node, FetchSession())
        message = {
            "max_wait": wait_ms,
            "min_bytes": limits.min_bytes,
            "max_bytes": limits.max_bytes,
            "isolation_level": int(limits.read_committed),
            "rack_id": limits.rack,
            **(session.message(wanted) if in_session else sessionless(wanted)),
        }
        return Fetch(node, message, asked, names, in_session, is_prompt)

    def _most_bytes(self, state: PartitionState) -> int:
        most = self._limits.partition_max_bytes
        if state.until is None:
            return most
        known = self._record_bytes
        size = known.get(state.partition) or known.get(state.partition.topic)
        if size is None:
            return min(most, SAMPLE_BYTES)
        return min(most, int((state.until - state.fetch_offset) * size * MARGIN) + MARGIN_BYTES)

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def failed(self, fetch: Fetch, *, now: Millis) -> None:
        """There was no response; the broker may or may not have got the request."""
        self._end(fetch)
        if fetch.in_session:
            self._sessions[fetch.node].reset()
            self._sessions[fetch.node].id = NO_SESSION
        self._not_before[fetch.node] = now + self._limits.backoff_ms
        for state, token, _ in fetch.asked.values():
            if state.token == token:
                state.preferred = None

    def answered(self, fetch: Fetch, response: Struct, *, now: Millis) -> Outcome:
        self._end(fetch)
        session = self._sessions[fetch.node]
        if response.error_code:
            is_lost = issubclass(error_class(response.error_code), _SESSION_ERRORS)
            if fetch.in_session:
                session.reset()
                session.id = NO_SESSION if is_lost else session.id
            if not (fetch.in_session and is_lost):
                self._not_before[fetch.node] = now + self._limits.backoff_ms
            return Outcome(stale=True)
        if fetch.in_session:
            session.answered(response.session_id)
        stale, completed = False, []
        for topic in response.responses:
            name = fetch.names.get(topic.topic_id or topic.topic)
            for answer in topic.partitions:
                asked = fetch.asked.get(TopicPartition(name or "", answer.partition_index))
                if asked is None or asked[0].token != asked[1]:
                    continue
                one = self._partition(*asked, answer, now=now)
                if isinstance(one, Completed):
                    asked[0].received += one.weight
                    completed.append(one)
                stale = stale or one is True
        self._in_vain[fetch.node] = 0 if completed else self._in_vain.get(fetch.node, 0) + 1
        return Outcome(stale, tuple(completed))

    def _end(self, fetch: Fetch) -> None:
        self._under_way[fetch.node].remove(fetch)
        for state, token, _ in fetch.asked.values():
            if state.token == token:
                state.fetching = False

    def _partition(
        self, state: PartitionState, token: int, offset: int, answer: Struct, *, now: Millis
    ) -> Completed | bool:
        """Return what was fetched, or True if the metadata is out of date."""
        if answer.error_code:
            return self._refused(state, token, offset, error_class(answer.error_code), now=now)
        state.high_watermark = answer.high_watermark
        state.last_stable_offset = answer.last_stable_offset
        if answer.log_start_offset >= 0:
            state.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica >= 0:
            state.preferred = answer.preferred_read_replica
            state.preferred_until = now + self._limits.preferred_replica_ms
        data = answer.records
        if not data:
            return False
        return self._read(state, token, offset, data, answer.aborted_transactions)

    def _read(
        self, state: PartitionState, token: int, offset: int, data: memoryview, transactions: list[Struct] | None
    ) -> Completed | bool:
        aborted = None
        if self._limits.read_committed:
            aborted = [Aborted(one.producer_id, one.first_offset) for one in transactions or ()]
        found = readable(data, aborted, check_crcs=self._limits.check_crcs)
        if found.next_offset is None:
            if found.problem is None:
                return False
            error = CorruptMessage(
                f"partition {state.partition} at offset {offset}: {found.problem}. Seek past it to continue without it"
            )
            return Completed(state, token, offset, error=error)
        next_offset = max(offset, found.next_offset)
        state.fetch_offset = next_offset
        if state.until is not None and found.batches:
            first = min(offset, found.batches[0][1].base_offset)  # a fetch may begin inside of a batch
            size = len(data) / max(1, next_offset - first)
            self._record_bytes[state.partition] = self._record_bytes[state.partition.topic] = size
        batches = [one for one in found.batches if one[1].next_offset > offset]
        return Completed(
            state, token, offset, data=data, batches=batches, next_offset=next_offset, next_epoch=found.next_epoch
        )

    def _refused(
        self, state: PartitionState, token: int, offset: int, error: type[KafkaError], *, now: Millis
    ) -> Completed | bool:
        if error is OffsetOutOfRange and state.read_from(now=now) is not None:
            state.preferred = None  # the follower may be behind: the leader knows
            return False
        if error is OffsetOutOfRange:
            return Completed(state, token, offset, out_of_range=True)
        if error.retriable and error is not CorruptMessage:
            state.preferred = None
            state.retry_at = now + self._limits.backoff_ms
            return True
        return Completed(state, token, offset, error=error(f"partition {state.partition}: {error.default_message}"))

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def closing(self) -> list[tuple[BrokerId, Message]]:
        """Return the requests that close the sessions on the brokers."""
        limits = self._limits
        messages = []
        for node, session in self._sessions.items():
            if (message := session.closing()) is not None and not self._under_way.get(node):
                limit = {"max_wait": 0, "min_bytes": 0, "max_bytes": limits.max_bytes, "isolation_level": 0}
                messages.append((node, {**limit, **message}))
        return messages
