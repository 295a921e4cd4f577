"""The invariants, by name. Most are checked after every step of the coordinator; liveness after churn has stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from tests.simulation.member import Member
from tests.simulation.world import CONFIG, TOPIC, Step, Violation, World

from ottla.coordinator import records as r
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.states import TRANSITIONS, State
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.messages import ConsumerHeartbeatResponse
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.group import Group
from ottla.coordinator.history import KEPT, UNDER_WAY, owners
from ottla.coordinator.messages import JoinResponse
from ottla.coordinator.serde import decode

ONE_OWNER = "no two owners of a partition in a generation"
GENERATIONS_GO_UP = "generations only go up"
OFFSETS_GO_UP = "committed offsets never go back"
LEGAL_TRANSITIONS = "states change only as the table allows"
NOTHING_PARKED_FOR_EVER = "nothing is parked for ever"
LOG_TELLS_EVERYTHING = "the log alone gives the same state"
NO_TIMER_LEFT_OVER = "no timer is left over"
HISTORY_IS_BOUNDED = "the history is bounded and in order"
EVERY_REBALANCE_HAS_ITS_REASON = "every rebalance has its reason"
STABLE_AFTER_CHURN = "every group is stable once churn stops"
ACKNOWLEDGED_SURVIVES = "an acknowledged commit survives a kill"
SESSIONS_END = "a member that was silent for longer than its session is not taken back"

#: The longest time that a request may be parked: the largest rebalance timeout of the members plus a late event loop.
LONGEST_WAIT = 35_000
#: A gathered request is answered at the end of its turn, and a step without records once earlier ones are committed.
TURN = 600
NEVER = 2**62
#: The extra time that a failing log may cause, because waits start again.
LONGER_WAIT = 90_000


class Invariants:
    """Watches a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._owners: dict[tuple[str, int, int, int], str] = {}
        self._generations: dict[str, int] = {}
        self._offsets: dict[tuple[str, str, int], int] = {}
        self._states: dict[ClassicGroup, State] = {}
        self._rebalances: dict[str, r.HistoryValue] = {}
        """The last rebalance in the history of each group."""
        self._lives: Counter[str] = Counter()
        """How often a group was deleted. Its generations start again after that."""
        self._given: dict[tuple[str, int], Counter[str]] = {}
        """The life of the group in which a member was told of a generation. The response may arrive in a later life."""
        self._acknowledged: dict[tuple[str, str, int], int] = {}
        """Offsets whose commits got a response without an error."""
        self._heard: dict[tuple[str, str], tuple[int, type | None]] = {}
        """When a member last got a response in this life of the broker, and the type of its group."""
        world.observers.append(self.after_step)
        world.on_decided.append(self.look)
        world.on_acknowledged.append(self.after_response)
        world.on_start.append(self.after_start)

    # ── after every step ──────────────────────────────────────────────────────────────────────────────────────────

    def after_step(self, step: Step) -> None:
        outcome = step.outcome
        self._note_ends(outcome.records)
        for response in (outcome.response, *outcome.answers.values()):
            self._note_given(response)
        for record in outcome.records:
            self._check_record(record)

    def look(self) -> None:
        """Check the coordinator as it is, with what is not committed yet."""
        self._check_consumer_groups()
        self._check_transitions()
        self._check_parked()
        self._check_timers()

    def _note_ends(self, records: Iterable[r.CoordinatorRecord]) -> None:
        """Generations start again when a group has ended, unless its members continue as another type."""
        groups = (r.GroupMetadataKey, r.ConsumerGroupMetadataKey)
        ended = {key.group_id for key, value in records if isinstance(key, groups) and value is None}
        going_on = {_group_of(key) for key, value in records if _takes_over(value)}
        for group_id in ended - going_on:
            self._lives[group_id] += 1
            self._generations.pop(group_id, None)

    def _note_given(self, response: Any) -> None:
        if isinstance(response, ConsumerHeartbeatResponse):
            self._given[response.member_id or "", response.member_epoch] = self._lives.copy()
        elif isinstance(response, JoinResponse):
            self._given[response.member_id, response.generation_id] = self._lives.copy()

    def _check_consumer_groups(self) -> None:
        for group in self.world.coordinator.groups.values():
            if isinstance(group, ConsumerGroup):
                self._check_holders(group)

    def _check_holders(self, group: ConsumerGroup) -> None:
        """No member owns a partition that another one owns or has not given up yet."""
        holders: dict[tuple[UUID, int], str] = {}
        for member in group.members.values():
            for partitions in (member.assigned, member.pending_revocation):
                for topic_id, numbers in partitions.items():
                    for number in numbers:
                        holder = holders.setdefault((topic_id, number), member.member_id)
                        if holder != member.member_id:
                            raise Violation(
                                ONE_OWNER, f"{group.group_id} gives {number} to {holder} and {member.member_id}"
                            )

    def _check_record(self, record: r.CoordinatorRecord) -> None:
        key, value = record
        if isinstance(key, r.OffsetCommitKey) and isinstance(value, r.OffsetCommitValue):
            self._check_offset(key, value)
        elif isinstance(key, r.OffsetCommitKey):
            self._acknowledged.pop((key.group_id, key.topic, key.partition), None)
        elif isinstance(key, r.GroupMetadataKey) and isinstance(value, r.GroupMetadataValue):
            self._check_generation(key.group_id, value.generation)
            self._check_assignment(key.group_id, value)
        elif isinstance(key, r.ConsumerGroupMetadataKey) and isinstance(value, r.ConsumerGroupMetadataValue):
            self._check_generation(key.group_id, value.epoch)
        elif isinstance(key, r.HistoryKey):
            self._check_history(key, value)

    def _check_offset(self, key: r.OffsetCommitKey, value: r.OffsetCommitValue) -> None:
        place = (key.group_id, key.topic, key.partition)
        before = self._offsets.get(place, -1)
        if value.offset < before:
            raise Violation(OFFSETS_GO_UP, f"{place} from {before} to {value.offset}")
        self._offsets[place] = value.offset

    def _check_generation(self, group_id: str, generation: int) -> None:
        before = self._generations.get(group_id, -1)
        if generation < before:
            raise Violation(GENERATIONS_GO_UP, f"{group_id} from {before} to {generation}")
        self._generations[group_id] = generation

    def _check_assignment(self, group_id: str, value: r.GroupMetadataValue) -> None:
        identities = {member.member_id: member.group_instance_id or member.member_id for member in value.members}
        assigned = owners({member.member_id: member.assignment for member in value.members})
        for (_, partition), member_id in assigned.items():
            self._owns(group_id, self._lives[group_id], value.generation, partition, identities[member_id])

    def _owns(self, group_id: str, life: int, generation: int, partition: int, identity: str) -> None:
        owner = self._owners.setdefault((group_id, life, generation, partition), identity)
        if owner != identity:
            raise Violation(
                ONE_OWNER, f"partition {partition} of {group_id} in generation {generation}: {owner} and {identity}"
            )

    def member_owns(self, member: Member) -> None:
        """A member believes that it owns partitions: no other member may own them in that generation."""
        life = self._given.get((member.member_id, member.generation), self._lives)[member.group_id]
        for partition in member.owned:
            self._owns(member.group_id, life, member.generation, partition, member.identity)

    def _check_history(self, key: r.HistoryKey, value: object) -> None:
        """Numbers increase by one, each in its slot. Only the last rebalance may be in progress."""
        if not isinstance(value, r.HistoryValue):
            self._rebalances.pop(key.group_id, None)
            return
        last = self._rebalances.get(key.group_id)
        expected = 0 if last is None else last.number + (last.outcome != UNDER_WAY)
        if (value.number, key.slot) != (expected, expected % KEPT):
            raise Violation(HISTORY_IS_BOUNDED, f"{key.group_id} has {value} in slot {key.slot} after {last}")
        if not value.triggers:
            raise Violation(EVERY_REBALANCE_HAS_ITS_REASON, f"{key.group_id} has {value}")
        self._rebalances[key.group_id] = value

    def _check_transitions(self) -> None:
        groups = [group for group in self.world.coordinator.groups.values() if isinstance(group, ClassicGroup)]
        for group in groups:
            before = self._states.get(group, group.state)
            # A step may pass through the wait for joins: the last member completes the generation at once.
            if before is not group.state and group.state is not State.COMPLETING_REBALANCE:
                self._check_way(group.group_id, before, group.state)
        self._states = {group: group.state for group in groups}

    def _check_way(self, group_id: str, before: State, after: State) -> None:
        through = State.PREPARING_REBALANCE
        try:
            if after is State.EMPTY and before is not through:
                TRANSITIONS.check(before, through)
                before = through
            TRANSITIONS.check(before, after)
        except RuntimeError as error:
            raise Violation(LEGAL_TRANSITIONS, f"{group_id}: {error}") from error

    def _check_parked(self) -> None:
        longest = LONGER_WAIT if self.world.log_fails else LONGEST_WAIT
        for waiting in self.world.waiting.values():
            waited = self.world.now - waiting.since
            if waited > longest:
                raise Violation(NOTHING_PARKED_FOR_EVER, f"{waiting.step} has waited for {waited} ms")

    def _check_timers(self) -> None:
        most = 1
        for group in self.world.coordinator.groups.values():
            if isinstance(group, ClassicGroup):
                is_told = group.trace is not None or group.shard.histories.under_way(group.group_id) is not None
                most += 2 + is_told + len(group.members) + len(group.pending)
            elif isinstance(group, ConsumerGroup):
                most += 2 + 3 * len(group.members)
        # A failed append leaves the timer of a removed member. It expires by itself.
        if len(self.world.timers) > most + 20:
            raise Violation(NO_TIMER_LEFT_OVER, f"{len(self.world.timers)} timers for {most} reasons")

    # ── responses ─────────────────────────────────────────────────────────────────────────────────────────────────

    def after_response(self, step: Step) -> None:
        """A response without an error was sent to its client."""
        if step.name == "commit":
            for key, value in step.outcome.records:
                if isinstance(key, r.OffsetCommitKey) and isinstance(value, r.OffsetCommitValue):
                    self._acknowledged[key.group_id, key.topic, key.partition] = value.offset
        if step.name in ("heartbeat", "consumer_heartbeat", "follow"):
            self._check_session(step)
        member_id = getattr(step.outcome.response, "member_id", "") or getattr(step.request, "member_id", "")
        if member_id:
            group_id = step.request.group_id
            self._heard[group_id, member_id] = self.world.now, type(self.world.coordinator.groups.get(group_id))

    def _check_session(self, step: Step) -> None:
        request, response = step.request, step.outcome.response
        group = self.world.coordinator.groups.get(request.group_id)
        heard, kind = self._heard.get((request.group_id, request.member_id), (0, None))
        # A group that changes its type gives every member a new session.
        if kind is not type(group) or response.error_code or self.world.log_fails:
            return
        if getattr(request, "member_epoch", 1) <= 0 or self._waits(request.member_id):
            return
        silent = self.world.now - heard
        if silent > self._session_timeout(group, request.member_id) + TURN:
            raise Violation(SESSIONS_END, f"{request.member_id} of {request.group_id} was silent for {silent} ms")

    def _waits(self, member_id: str) -> bool:
        """Return whether a request of the member is parked: its session does not expire meanwhile."""
        waiting = [each.step for each in self.world.waiting.values() if each.is_parked]
        return any(step is not None and step.request.member_id == member_id for step in waiting)

    def _session_timeout(self, group: Group | None, member_id: str) -> int:
        if isinstance(group, ClassicGroup) and member_id in group.members:
            return group.members[member_id].session_timeout
        if isinstance(group, ConsumerGroup) and member_id in group.members:
            return group.timers.session_timeout_of(group.members[member_id])
        return NEVER

    # ── at restarts and at the end ────────────────────────────────────────────────────────────────────────────────

    def after_start(self) -> None:
        """The broker has loaded its log: it has every acknowledged commit. Sessions start again."""
        self._heard.clear()
        for (group_id, topic, partition), offset in self._acknowledged.items():
            known = self.world.coordinator.offsets.get(group_id, topic, partition)
            if known is None or known.offset < offset:
                raise Violation(ACKNOWLEDGED_SURVIVES, f"offset {offset} of {topic}-{partition} in {group_id}: {known}")

    def check_log(self) -> None:
        """Replay the log into another coordinator, whole and compacted: offsets and stable groups are the same."""
        for log in (self.world.log, list(dict(self.world.log).items())):
            copy = Coordinator(CONFIG, new_id=lambda: "", topics=self.world.topics)
            for key, value in log:
                copy.replay(decode(key, value))
            self._compare(copy)

    def _compare(self, copy: Coordinator) -> None:
        live = self.world.coordinator
        for group_id, group in live.groups.items():
            if live.offsets.of_group(group_id) != copy.offsets.of_group(group_id):
                raise Violation(LOG_TELLS_EVERYTHING, f"the offsets of {group_id} differ")
            if _known(live, group_id) != _known(copy, group_id):
                raise Violation(LOG_TELLS_EVERYTHING, f"the history of {group_id} differs")
            if not _same(group, copy.groups.get(group_id)):
                raise Violation(LOG_TELLS_EVERYTHING, f"the members of {group_id} differ")

    def unsettled(self, members: list[Member]) -> str | None:
        """Return what prevents every group from being stable, or None."""
        if parked := [each for each in self.world.waiting.values() if each.is_parked]:
            return f"{len(parked)} requests are parked"
        for group_id in {member.group_id for member in members}:
            mine = [member for member in members if member.group_id == group_id]
            group = self.world.coordinator.groups.get(group_id)
            if not isinstance(group, ClassicGroup | ConsumerGroup) or str(group.state) != "Stable":
                return f"{group_id} is {group.listed().state if group else 'not there'}"
            if missing := self._disagreement(group, mine):
                return missing
        return None

    def _disagreement(self, group: ClassicGroup | ConsumerGroup, members: list[Member]) -> str | None:
        if set(group.members) != {member.member_id for member in members}:
            return f"{group.group_id} has {sorted(group.members)}, and {members} are alive"
        generation = group.generation if isinstance(group, ClassicGroup) else group.group_epoch
        if any(not member.is_stable or member.generation != generation for member in members):
            return f"not everybody in {group.group_id} is stable in generation {generation}"
        told = self._rebalances.get(group.group_id)
        if told is None or told.outcome == UNDER_WAY or told.generation != generation:
            return f"{group.group_id} is stable in generation {generation}, and the history ends with {told}"
        owned = sorted(partition for member in members for partition in member.owned)
        if owned != list(range(self.world.partitions)):
            return f"the members of {group.group_id} own {owned} of {self.world.partitions} partitions of {TOPIC}"
        return None


