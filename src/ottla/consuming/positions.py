"""Where each assigned partition is read, and what has to be asked before it can be.

    assigned ──> COMMITTED (ask the group) ──> VALIDATE ──┐
                     └── nothing there ──> RESET (ask the leader) ──> NOTHING: it can be fetched

`seek` leads to VALIDATE or NOTHING at once; an offset out of range to RESET; a new leader to VALIDATE, which finds out
whether the log was truncated meanwhile. Every change gives the partition a new token: an answer to a
question with an older token is about the past, and is dropped.

`position` is the next offset for the user, `fetch_offset` the next to ask the broker for: what lies between is
buffered. Nothing here knows who asks; the shell sends, and brings the answers as values.
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
    """What is known of one assigned partition."""

    __slots__ = (
        "asking",
        "begun",
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
        """That of the leader by which the position was last known to be good."""
        self.topic_ids: tuple[UUID, ...] = ()
        """Of the topic that the position is of, and before it those that it had earlier by the same name."""
        self.paused = False
        self.until: int | None = None
        """Nothing is fetched from here on."""
        self.fetching = False
        self.received = self.begun = 0
        """Fetches that came, and those of them that were begun to be handed out: the difference waits in the buffer.
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
        """What is buffered, asked or under way for this partition is about the past now."""
        self.token += 1
        self.need = need
        self.asking = self.fetching = False
        self.received = self.begun = 0
        self.retry_at = 0

    def move(self, offset: int, epoch: int | None, need: Need = Need.NOTHING) -> None:
        self.renew(need)
        self.position = self.fetch_offset = offset
        self.epoch = epoch
        self.reset = None

    def read_from(self, *, now: Millis) -> BrokerId | None:
        """The replica that the leader told us to read from, while that holds."""
        if self.preferred is not None and now >= self.preferred_until:
            self.preferred = None
        return self.preferred


class Positions:
    """The partitions that are assigned."""

    def __init__(self, reset: str, *, in_group: bool) -> None:
        self._reset = reset
        self._in_group = in_group
        self._states: dict[TopicPartition, PartitionState] = {}
        self._made_anew: set[TopicPartition] = set()
        self._settled = False
        """Nothing has to be asked: in a steady state nobody looks through thousands of partitions for nothing."""

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
        """Have exactly these; those that are kept go on where they are."""
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
            raise ValueError(f"an offset is at least 0, not {offset}")
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
        """The partitions to ask this for now, with their tokens; they count as asked."""
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
        """The state, if the answer to a question with this token still matters."""
        state = self._states.get(partition)
        return state if state is not None and state.token == token else None

    def try_again(self, tokens: Mapping[TopicPartition, int], at: Millis) -> None:
        """The question failed: ask again, but not before."""
        self._settled = False
        for partition, token in tokens.items():
            if state := self.current(partition, token):
                state.asking = False
                state.retry_at = at

    def committed(self, partition: TopicPartition, token: int, found: OffsetAndMetadata | None) -> None:
        """The answer of the group."""
        self._settled = False
        state = self.current(partition, token)
        if state is None:
            return
        if found is not None:
            state.move(found.offset, found.leader_epoch, _to_validate(found.leader_epoch))
        else:
            self._reset_by_policy(state)

    def found(self, partition: TopicPartition, token: int, offset: int, epoch: int | None) -> None:
        """The answer of the leader to a reset."""
        if state := self.current(partition, token):
            state.move(offset, epoch)

    def validated(self, partition: TopicPartition, token: int, end: int, epoch: int) -> KafkaError | None:
        """The end of the epoch of the last record read: below the position, the log was truncated. With -1 the leader
        knows no such epoch: nothing of it is left, and nobody knows from where on the log is another one."""
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
        """The metadata names the topic's id. Whether it is another topic than the one that the position is of: it was
        deleted and made anew, and `start_anew` has to follow. A broker that is behind may name an id from before."""
        state = self._states.get(partition)
        if state is None or topic_id in state.topic_ids:
            return False
        state.topic_ids += (topic_id,)
        if len(state.topic_ids) == 1:
            return False
        self._made_anew.add(partition)
        return True

    def start_anew(self) -> None:
        """Start by the policy in topics that were made anew. To be called while nobody takes records."""
        while self._made_anew:
            state = self._states.get(self._made_anew.pop())
            if state is not None and len(state.topic_ids) > 1:
                self._settled = False
                state.leader_epoch = -1
                state.high_watermark = state.last_stable_offset = state.log_start_offset = None
                self._reset_by_policy(state)

    def new_leader(self, partition: TopicPartition, epoch: int) -> None:
        """The metadata names the leader's epoch: a newer one than before has to confirm the position."""
        self._settled = False
        state = self._states.get(partition)
        if state is None or epoch <= state.leader_epoch:
            return
        first = state.leader_epoch < 0
        state.leader_epoch = epoch
        known = not first and state.need is Need.NOTHING and state.position is not None and state.epoch is not None
        # What is buffered was read before, and is handed out: only an empty buffer has its end checked.
        if known and state.fetch_offset == state.position:
            state.renew(Need.VALIDATE)

    def range_error(self, partition: TopicPartition, offset: int) -> OffsetOutOfRange | None:
        """What to raise when the log has no such offset; None when there is a policy for it."""
        return out_of_range(partition, offset) if self._reset == NONE else None

    def out_of_range(self, partition: TopicPartition, token: int) -> None:
        """Start anew by the policy."""
        self._settled = False
        state = self.current(partition, token)
        if state is not None:
            self._reset_by_policy(state)

    def _reset_by_policy(self, state: PartitionState) -> None:
        state.renew(Need.RESET)
        state.position = None
        state.reset = None if self._reset == NONE else self._reset
        # Without a policy nobody is asked: the user has to seek.
        state.asking = state.reset is None

    def without_start(self) -> NoOffsetForPartition | None:
        """What to raise while a partition waits for the user to seek, which only auto.offset.reset=none lets happen."""
        if self._reset != NONE:
            return None
        stuck = [state.partition for state in self.states() if state.need is Need.RESET and state.reset is None]
        return no_offset(stuck) if stuck else None

    # ── what is known ─────────────────────────────────────────────────────────────────────────────────────────────

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What "everything polled" means for a commit."""
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
