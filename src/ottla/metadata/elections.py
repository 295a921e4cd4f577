"""What follows for one partition from a change of its ISR, its replicas or the brokers that are alive.

`settle` takes the state of a partition and the state that somebody wants, and returns the next state. The rules are
those of Kafka 4 with eligible leader replicas (KIP-966):

- Every member of the ISR and of the ELR has every committed record.
- While the ISR is smaller than its minimum, nothing is committed. So a replica that leaves the ISR then becomes
  eligible, until the ISR has its minimum again. A replica that may have lost records is not eligible.
- A leader is a member of the ISR. If the ISR is empty, it is an eligible replica. If that set is empty too, it is the
  last leader. Only an unclean election takes any other replica.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from ottla.metadata.values import NO_LEADER, PartitionState


class Rules(NamedTuple):
    """What an election depends on, besides the state of the partition."""

    active: Collection[int]
    """The brokers that can become leaders."""
    min_isr: int = 1
    """``min.insync.replicas`` of the topic."""
    unclean: bool = False
    """``unclean.leader.election.enable`` of the topic."""


class _Choice(NamedTuple):
    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]


def settle(
    before: PartitionState,
    wanted: PartitionState,
    rules: Rules,
    *,
    lost: Collection[int] = (),
    prefer_first: bool = False,
) -> PartitionState:
    """Return the next state of a partition, or the same object if nothing changes.

    ``wanted`` is the state before with another ISR or other replicas. ``lost`` are the replicas that may have lost
    records. With ``prefer_first`` the preferred leader replaces the present one, if it can.

    >>> three = PartitionState.new([1, 2, 3])
    >>> without = replace(three, isr=(2, 3))
    >>> settle(three, without, Rules({2, 3}, min_isr=2)).leader
    2
    """
    wanted = _completed(wanted)
    elr = _eligible(before, wanted, rules.min_isr, lost)
    leader, isr, elr = _elect(before, wanted, elr, rules, prefer_first)
    after = PartitionState(
        wanted.replicas,
        tuple(each for each in wanted.replicas if each in isr),
        leader,
        before.leader_epoch,
        before.partition_epoch,
        elr,
        _last_known(before, wanted, leader),
        wanted.adding,
        wanted.removing,
        tuple(each for each in wanted.offline if each in wanted.replicas),
    )
    if after == before:
        return before
    is_fenced = leader != before.leader or not set(before.replicas) <= set(after.replicas)
    return replace(after, leader_epoch=before.leader_epoch + is_fenced, partition_epoch=before.partition_epoch + 1)


def without(members: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    """Return the members except one.

    >>> without((1, 2, 3), 2)
    (1, 3)
    """
    return tuple(each for each in members if each != broker_id)


def without_void_elr(state: PartitionState, min_isr: int) -> PartitionState:
    """Return the state for another ``min.insync.replicas``: an ISR that can commit has no eligible replicas beside it.

    >>> without_void_elr(PartitionState((1, 2), (1,), 1, elr=(2,)), 1).elr
    ()
    """
    if not state.elr or len(state.isr) < state.min_isr(min_isr):
        return state
    return replace(state, elr=(), partition_epoch=state.partition_epoch + 1)


def is_unclean(before: PartitionState, wanted: PartitionState, after: PartitionState) -> bool:
    """Say whether the new leader that `settle` chose may miss committed records."""
    return after.leader not in (before.leader, NO_LEADER, *wanted.isr, *before.isr, *before.elr)


def _completed(wanted: PartitionState) -> PartitionState:
    """End a reassignment when all its replicas are in sync."""
    if not wanted.is_reassigning:
        return wanted
    target = tuple(each for each in wanted.replicas if each not in wanted.removing)
    if not target or not set(target) <= set(wanted.isr):
        return wanted
    return replace(wanted, replicas=target, isr=target, adding=(), removing=())


def _eligible(before: PartitionState, wanted: PartitionState, min_isr: int, lost: Collection[int]) -> tuple[int, ...]:
    if len(wanted.isr) >= wanted.min_isr(min_isr):
        return ()
    # The minimum may have been lowered since: then records were committed without the eligible replicas.
    complete = before.isr if len(before.isr) >= before.min_isr(min_isr) else before.isr + before.elr
    return tuple(each for each in wanted.replicas if each in complete and each not in wanted.isr and each not in lost)


def _elect(
    before: PartitionState, wanted: PartitionState, elr: tuple[int, ...], rules: Rules, prefer_first: bool
) -> _Choice:
    active = [each for each in wanted.replicas if each in rules.active and each not in wanted.offline]
    if wanted.isr:
        return _Choice(_of_isr(before.leader, wanted, active, prefer_first), wanted.isr, elr)
    for each in active:
        if each in elr:
            commits_alone = wanted.min_isr(rules.min_isr) <= 1
            return _Choice(each, (each,), () if commits_alone else without(elr, each))
    if not elr and len(before.last_known_elr) == 1 and before.last_known_elr[0] in active:
        return _Choice(before.last_known_elr[0], before.last_known_elr, ())
    if rules.unclean and active:
        return _Choice(active[0], (active[0],), ())
    return _Choice(NO_LEADER, (), elr)


def _of_isr(leader: int, wanted: PartitionState, active: list[int], prefer_first: bool) -> int:
    candidates = [each for each in active if each in wanted.isr]
    if leader in candidates and not (prefer_first and candidates[0] == wanted.replicas[0]):
        return leader
    if candidates:
        return candidates[0]
    # The last member of the ISR leads until it has stopped, even if it is shutting down.
    return leader if leader in wanted.isr else NO_LEADER


def _last_known(before: PartitionState, wanted: PartitionState, leader: int) -> tuple[int, ...]:
    if leader != NO_LEADER:
        return ()
    last = before.last_known_elr if before.leader == NO_LEADER else (before.leader,)
    known = tuple(each for each in last if each in wanted.replicas)
    # The last leader may have been taken away with a reassignment. Then an eligible replica is as good.
    return known or tuple(each for each in wanted.replicas if each in before.elr)[:1]
