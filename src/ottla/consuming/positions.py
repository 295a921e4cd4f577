"""Where each assigned partition is read, and what must be known before it can be fetched.

    assigned ──> COMMITTED (ask the group) ──> VALIDATE ──┐
                  └── nothing there ──> RESET (ask the leader) ──> NOTHING: it can be fetched

`seek` leads to VALIDATE or NOTHING at once, an offset out of range to RESET, and a new leader to VALIDATE, which finds
out whether the log was truncated. Every change gives the partition a new token: a response to a request with an older
token is outdated and dropped.

`position` is the next offset for the user, `fetch_offset` the next to fetch; what lies between is buffered. The shell
sends the requests and passes in the results as values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from uuid import UUID

from ottla.consuming.errors import NoOffsetForPartition, no_offset, out_of_range, truncated
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import KafkaError, OffsetOutOfRange
from ottla.types import BrokerId, Millis, TopicPartition

NONE = "none"
EARLIEST = "earliest"
LATEST = "latest"


class Need(Enum):
    """What has to be known before a partition can be fetched."""

    COMMITTED = "committed"
    RESET = "reset"
    VALIDATE = "validate"
    NOTHING = "nothing"


class PartitionState:
    """What is known about one assigned partition."""

    __slots__ = (
        "asking",
        "epoch",
        "fetch_offset",
        "fetching",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "need",
        "partition",
        "paused",
        "position",
        "preferred",
        "preferred_until",
        "received",
        "reset",
        "retry_at",
        "started",
        "token",
        "topic_ids",
        "until",
    )

    def __init__(self, partition: TopicPartition, need: Need) -> None:
        self.partition = partition
        self.need = need
        self.reset: str | None = None
        self.position: int | None = None
        self.fetch_offset = -1
        self.epoch: int | None = None
        """The leader epoch of the record before the position."""
        self.leader_epoch = -1
        """The leader epoch that last confirmed the position."""
        self.topic_ids: tuple[UUID, ...] = ()
        """The id of the topic that the position belongs to, after the earlier ids of the same name."""
        self.paused = False
        self.until: int | None = None
        """Nothing is fetched from this offset on."""
        self.fetching = False
        self.received = self.started = 0
        """Fetches that arrived, and those that `take` has started: the difference waits in the buffer.
        Two numbers, since one is written by the event loop and the other by the user's thread."""
        self.asking = False
        self.token = 0
        self.retry_at: Millis = 0
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.preferred: BrokerId | None = None
        self.preferred_until: Millis = 0

    def renew(self, need: Need) -> None:
        """Outdate everything that is buffered, requested or in flight for this partition."""
        self.token += 1
        self.need = need
        self.asking = self.fetching = False
        self.received = self.started = 0
        self.retry_at = 0

    def move(self, offset: int, epoch: int | None, need: Need = Need.NOTHING) -> None:
        self.renew(need)
        self.position = self.fetch_offset = offset
        self.epoch = epoch
        self.reset = None

    def read_from(self, *, now: Millis) -> BrokerId | None:
        """The replica that the leader told us to read from, while that is valid."""
        if self.preferred is not None and now >= self.preferred_until:
            self.preferred = None
        return self.preferred


