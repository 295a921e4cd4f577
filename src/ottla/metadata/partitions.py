"""What the controller decides about ISRs and leaders of single partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from ottla import errors
from ottla.machine import Outcome
from ottla.metadata import records as r
from ottla.metadata.brokers import current_broker
from ottla.metadata.changes import Changes
from ottla.metadata.elections import without
from ottla.metadata.machine import Metadata
from ottla.metadata.values import NO_LEADER, PartitionState, Topic
from ottla.types import Millis, TopicPartition

#: As in Kafka: more elections at once would disturb too many clients.
MAX_BALANCED = 1000


class IsrChange(NamedTuple):
    """The ISR that a leader wants for a partition (AlterPartition)."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """The id and the broker epoch of each member."""


def alter_partitions(
    metadata: Metadata, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange], *, now: Millis
) -> Outcome[r.MetadataRecord, list[PartitionState | errors.KafkaError]]:
    """Change ISRs as their leader asks. The response has the new state or an error for each change.

    If a change completes a reassignment that takes the leader away, the answer is NewLeaderElected.
    """
    current_broker(metadata, broker_id, broker_epoch)
    made = Changes(metadata, metadata.active_brokers, now=now)
    answers: list[PartitionState | errors.KafkaError] = []
    for change in changes:
        try:
            answers.append(_alter(metadata, made, broker_id, change))
        except errors.KafkaError as error:
            answers.append(error)
    return Outcome(made.take(), answers)


def elect_leaders(
    metadata: Metadata, partitions: Iterable[TopicPartition] | None, *, unclean: bool, now: Millis
) -> Outcome[r.MetadataRecord, dict[TopicPartition, errors.KafkaError | None]]:
    """Elect the preferred leaders, or any leaders for offline partitions. The response has an error or None for each.

    Without partitions it is about all of them, and those that need no election are left out of the response.
    """
    made = Changes(metadata, metadata.active_brokers, now=now)
    answers: dict[TopicPartition, errors.KafkaError | None] = {}
    if partitions is not None:
        for partition in partitions:
            answers[partition] = _elect_one(metadata, made, partition, unclean)
        return Outcome(made.take(), answers)
    for topic, index, _ in made.partitions():
        partition = TopicPartition(topic.name, index)
        answer = _elect_one(metadata, made, partition, unclean)
        if not isinstance(answer, errors.ElectionNotNeeded):
            answers[partition] = answer
    return Outcome(made.take(), answers)


def elect_offline(metadata: Metadata, *, now: Millis) -> Outcome[r.MetadataRecord, int]:
    """Give leaders to partitions without one where that has become possible. The response is their number.

    A change of ``unclean.leader.election.enable`` takes effect by this.
    """
    made = Changes(metadata, metadata.active_brokers, now=now)
    elected = 0
    for topic, index, state in made.partitions():
        if state.leader == NO_LEADER:
            after = made.settle(topic, index, state, "the partition was offline")
            elected += after.leader != NO_LEADER
    return Outcome(made.take(), elected)


def balance_leaders(metadata: Metadata, imbalance_percent: int, *, now: Millis) -> Outcome[r.MetadataRecord, int]:
    """Let preferred brokers lead again if others lead too many of their partitions. The response is the number moved.

    A broker counts if more than this percentage of the partitions that it should lead have another leader.
    """
    made = Changes(metadata, metadata.active_brokers, now=now)
    preferred = Counter(state.replicas[0] for _, _, state in made.partitions() if state.replicas)
    away = [each for each in made.partitions() if each[2].replicas and each[2].leader != each[2].replicas[0]]
    missing = Counter(state.replicas[0] for _, _, state in away)
    moved = 0
    for topic, index, state in away:
        broker_id = state.replicas[0]
        is_balanced = missing[broker_id] * 100 <= imbalance_percent * preferred[broker_id]
        if moved == MAX_BALANCED or is_balanced or state.is_reassigning or broker_id not in state.isr:
            continue
        reason = f"leaders were balanced: broker {broker_id} is preferred"
        moved += made.settle(topic, index, state, reason, prefer_first=True) is not state
    return Outcome(made.take(), moved)


def _alter(metadata: Metadata, made: Changes, sender: int, change: IsrChange) -> PartitionState:
    topic = metadata.topics_by_id.get(change.topic_id)
    if topic is None:
        raise errors.UnknownTopicId(f"There is no topic with the id {change.topic_id}.")
    if not 0 <= change.partition < topic.partitions:
        raise errors.UnknownTopicOrPartition(f"There is no partition {topic.name}-{change.partition}.")
    state = made.state(topic, change.partition)
    _check_epochs(state, sender, change)
    _check_members(metadata, state, change)
    isr = tuple(broker_id for broker_id, _ in change.isr)
    reason = _reason(state, isr)
    if sender not in made.active and not made.active.isdisjoint(isr):
        isr = without(isr, sender)  # It led on only because nobody else was in sync.
    after = made.settle(topic, change.partition, replace(state, isr=isr), reason)
    if after.leader != sender:
        raise errors.NewLeaderElected(f"The new leader of {topic.name}-{change.partition} is broker {after.leader}.")
    return after


def _check_epochs(state: PartitionState, sender: int, change: IsrChange) -> None:
    """Raise the error for a leader that does not know the latest state, or knows a later one."""
    if change.leader_epoch > state.leader_epoch or change.partition_epoch > state.partition_epoch:
        raise errors.NotController("The leader has seen a later state, so this is not the controller any more.")
    if change.leader_epoch < state.leader_epoch:
        raise errors.FencedLeaderEpoch(f"The leader epoch is {state.leader_epoch}, not {change.leader_epoch}.")
    if sender != state.leader:
        raise errors.InvalidRequest(f"Broker {sender} is not the leader; broker {state.leader} is.")
    if change.partition_epoch < state.partition_epoch:
        raise errors.InvalidUpdateVersion(
            f"The partition epoch is {state.partition_epoch}, not {change.partition_epoch}."
        )


def _check_members(metadata: Metadata, state: PartitionState, change: IsrChange) -> None:
    """Raise the error for an ISR that is not valid, or that has a new member that must not be in it (KIP-841, 903)."""
    members = [broker_id for broker_id, _ in change.isr]
    if len(set(members)) < len(members) or not set(members) <= set(state.replicas):
        raise errors.InvalidRequest(f"The ISR {members} is not a set of replicas; these are {list(state.replicas)}.")
    if state.leader not in members:
        raise errors.InvalidRequest(f"The leader {state.leader} is not in the ISR {members}.")
    for broker_id, epoch in change.isr:
        if broker_id in state.isr:
            continue
        broker = metadata.brokers.get(broker_id)
        if broker is None:
            problem = "is not registered"
        elif broker.is_fenced:
            problem = "is fenced"
        elif broker.is_shutting_down:
            problem = "is shutting down"
        elif broker.epoch != epoch:
            problem = f"has the epoch {broker.epoch}, not {epoch}"
        elif broker_id in state.offline:
            problem = "has a failed disk"
        else:
            continue
        raise errors.IneligibleReplica(f"Broker {broker_id} {problem}, so it cannot join the ISR.")


def _reason(state: PartitionState, isr: Sequence[int]) -> str:
    joined = [each for each in isr if each not in state.isr]
    left = [each for each in state.isr if each not in isr]
    parts = [f"{_named(joined)} caught up"] if joined else []
    if left:
        parts.append(f"{_named(left)} {'is' if len(left) == 1 else 'are'} too slow")
    return ", ".join(parts) or "the leader confirmed the ISR"


def _named(broker_ids: Sequence[int]) -> str:
    """Name brokers in a sentence."""
    names = [str(each) for each in broker_ids]
    return f"broker {names[0]}" if len(names) == 1 else f"brokers {', '.join(names[:-1])} and {names[-1]}"


def _elect_one(metadata: Metadata, made: Changes, partition: TopicPartition, unclean: bool) -> errors.KafkaError | None:
    """Elect a leader for one partition, and return the error if that is not needed or not possible."""
    topic = metadata.topics.get(partition.topic)
    if topic is None or not 0 <= partition.partition < topic.partitions:
        return errors.UnknownTopicOrPartition(f"There is no partition {partition}.")
    state = made.state(topic, partition.partition)
    if unclean:
        return _elect_unclean(made, topic, partition, state)
    first = state.replicas[0]
    if state.leader == first:
        return errors.ElectionNotNeeded(f"The leader of {partition} is the preferred one, broker {first}.")
    reason = "the preferred leader was asked for"
    after = made.settle(topic, partition.partition, state, reason, prefer_first=True)
    if after is not state:
        return None
    return errors.PreferredLeaderNotAvailable(
        f"The preferred leader of {partition}, broker {first}, is not {'in sync' if first in made.active else 'alive'}."
    )


def _elect_unclean(
    made: Changes, topic: Topic, partition: TopicPartition, state: PartitionState
) -> errors.KafkaError | None:
    if state.leader != NO_LEADER:
        return errors.ElectionNotNeeded(f"The partition {partition} has a leader, broker {state.leader}.")
    after = made.settle(topic, partition.partition, state, "an unclean election was asked for", unclean=True)
    if after.leader != NO_LEADER:
        return None
    return errors.EligibleLeadersNotAvailable(f"No replica of {partition} is alive; they are {list(state.replicas)}.")
