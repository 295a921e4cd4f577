"""Moving the replicas of partitions to other brokers.

A reassignment first adds the new replicas. When all replicas that are to stay are in sync, `elections.settle` takes the
others away and ends it. A second reassignment replaces the first one: what the first one was adding and the second one
does not want is in ``adding`` and in ``removing``, because it goes in the end as well as when all is cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ottla import errors
from ottla.machine import Outcome
from ottla.metadata import records as r
from ottla.metadata.changes import Changes
from ottla.metadata.machine import Metadata
from ottla.metadata.placement import check_replicas
from ottla.metadata.values import PartitionState, Topic
from ottla.types import Millis, TopicPartition


def reassign(
    metadata: Metadata, targets: Mapping[TopicPartition, Sequence[int] | None], *, now: Millis
) -> Outcome[r.MetadataRecord, dict[TopicPartition, errors.KafkaError | None]]:
    """Begin to move partitions to these brokers. None cancels what is under way.

    The response has an error or None for each partition.
    """
    made = Changes(metadata, metadata.active_brokers, now=now)
    answers: dict[TopicPartition, errors.KafkaError | None] = {}
    for partition, target in targets.items():
        try:
            topic = metadata.topic(partition.topic)
            if not 0 <= partition.partition < topic.partitions:
                raise errors.UnknownTopicOrPartition(f"There is no partition {partition}.")
            if target is None:
                _cancel(metadata, made, topic, partition)
            else:
                _start(metadata, made, topic, partition, tuple(target))
            answers[partition] = None
        except errors.KafkaError as error:
            answers[partition] = error
    return Outcome(made.take(), answers)


def reassignments(
    metadata: Metadata, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, PartitionState]:
    """Return the partitions that are being reassigned, of all or of these. Unknown ones are left out.

    A replica that was being added until another reassignment came is only among those that are removed.
    """
    if partitions is None:
        partitions = [
            TopicPartition(topic.name, index) for topic in metadata.topics.values() for index in range(topic.partitions)
        ]
    found = {}
    for partition in partitions:
        topic = metadata.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < topic.partitions:
            continue
        state = topic.states[partition.partition]
        if state.is_reassigning:
            found[partition] = replace(state, adding=tuple(each for each in state.adding if each not in state.removing))
    return found


def _start(metadata: Metadata, made: Changes, topic: Topic, partition: TopicPartition, target: tuple[int, ...]) -> None:
    state = topic.states[partition.partition]
    _check_target(metadata, made, state, target)
    original = [each for each in state.replicas if each not in state.adding]
    wanted = replace(
        state,
        replicas=target + tuple(each for each in state.replicas if each not in target),
        adding=tuple(each for each in dict.fromkeys(target + state.adding) if each not in original),
        removing=tuple(each for each in state.replicas if each not in target),
    )
    made.settle(topic, partition.partition, wanted, f"reassignment to brokers {', '.join(map(str, target))}")


def _check_target(metadata: Metadata, made: Changes, state: PartitionState, target: tuple[int, ...]) -> None:
    check_replicas(metadata.brokers, target)
    dead = [each for each in target if each not in made.active and each not in state.replicas]
    if dead:
        raise errors.InvalidReplicaAssignment(
            f"The brokers {dead} are not alive, so they cannot get new replicas. Start them or use others."
        )


def _cancel(metadata: Metadata, made: Changes, topic: Topic, partition: TopicPartition) -> None:
    state = topic.states[partition.partition]
    if not state.is_reassigning:
        raise errors.NoReassignmentInProgress(f"The partition {partition} is not being reassigned.")
    original = tuple(each for each in state.replicas if each not in state.adding)
    isr = tuple(each for each in state.isr if each in original)
    wanted = replace(state, replicas=original, isr=isr, adding=(), removing=())
    settings = metadata.settings(topic)
    minimum = wanted.min_isr(settings.min_isr)
    complete = state.isr + state.elr
    left = [each for each in complete if each in original]
    # Committed records would be on fewer replicas than was promised, or on none that may lead.
    if len(left) < max(min(minimum, len(complete)), 1) and not settings.unclean:
        raise errors.InvalidReplicaAssignment(
            f"The reassignment of {partition} cannot be cancelled: only {left} of its first replicas {list(original)} "
            f"are in sync, and it needs {minimum} of them. Try again when more have caught up."
        )
    made.settle(topic, partition.partition, wanted, "reassignment cancelled")