def _group_of(key: r.Key) -> str | None:
    return None if isinstance(key, r.UnknownKey) else key.group_id


def _takes_over(value: r.Value | None) -> bool:
    """Return whether a record has members of a group of the other type."""
    if isinstance(value, r.ConsumerGroupMemberMetadataValue):
        return value.classic_member_metadata is not None
    return isinstance(value, r.GroupMetadataValue) and bool(value.members)


def _known(coordinator: Coordinator, group_id: str) -> tuple[int, r.HistoryValue | None]:
    """Return what a coordinator knows of the history of a group."""
    return coordinator.histories.next_number(group_id), coordinator.histories.under_way(group_id)


def _same(live: Group, copy: Group | None) -> bool:
    """Return whether a group is the same after a restart. A live classic group may be ahead of the log."""
    if isinstance(live, ConsumerGroup):
        return isinstance(copy, ConsumerGroup) and _told(live) == _told(copy)
    if not isinstance(live, ClassicGroup) or live.state not in (State.STABLE, State.EMPTY):
        return True
    if not isinstance(copy, ClassicGroup):
        return live.generation == 0  # Its first record may have been lost.
    if live.state is State.EMPTY or copy.state is State.EMPTY:
        return (live.state, live.generation) == (copy.state, copy.generation)
    return live.record(live.assignments) == copy.record(copy.assignments)


def _told(group: ConsumerGroup) -> object:
    logged = group.logged
    return logged.group_epoch, logged.assignment_epoch, logged.metadata_hash, logged.members, logged.target
