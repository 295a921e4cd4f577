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
    """Return the partitions that are being reassigned, of all or of these. Unknown ones are left out."""
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
            found[partition] = state
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
    if not target:
        raise errors.InvalidReplicaAssignment("The list of replicas is empty. Name at least one broker.")
    if len(set(target)) < len(target):
        raise errors.InvalidReplicaAssignment(f"The replicas {list(target)} name a broker twice.")
    unknown = [each for each in target if each not in metadata.brokers]
    if unknown:
        raise errors.InvalidReplicaAssignment(
            f"The replicas {list(target)} are not available; the brokers are {sorted(metadata.brokers)}."
        )
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
    # Committed records would be left on fewer replicas than was promised.
    if len(isr) < min(minimum, len(state.isr)) and not settings.unclean:
        raise errors.InvalidReplicaAssignment(
            f"The reassignment of {partition} cannot be cancelled: only {len(isr)} of its first replicas "
            f"{list(original)} are in sync, and it needs {minimum}. Try again when more of them have caught up."
        )
    made.settle(topic, partition.partition, wanted, "reassignment cancelled")
