"""The group coordinator of one partition of ``__consumer_offsets``: the machine that the shard's driver runs.

It finds the group of a request, creates one where that is allowed, and leaves the rest to the kind of the group:
`ClassicGroup`, or `ConsumerGroups` for those of the consumer protocol (KIP-848). Records are replayed by the type of
their key. Another kind of group would bring replayers for its own keys.

If the journal does not take the records of an outcome, nothing is replayed. The driver fails the request and those that
the outcome would have answered. Then it calls :meth:`append_failed` and applies the result: timers and answers, never
records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

from ottla import errors
from ottla.assignors import Assignor
from ottla.coordinator import history
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.logged import created_record
from ottla.coordinator.config import GroupConfig, Times, TimesOf
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.groups import ConsumerGroups
from ottla.coordinator.consumer.messages import (
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    DescribedConsumerGroup,
)
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Group, Shard, TopicInfo
from ottla.coordinator.offsets import NO_PRODUCER
from ottla.machine import Machine, Outcome
from ottla.records import PackedCommits, join_commits, pack_commits
from ottla.types import Millis, TopicPartition

EXPIRE_OFFSETS = ("expire-offsets",)
Record = r.CoordinatorRecord
_NOT_FOLLOWED: Outcome[Record, None] = Outcome((), None)
_HEARTBEAT_FINE: Outcome[Record, m.HeartbeatResponse] = Outcome((), m.HeartbeatResponse())


def partition_for(group_id: str, partitions: int) -> int:
    """Return the partition of the offsets topic that a group belongs to.

    >>> partition_for("group-1", 50), partition_for("orders", 50)
    (49, 31)
    """
    units = group_id.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFF_FFFF
    signed = code - 2**32 if code >= 2**31 else code
    return 0 if signed == -(2**31) else abs(signed) % partitions


def _no_topics() -> Mapping[str, TopicInfo]:
    return {}


def _no_own_times(group_id: str) -> Times | None:
    return None


class Coordinator(Machine[Record]):
    """All groups and offsets of one shard."""

    def __init__(
        self,
        config: GroupConfig,
        *,
        new_id: Callable[[], str],
        topics: Callable[[], Mapping[str, TopicInfo]] = _no_topics,
        assignors: Sequence[Assignor] | None = None,
        times_of: TimesOf = _no_own_times,
    ) -> None:
        self.config = config
        self.shard = Shard(config, new_id, topics, times_of)
        self.groups: dict[str, Group] = self.shard.groups
        self.offsets = self.shard.offsets
        self.histories = self.shard.histories
        self.consumers = ConsumerGroups(self.shard, assignors)
        self.ignored = 0
        """How many records of unknown types were skipped."""
        self._replayers: dict[type[Any], Callable[[Any, Any, int], None]] = {
            r.OffsetCommitKey: self._replay_offset,
            r.LegacyOffsetCommitKey: self._replay_legacy_offset,
            r.GroupMetadataKey: self._replay_classic,
            r.HistoryKey: self._replay_history,
            r.OldHistoryKey: self._replay_old_history,
            **self.consumers.replayers,
        }

    # ── members ───────────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, request: m.JoinRequest, *, now: Millis) -> Outcome[Record, m.JoinResponse]:
        """JoinGroup."""
        fx = Effects(now=now)
        problem = self._join_problem(request)
        if problem is not None:
            return fx.outcome(m.JoinResponse(error_code=problem.code, member_id=request.member_id))
        group = self.groups.get(request.group_id)
        if group is None or (group.is_empty and not isinstance(group, ClassicGroup)):
            return self._join_new_group(request, group, fx)
        return fx.outcome(group.join(request, fx))

    def _join_problem(self, request: m.JoinRequest) -> type[errors.KafkaError] | None:
        shortest, longest = self.config.group_min_session_timeout_ms, self.config.group_max_session_timeout_ms
        if not request.group_id:
            return errors.InvalidGroupId
        if not shortest <= request.session_timeout <= longest:
            return errors.InvalidSessionTimeout
        if request.member_id and request.group_id not in self.groups:
            return errors.UnknownMemberId
        return None

    def _join_new_group(
        self, request: m.JoinRequest, former: Group | None, fx: Effects
    ) -> Outcome[Record, m.JoinResponse]:
        """Create a classic group. It takes the place of an empty consumer group, if there is one, and its history."""
        if former is not None and request.member_id:
            return fx.outcome(m.JoinResponse(error_code=errors.UnknownMemberId.code, member_id=request.member_id))
        if former is not None:
            former.delete(fx)
        group = ClassicGroup(self.shard, request.group_id, now=fx.now)
        fx.write(r.GroupMetadataKey(request.group_id), created_record(now=fx.now))
        response = group.join(request, fx)
        if isinstance(response, m.JoinResponse) and response.error_code != errors.MemberIdRequired.code:
            return Outcome((), response)
        self.shard.forming[request.group_id] = group
        return fx.outcome(response)

    def sync(self, request: m.SyncRequest, *, now: Millis) -> Outcome[Record, m.SyncResponse]:
        """SyncGroup."""
        fx = Effects(now=now)
        if not request.group_id:
            return fx.outcome(m.SyncResponse(error_code=errors.InvalidGroupId.code))
        group = self.groups.get(request.group_id)
        if group is None:
            return fx.outcome(m.SyncResponse(error_code=errors.UnknownMemberId.code))
        return fx.outcome(group.sync(request, fx))

    def heartbeat(self, request: m.HeartbeatRequest, *, now: Millis) -> Outcome[Record, m.HeartbeatResponse]:
        """Heartbeat."""
        group = self.groups.get(request.group_id)
        if group is None:
            error = errors.UnknownMemberId if request.group_id else errors.InvalidGroupId
            return Outcome((), m.HeartbeatResponse(error_code=error.code))
        fx = Effects(now=now)
        response = group.heartbeat(request, fx)
        if response.error_code == 0 and not (fx.timers or fx.records):
            return _HEARTBEAT_FINE
        return fx.outcome(response)

    def leave(self, request: m.LeaveRequest, *, now: Millis) -> Outcome[Record, m.LeaveResponse]:
        """LeaveGroup."""
        fx = Effects(now=now)
        if not request.group_id:
            return fx.outcome(m.LeaveResponse(error_code=errors.InvalidGroupId.code))
        group = self.groups.get(request.group_id)
        if group is None:
            code = errors.UnknownMemberId.code
            gone = (m.LeftMember(member.member_id, member.group_instance_id, code) for member in request.members)
            return fx.outcome(m.LeaveResponse(members=tuple(gone)))
        return fx.outcome(group.leave(request, fx))

    def consumer_heartbeat(
        self, request: ConsumerHeartbeatRequest, *, now: Millis
    ) -> Outcome[Record, ConsumerHeartbeatResponse]:
        """ConsumerGroupHeartbeat."""
        fx = Effects(now=now)
        try:
            response = self.consumers.heartbeat(request, fx)
        except errors.KafkaError as error:
            return Outcome((), ConsumerHeartbeatResponse(error.code, str(error)))
        return fx.outcome(response)

    def follow(
        self, request: ConsumerHeartbeatRequest, *, now: Millis
    ) -> Outcome[Record, ConsumerHeartbeatResponse | None]:
        """A plain ConsumerGroupHeartbeat, see `ConsumerGroup.follow`. The response to any other heartbeat is None."""
        group = self.groups.get(request.group_id)
        return (group.follow(request, now=now) if isinstance(group, ConsumerGroup) else None) or _NOT_FOLLOWED

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, request: m.CommitRequest, *, now: Millis) -> Outcome[Record, m.CommitResponse]:
        """OffsetCommit. A client without a generation may commit if the group has no members. That creates it."""
        fx = Effects(now=now)
        group = self.groups.get(request.group_id)
        if group is not None:
            group.check_commit(request, fx)
        elif request.generation_id >= 0:
            # Clients from version 9 on know the better error.
            error = errors.GroupIdNotFound if request.api_version >= 9 else errors.IllegalGeneration
            raise error(f"There is no group {request.group_id}.")
        if isinstance(request.offsets, bytes):
            commits = pack_commits(request.offsets, now, request.group_id, r.COMMIT_TYPES)
            return fx.outcome(m.ALL_TAKEN, commits) if fx.timers else Outcome(commits, m.ALL_TAKEN)
        expires_at = -1 if request.retention_time == -1 else now + request.retention_time
        return fx.outcome(self.offsets.commit(request.group_id, request.offsets, fx, expires_at=expires_at))

    def commit_transactional(
        self, request: m.TransactionalCommitRequest, *, now: Millis
    ) -> Outcome[Record, m.CommitResponse]:
        """TxnOffsetCommit. The records belong to the producer's transaction."""
        fx = Effects(now=now)
        group = self.groups.get(request.group_id)
        try:
            if group is not None:
                group.check_commit(request, fx)
            elif request.generation_id >= 0:
                raise errors.IllegalGeneration(f"There is no group {request.group_id}.")
            response = self.offsets.commit(request.group_id, request.offsets, fx)
            records = r.TransactionalRecords(fx.records, request.producer_id, request.producer_epoch)
            return fx.outcome(response, records)
        except errors.StaleMemberEpoch as error:
            raise errors.IllegalGeneration(str(error)) from error

    def fetch(self, request: m.FetchRequest, *, now: Millis) -> Outcome[Record, m.FetchResponse]:
        """OffsetFetch of one group. A group that does not exist has no offsets, which is not an error."""
        group = self.groups.get(request.group_id)
        if group is not None:
            group.check_fetch(request)
        elif request.topics is None:
            return Outcome((), m.FetchResponse(group_id=request.group_id))
        return Outcome((), self.offsets.fetch(request))

    def delete_offsets(
        self, request: m.DeleteOffsetsRequest, *, now: Millis
    ) -> Outcome[Record, m.DeleteOffsetsResponse]:
        """OffsetDelete, of topics that no member reads."""
        fx = Effects(now=now)
        group = self._group(request.group_id)
        group.check_delete_offsets()
        subscribed = {topic for topic, _ in request.partitions if group.is_subscribed(topic)}
        free = [place for place in dict.fromkeys(request.partitions) if place[0] not in subscribed]
        self.offsets.delete(request.group_id, free, fx)
        code = errors.GroupSubscribedToTopic.code
        answers = (m.DeletedOffset(*place, code if place[0] in subscribed else 0) for place in request.partitions)
        return fx.outcome(m.DeleteOffsetsResponse(partitions=tuple(answers)))

    # ── groups as a whole ─────────────────────────────────────────────────────────────────────────────────────────

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = (), *, now: Millis
    ) -> Outcome[Record, tuple[m.ListedGroup, ...]]:
        """ListGroups, filtered by states and types in lower case. An empty filter lists all."""
        listed = (group.listed() for group in self.groups.values())
        return Outcome(
            (),
            tuple(
                group
                for group in listed
                if (not states or group.state.lower() in states) and (not types or group.type.lower() in types)
            ),
        )

    def describe(self, group_id: str, *, now: Millis) -> Outcome[Record, m.DescribedGroup]:
        """DescribeGroups of one classic group. Versions below 6 have no error, only the state Dead.

        The empty group id is valid here, because old clients have committed to it.
        """
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return Outcome((), group.described())
        code = errors.GroupIdNotFound.code
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
        return Outcome((), m.DescribedGroup(group_id=group_id, error_code=code, error_message=message, state="Dead"))

    def describe_consumer(self, group_id: str, *, now: Millis) -> Outcome[Record, DescribedConsumerGroup]:
        """ConsumerGroupDescribe of one group."""
        return Outcome((), self.consumers.describe(group_id))

    def delete_groups(self, group_ids: Iterable[str], *, now: Millis) -> Outcome[Record, tuple[m.DeletedGroup, ...]]:
        """DeleteGroups, with their offsets and their history."""
        fx = Effects(now=now)
        return fx.outcome(tuple(self._delete_group(group_id, fx) for group_id in group_ids))

    def _delete_group(self, group_id: str, fx: Effects) -> m.DeletedGroup:
        try:
            # The empty group id cannot be joined, but old clients have committed to it.
            group = self.groups.get(group_id)
            if group is None:
                raise errors.GroupIdNotFound(f"Group {group_id} not found.")
            group.check_delete()
        except errors.KafkaError as error:
            return m.DeletedGroup(group_id, error.code)
        self.offsets.delete_group(group_id, fx)
        self._delete_with_history(group, fx)
        return m.DeletedGroup(group_id)

    def _delete_with_history(self, group: Group, fx: Effects) -> None:
        group.delete(fx)
        self.histories.delete_group(group.group_id, fx)

    def _group(self, group_id: str) -> Group:
        if not group_id:
            raise errors.InvalidGroupId()
        group = self.groups.get(group_id)
        if group is None:
            raise errors.GroupIdNotFound(f"Group {group_id} not found.")
        return group

    # ── for tests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def force_rebalance(self, group_id: str, reason: str, *, now: Millis) -> Outcome[Record, None]:
        """Make a group rebalance, as a change of its topics would."""
        fx = Effects(now=now)
        trigger = r.Trigger(history.TOPIC_METADATA_CHANGED, now, None, reason)
        self._group(group_id).force_rebalance(trigger, fx)
        return fx.outcome(None)

    def expire_sessions(
        self, group_id: str, member_ids: Collection[str] | None, *, now: Millis
    ) -> Outcome[Record, tuple[str, ...]]:
        """End the sessions of some members, or of all, as if nothing had been heard of them. Return who they were."""
        fx = Effects(now=now)
        group = self._group(group_id)
        known = [each for each in group.member_ids if member_ids is None or each in member_ids]
        for member_id in known:
            group.expire_session(member_id, fx)
        return fx.outcome(tuple(known))

    # ── timers and other events ───────────────────────────────────────────────────────────────────────────────────

    def fire(self, key: Hashable, /, *, now: Millis) -> Outcome[Record, None]:
        """A timer has fired."""
        fx = Effects(now=now)
        if key == EXPIRE_OFFSETS:
            self._expire_offsets(fx)
        elif isinstance(key, tuple) and (group := self.groups.get(key[1])) is not None:
            group.fire(key, fx)
        return fx.outcome(None)

    def _expire_offsets(self, fx: Effects) -> None:
        for group_id, group in self.groups.items():
            is_expired = group.offset_expiry(fx)
            if is_expired is None:
                continue
            nothing_left = self.offsets.expire(group_id, group.is_subscribed, is_expired, fx)
            if nothing_left and group.is_empty:
                self._delete_with_history(group, fx)
        fx.set_timer(EXPIRE_OFFSETS, fx.now + self.config.offsets_retention_check_interval_ms)

    def partitions_deleted(self, partitions: Iterable[TopicPartition], *, now: Millis) -> Outcome[Record, None]:
        """Partitions were deleted: delete the offsets that were committed for them."""
        fx = Effects(now=now)
        self.offsets.delete_partitions(partitions, fx)
        return fx.outcome(None)

    def topics_changed(self, names: Collection[str], *, created: bool, now: Millis) -> Outcome[Record, None]:
        """Topics were created or deleted, or got partitions. The leaders of classic groups find out themselves."""
        fx = Effects(now=now)
        self.consumers.topics_changed(names, fx, created=created)
        return fx.outcome(None)

    def loaded(self, *, now: Millis) -> Outcome[Record, None]:
        """Everything has been replayed: set the timers. Called once."""
        fx = Effects(now=now)
        for group in list(self.groups.values()):
            group.loaded(fx)
        fx.set_timer(EXPIRE_OFFSETS, now + self.config.offsets_retention_check_interval_ms)
        return fx.outcome(None)

    def append_failed(self, outcome: Outcome[Record, Any], /, *, now: Millis) -> Outcome[Record, None]:
        """The journal did not take the records of an outcome: put soft state right, and set the timers again.

        The driver fires the timer that led to the outcome again, and fails the requests that it would have answered.
        """
        fx = Effects(now=now)
        self.shard.forming.clear()
        lost: dict[str, list[r.Key]] = {}
        for key, _ in outcome.records:
            if not isinstance(key, r.UnknownKey):
                lost.setdefault(key.group_id, []).append(key)
        for group_id, keys in lost.items():
            group = self.groups.get(group_id)
            if group is not None:
                group.append_failed(keys, fx)
        return fx.outcome(None)

    # ── replay ────────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, record: Record, /, *, producer_id: int = NO_PRODUCER) -> None:
        """Change the logged state by one record. It may belong to the transaction of a producer."""
        key, value = record
        replayer = self._replayers.get(type(key))
        if replayer is None:
            self.ignored += 1
            return
        replayer(key, value, producer_id)

    def join_batches(self, batches: Sequence[Sequence[Record]], /) -> Sequence[Record]:
        packed = [batch for batch in batches if isinstance(batch, PackedCommits)]
        return join_commits(packed) if len(packed) == len(batches) else super().join_batches(batches)

    def replay_batch(self, records: Sequence[Record], /) -> None:
        if isinstance(records, PackedCommits):
            self.replay_commit(records)
        else:
            producer_id = records.producer_id if isinstance(records, r.TransactionalRecords) else NO_PRODUCER
            for record in records:
                self.replay(record, producer_id=producer_id)

    def replay_commit(self, commits: PackedCommits) -> None:
        """Replay the records of a packed commit all at once."""
        group_id = commits.group_id
        if group_id in self.groups:
            self.offsets.replay_packed(group_id, commits)
        else:
            for record in commits:
                self.replay(record)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The log has the marker that ends a producer's transaction."""
        self.offsets.end_transaction(producer_id, committed=committed)

    def _replay_offset(self, key: r.OffsetCommitKey, value: r.OffsetCommitValue | None, producer_id: int) -> None:
        if value is not None and key.group_id not in self.groups:
            # The group of a client that only keeps offsets here.
            self.groups[key.group_id] = ClassicGroup(self.shard, key.group_id, now=value.commit_timestamp)
        self.offsets.replay(key, value, producer_id)

    def _replay_legacy_offset(
        self, key: r.LegacyOffsetCommitKey, value: r.LegacyOffsetCommitValue | None, producer_id: int
    ) -> None:
        new_value = None
        if value is not None:
            new_value = r.OffsetCommitValue(value.offset, -1, value.metadata, value.commit_timestamp)
        self._replay_offset(r.OffsetCommitKey(key.group_id, key.topic, key.partition), new_value, producer_id)

    def _replay_classic(self, key: r.GroupMetadataKey, value: r.GroupMetadataValue | None, _: int) -> None:
        group = self.groups.get(key.group_id)
        if value is None:
            # It may have become a group of the other kind, which the tombstone does not concern.
            if isinstance(group, ClassicGroup):
                del self.groups[key.group_id]
            return
        if not isinstance(group, ClassicGroup):
            group = self.shard.forming.pop(key.group_id, None)
            if not isinstance(group, ClassicGroup):
                group = ClassicGroup(self.shard, key.group_id, now=value.current_state_timestamp)
            self.groups[key.group_id] = group
        group.replay(value)

    def _replay_history(self, key: r.HistoryKey, value: r.HistoryValue | None, _: int) -> None:
        self.histories.replay(key, value)

    def _replay_old_history(self, key: r.OldHistoryKey, value: r.HistoryValue | None, _: int) -> None:
        self.histories.replay_old(key, value)
