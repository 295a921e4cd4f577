"""The records of a consumer group, as they are written."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.coordinator import records as r
from ottla.coordinator.consumer.member import Member, Partitions, to_topic_partitions
from ottla.coordinator.effects import Effects


class RecordWriter:
    """Adds the records of one group to the effects of an operation.

    >>> writer, fx = RecordWriter("billing"), Effects(now=0)
    >>> writer.target_epoch(3, fx)
    >>> fx.records[0].key, fx.records[0].value.assignment_epoch
    (ConsumerGroupTargetAssignmentMetadataKey(group_id='billing'), 3)
    """

    __slots__ = ("group_id",)

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    def epoch(self, epoch: int, metadata_hash: int, fx: Effects) -> None:
        fx.write(r.ConsumerGroupMetadataKey(self.group_id), r.ConsumerGroupMetadataValue(epoch, metadata_hash))

    def no_partition_metadata(self, fx: Effects) -> None:
        fx.write(r.ConsumerGroupPartitionMetadataKey(self.group_id), None)

    def member(self, member: Member, fx: Effects) -> None:
        fx.write(r.ConsumerGroupMemberMetadataKey(self.group_id, member.member_id), member.metadata_value())

    def current(self, member: Member, fx: Effects) -> None:
        fx.records.append(self.current_record(member))

    def current_record(self, member: Member) -> r.CoordinatorRecord:
        key = r.ConsumerGroupCurrentMemberAssignmentKey(self.group_id, member.member_id)
        return r.CoordinatorRecord(key, member.current_value())

    def target(self, member_id: str, partitions: Partitions, fx: Effects) -> None:
        value = r.ConsumerGroupTargetAssignmentMemberValue(to_topic_partitions(partitions))
        fx.write(r.ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id), value)

    def new_target(self, changed: Mapping[str, Partitions], epoch: int, fx: Effects) -> None:
        """Write the shares that changed, and the epoch of the target."""
        for member_id, share in changed.items():
            self.target(member_id, share, fx)
        self.target_epoch(epoch, fx)

    def target_epoch(self, epoch: int, fx: Effects) -> None:
        value = r.ConsumerGroupTargetAssignmentMetadataValue(epoch)
        fx.write(r.ConsumerGroupTargetAssignmentMetadataKey(self.group_id), value)

    def regex(self, regex: str, value: r.ConsumerGroupRegularExpressionValue | None, fx: Effects) -> None:
        fx.write(r.ConsumerGroupRegularExpressionKey(self.group_id, regex), value)

    # ── tombstones ────────────────────────────────────────────────────────────────────────────────────────────────

    def removal(self, member_id: str, fx: Effects) -> None:
        """Remove a member."""
        self._no_current(member_id, fx)
        self._no_target(member_id, fx)
        self._no_member(member_id, fx)

    def end(self, members: Collection[str], regexes: Collection[str], fx: Effects) -> None:
        """Remove the group with everything but its history, in the order that Kafka expects."""
        for member_id in members:
            self._no_current(member_id, fx)
        for member_id in members:
            self._no_target(member_id, fx)
        fx.write(r.ConsumerGroupTargetAssignmentMetadataKey(self.group_id), None)
        for member_id in members:
            self._no_member(member_id, fx)
        for regex in regexes:
            self.regex(regex, None, fx)
        self.no_partition_metadata(fx)
        fx.write(r.ConsumerGroupMetadataKey(self.group_id), None)

    def _no_current(self, member_id: str, fx: Effects) -> None:
        fx.write(r.ConsumerGroupCurrentMemberAssignmentKey(self.group_id, member_id), None)

    def _no_target(self, member_id: str, fx: Effects) -> None:
        fx.write(r.ConsumerGroupTargetAssignmentMemberKey(self.group_id, member_id), None)

    def _no_member(self, member_id: str, fx: Effects) -> None:
        fx.write(r.ConsumerGroupMemberMetadataKey(self.group_id, member_id), None)