class Positions:
    """The assigned partitions."""

    def __init__(self, reset: str, *, in_group: bool) -> None:
        self._reset = reset
        self._in_group = in_group
        self._states: dict[TopicPartition, PartitionState] = {}
        self._recreated: set[TopicPartition] = set()
        self._settled = False
        """Nothing has to be requested: avoids a scan over thousands of partitions in a steady state."""

    # ── which partitions ──────────────────────────────────────────────────────────────────────────────────────────

    def __contains__(self, partition: object) -> bool:
        return partition in self._states

    def __len__(self) -> int:
        return len(self._states)

    @property
    def assigned(self) -> set[TopicPartition]:
        return set(self._states)

    def states(self) -> Collection[PartitionState]:
        return self._states.values()

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these; partitions that stay keep their positions."""
        wanted = dict.fromkeys(partitions)
        self.remove([partition for partition in self._states if partition not in wanted])
        self.add(wanted)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        self._settled = False
        for partition in partitions:
            if partition not in self._states:
                state = self._states[partition] = PartitionState(partition, Need.COMMITTED)
                if not self._in_group:
                    self._reset_by_policy(state)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if state := self._states.pop(partition, None):
                state.renew(Need.NOTHING)

    # ── what the user says ────────────────────────────────────────────────────────────────────────────────────────

    def seek(self, partition: TopicPartition, offset: int, epoch: int | None = None) -> None:
        self._settled = False
        if offset < 0:
            raise ValueError(f"an offset must be at least 0, not {offset}")
        state = self._states[partition]
        state.move(offset, epoch, Need.NOTHING if epoch is None else Need.VALIDATE)
        state.topic_ids = ()

    def seek_to(self, partition: TopicPartition, where: str) -> None:
        self._settled = False
        state = self._states[partition]
        state.renew(Need.RESET)
        state.position, state.reset = None, where
        state.topic_ids = ()

    # ── what has to be asked ──────────────────────────────────────────────────────────────────────────────────────

    def to_ask(self, need: Need, *, now: Millis) -> dict[TopicPartition, int]:
        """The partitions to request this for now, with their tokens; they count as requested."""
        if self._settled:
            return {}
        found = {}
        self._settled = True
        for partition, state in self._states.items():
            if state.need is not Need.NOTHING:
                self._settled = False
                if state.need is need and not state.asking and now >= state.retry_at:
                    state.asking = True
                    found[partition] = state.token
        return found

    def current(self, partition: TopicPartition, token: int) -> PartitionState | None:
        """The state, if the response to a request with this token still matters."""
        state = self._states.get(partition)
        return state if state is not None and state.token == token else None

    def try_again(self, tokens: Mapping[TopicPartition, int], at: Millis) -> None:
        """The request failed: repeat it, but not before `at`."""
        self._settled = False
        for partition, token in tokens.items():
            if state := self.current(partition, token):
                state.asking = False
                state.retry_at = at

    def committed(self, partition: TopicPartition, token: int, found: OffsetAndMetadata | None) -> None:
        """The response of the group."""
        self._settled = False
        state = self.current(partition, token)
        if state is None:
            return
        if found is not None:
            state.move(found.offset, found.leader_epoch, _to_validate(found.leader_epoch))
        else:
            self._reset_by_policy(state)

    def found(self, partition: TopicPartition, token: int, offset: int, epoch: int | None) -> None:
        """The response of the leader to a reset."""
        if state := self.current(partition, token):
            state.move(offset, epoch)

    def validated(self, partition: TopicPartition, token: int, end: int, epoch: int) -> KafkaError | None:
        """The end of the epoch of the last record read: below the position, the log was truncated. With -1 the leader
        does not know the epoch: all of its records are gone, and it is unknown where the logs diverged."""
        state = self.current(partition, token)
        if state is None or state.position is None:
            return None
        if end < state.position:
            offset = state.position
            if end < 0:
                self._settled = False
                self._reset_by_policy(state)
            else:
                state.move(end, epoch if epoch >= 0 else None)
            return truncated(partition, offset, end) if self._reset == NONE else None
        state.need = Need.NOTHING
        state.asking = False
        return None

    def topic_is(self, partition: TopicPartition, topic_id: UUID) -> bool:
        """Check the topic's id in the metadata. True if the topic was deleted and created again since the position was
        set: then `restart_recreated` must follow. A broker that is behind may send an earlier id."""
        state = self._states.get(partition)
        if state is None or topic_id in state.topic_ids:
            return False
        state.topic_ids += (topic_id,)
        if len(state.topic_ids) == 1:
            return False
        self._recreated.add(partition)
        return True

    def restart_recreated(self) -> None:
        """Apply the reset policy to topics that were created again. Only while no records are being taken."""
        while self._recreated:
            state = self._states.get(self._recreated.pop())
            if state is not None and len(state.topic_ids) > 1:
                self._settled = False
                state.leader_epoch = -1
                state.high_watermark = state.last_stable_offset = state.log_start_offset = None
                self._reset_by_policy(state)

    def new_leader(self, partition: TopicPartition, epoch: int) -> None:
        """The metadata has the leader's epoch: a newer one has to confirm the position."""
        self._settled = False
        state = self._states.get(partition)
        if state is None or epoch <= state.leader_epoch:
            return
        first = state.leader_epoch < 0
        state.leader_epoch = epoch
        known = not first and state.need is Need.NOTHING and state.position is not None and state.epoch is not None
        # Buffered records were read before and are still handed out, so only an empty buffer is checked.
        if known and state.fetch_offset == state.position:
            state.renew(Need.VALIDATE)

    def range_error(self, partition: TopicPartition, offset: int) -> OffsetOutOfRange | None:
        """The error to raise if the log has no such offset; None if there is a reset policy."""
        return out_of_range(partition, offset) if self._reset == NONE else None

    def out_of_range(self, partition: TopicPartition, token: int) -> None:
        """Apply the reset policy."""
        self._settled = False
        state = self.current(partition, token)
        if state is not None:
            self._reset_by_policy(state)

    def _reset_by_policy(self, state: PartitionState) -> None:
        state.renew(Need.RESET)
        state.position = None
        state.reset = None if self._reset == NONE else self._reset
        # Without a policy there is nothing to request: the user has to seek.
        state.asking = state.reset is None

    def without_start(self) -> NoOffsetForPartition | None:
        """The error to raise while a partition waits for the user to seek, which needs auto.offset.reset=none."""
        if self._reset != NONE:
            return None
        stuck = [state.partition for state in self.states() if state.need is Need.RESET and state.reset is None]
        return no_offset(stuck) if stuck else None

    # ── what is known ─────────────────────────────────────────────────────────────────────────────────────────────

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to commit for everything polled."""
        return {
            state.partition: OffsetAndMetadata(state.position, "", state.epoch)
            for state in self._states.values()
            if state.position is not None
        }

    def lag(self, partition: TopicPartition, *, read_committed: bool) -> int | None:
        state = self._states[partition]
        end = state.last_stable_offset if read_committed else state.high_watermark
        return None if end is None or state.position is None else max(0, end - state.position)


def _to_validate(epoch: int | None) -> Need:
    return Need.NOTHING if epoch is None else Need.VALIDATE
