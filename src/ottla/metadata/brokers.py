"""What the controller decides when brokers start, stop and fail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ottla import errors
from ottla.machine import Outcome
from ottla.metadata import records as r
from ottla.metadata.changes import Changes
from ottla.metadata.elections import without
from ottla.metadata.machine import Metadata
from ottla.metadata.values import NO_LEADER, BrokerState, Registration
from ottla.types import Millis, TopicPartition


def register_broker(metadata: Metadata, registration: Registration, *, now: Millis) -> Outcome[r.MetadataRecord, bool]:
    """Take in a broker that has started, and let it lead again. The response is False if the broker is known.

    An epoch that is not newer is an old message, and ignored. A broker that stopped uncleanly may have lost records.
    So before it is back it leaves all ISRs and ELRs. The same holds for replicas whose disk had failed: the disk may be
    another one now.
    """
    broker_id, epoch, previous_epoch, listeners, rack = registration
    known = metadata.brokers.get(broker_id)
    if known is not None and epoch <= known.epoch:
        return Outcome((), False)
    changes = Changes(metadata, metadata.active_brokers - {broker_id}, now=now)
    if known is not None and previous_epoch != known.epoch:
        _leave(changes, broker_id, f"broker {broker_id} restarted without a clean stop", has_lost_records=True)
    elif known is not None and not known.is_fenced:
        _leave(changes, broker_id, f"broker {broker_id} restarted")
    _forget_failures(changes, broker_id)
    records: list[r.MetadataRecord] = [*changes.take(), r.BrokerRegistered(broker_id, epoch, listeners, rack)]
    changes.active = metadata.active_brokers | {broker_id}
    _elect_missing(changes, broker_id)
    return Outcome((*records, *changes.take()), True)


def fence_broker(
    metadata: Metadata, broker_id: int, epoch: int, reason: str, *, now: Millis
) -> Outcome[r.MetadataRecord, bool]:
    """Take leaderships and places in ISRs from a broker that cannot be reached. The response is False if it is not
    known by this epoch, or fenced already.

    ``reason`` is part of a sentence, such as "broker 2 stopped".
    """
    broker = metadata.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch or broker.is_fenced:
        return Outcome((), False)
    changes = Changes(metadata, metadata.active_brokers - {broker_id}, now=now)
    _leave(changes, broker_id, reason)
    fenced = r.BrokerChanged(broker_id, epoch, True, broker.is_shutting_down)
    return Outcome((*changes.take(), fenced), True)


def begin_controlled_shutdown(
    metadata: Metadata, broker_id: int, epoch: int, *, now: Millis
) -> Outcome[r.MetadataRecord, list[TopicPartition]]:
    """Move leaderships away from a broker that is going to stop, and take it out of ISRs.

    The response has the partitions that it still leads, because nobody else is in sync. The broker asks again until
    there are none, or until it has waited long enough.
    """
    broker = current_broker(metadata, broker_id, epoch)
    if broker.is_fenced:
        return Outcome((), [])
    reason = f"broker {broker_id} is shutting down"
    changes = Changes(metadata, metadata.active_brokers - {broker_id}, now=now)
    remaining = []
    for topic, index, state in changes.partitions():
        if broker_id not in state.isr:
            continue
        if state.leader == broker_id and changes.active.isdisjoint(state.isr):
            remaining.append(TopicPartition(topic.name, index))
        else:
            changes.settle(topic, index, replace(state, isr=without(state.isr, broker_id)), reason)
    begun = () if broker.is_shutting_down else (r.BrokerChanged(broker_id, epoch, is_shutting_down=True),)
    return Outcome((*begun, *changes.take()), remaining)


def fail_replicas(
    metadata: Metadata, broker_id: int, epoch: int, partitions: Iterable[TopicPartition], *, now: Millis
) -> Outcome[r.MetadataRecord, None]:
    """Take leaderships and places in ISRs from the replicas of a broker whose disk has failed.

    They cannot lead before the broker has started again. Partitions that the broker does not have are ignored.
    """
    current_broker(metadata, broker_id, epoch)
    changes = Changes(metadata, metadata.active_brokers, now=now)
    for partition in partitions:
        topic, index = metadata.topics.get(partition.topic), partition.partition
        if topic is None or not 0 <= index < topic.partitions:
            continue
        state = changes.state(topic, index)
        if broker_id in state.replicas and broker_id not in state.offline:
            isr, offline = without(state.isr, broker_id), (*state.offline, broker_id)
            reason = f"a disk of broker {broker_id} failed"
            changes.settle(topic, index, replace(state, isr=isr, offline=offline), reason)
    return Outcome(changes.take(), None)


def unregister_broker(metadata: Metadata, broker_id: int, *, now: Millis) -> Outcome[r.MetadataRecord, None]:
    """Forget a broker that has been stopped and has no replicas."""
    broker = metadata.brokers.get(broker_id)
    if broker is None:
        raise errors.BrokerIdNotRegistered(
            f"The broker {broker_id} is not registered; the brokers are {sorted(metadata.brokers)}."
        )
    if not broker.is_fenced:
        raise errors.InvalidRequest(f"The broker {broker_id} is running. Stop it before you remove it.")
    has = [
        f"{topic.name}-{index}"
        for topic in metadata.topics.values()
        for index, state in enumerate(topic.states)
        if broker_id in state.replicas
    ]
    if has:
        more = f" and {len(has) - 3} more" if len(has) > 3 else ""
        raise errors.InvalidRequest(
            f"The broker {broker_id} has replicas of {', '.join(has[:3])}{more}. "
            f"Reassign them to other brokers before you remove it."
        )
    return Outcome((r.BrokerUnregistered(broker_id),), None)


def current_broker(metadata: Metadata, broker_id: int, epoch: int) -> BrokerState:
    """Return a broker that sent a request, or raise StaleBrokerEpoch if it is not known by this epoch."""
    broker = metadata.brokers.get(broker_id)
    if broker is None:
        raise errors.StaleBrokerEpoch(f"The broker {broker_id} is not registered.")
    if broker.epoch != epoch:
        raise errors.StaleBrokerEpoch(f"The epoch of broker {broker_id} is {broker.epoch}, not {epoch}.")
    return broker


def _leave(changes: Changes, broker_id: int, reason: str, *, has_lost_records: bool = False) -> None:
    """Take a broker out of all ISRs, and out of all ELRs too if it may have lost records."""
    lost = (broker_id,) if has_lost_records else ()
    for topic, index, state in changes.partitions():
        if broker_id in state.isr or (broker_id in state.elr and lost):
            changes.settle(topic, index, replace(state, isr=without(state.isr, broker_id)), reason, lost=lost)


def _forget_failures(changes: Changes, broker_id: int) -> None:
    """Let replicas whose disk had failed take part again, as replicas that have lost records."""
    for topic, index, _ in changes.partitions():
        state = changes.state(topic, index)
        if broker_id in state.offline:
            isr, offline = without(state.isr, broker_id), without(state.offline, broker_id)
            wanted = replace(state, isr=isr, offline=offline)
            changes.settle(topic, index, wanted, f"broker {broker_id} restarted after a disk failed", lost=(broker_id,))


def _elect_missing(changes: Changes, broker_id: int) -> None:
    """Give leaders to offline partitions of a broker that has just become active."""
    for topic, index, _ in changes.partitions():
        state = changes.state(topic, index)
        if state.leader == NO_LEADER and broker_id in state.replicas:
            changes.settle(topic, index, state, f"broker {broker_id} is back")
