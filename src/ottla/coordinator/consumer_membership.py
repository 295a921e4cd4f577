"""What members of both protocols have in common in a consumer group: room, static instances, the way to a target."""

from __future__ import annotations

from ottla import errors
from ottla.coordinator import history
from ottla.coordinator.consumer_member import Member, Partitions
from ottla.coordinator.consumer_messages import LEAVE_STATIC_EPOCH
from ottla.coordinator.consumer_rebalance import Change
from ottla.coordinator.consumer_subscribe import SubscribedConsumerGroup
from ottla.coordinator.effects import Effects


def merge(fx: Effects, draft: Effects) -> None:
    """Take over what was decided in a draft, now that nothing was wrong with the request."""
    fx.records.extend(draft.records)
    fx.timers.update(draft.timers)
    fx.answers.update(draft.answers)


class ConsumerMembership(SubscribedConsumerGroup):
    """A consumer group that members come to and go from."""

    def check_room(self, member_id: str) -> None:
        if member_id in self.members:
            return
        limit = self.shard.config.group_consumer_max_size
        if len(self.members) >= limit:
            raise errors.GroupMaxSizeReached(f"The consumer group has reached its maximum capacity of {limit} members.")

    def find_static(
        self, instance_id: str, member_id: str, fx: Effects, *, is_classic: bool
    ) -> tuple[Member, Member | None]:
        """Return the member of an instance that joins: a new one, or the present one under its new id."""
        present = self.static_member(instance_id)
        if present is None:
            return self.members.get(member_id) or Member(member_id), None
        if not is_classic and present.classic is None and present.member_epoch != LEAVE_STATIC_EPOCH:
            raise errors.UnreleasedInstanceId(
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {present.member_id} member."
            )
        member = present._replace(member_id=member_id, member_epoch=0, previous_member_epoch=0)
        self.write_removal(present.member_id, fx)
        self.write_member(member, fx)
        self.write_target(member_id, self.target.get(present.member_id, {}), fx)
        self.write_current(member, fx)
        self.sessions.pop(present.member_id, None)
        return member, present

    def known_static(self, instance_id: str, member_id: str) -> Member:
        """Return the member of an instance, or raise if it is not this one."""
        member = self.static_member(instance_id)
        if member is None:
            raise errors.UnknownMemberId(f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise errors.FencedInstanceId(
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
            )
        return member

    # ── the way to the target ─────────────────────────────────────────────────────────────────────────────────────

    def settle(self, change: Change, epoch: int, fx: Effects, *, owned: Partitions | None, changed: bool) -> Member:
        """Compute the target if the epoch is above its own, and take the member a step towards it."""
        if change.replaces is not None and epoch == self.group_epoch:
            self.static_member_returned(change.after, epoch, fx)
        is_new = epoch > self.assignment_epoch
        if is_new:
            targets = self.update_target(change, epoch, fx)
            target = targets.get(change.after.member_id, {})
        else:
            epoch, targets, target = self.assignment_epoch, self.target, self.target_of(change.after)
        member = self.reconcile(change.after, epoch, target, fx, owned=owned, subscription_changed=changed)
        self.finish_if_reconciled(member, epoch, targets, fx)
        self.tell(epoch, targets, fx, is_new=is_new)
        return member

    def why(self, change: Change) -> str:
        if change.replaces is not None:
            return history.STATIC_MEMBER_REPLACED
        return history.SUBSCRIPTION_CHANGED if change.after.member_id in self.members else history.MEMBER_JOINED
