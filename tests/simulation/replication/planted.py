"""Bugs that are planted into the real machines, to show that the simulation finds them.

Each is a mistake that some system has made. `plant` puts one in for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tests.simulation.replication.broker import Broker
from tests.simulation.replication.cluster import Cluster, Host
from tests.simulation.replication.controller import Controller
from tests.simulation.replication.coordinators import DataPartition
from tests.simulation.replication.messages import Read, ReadAnswer
from tests.simulation.replication.replica import Replica
from tests.simulation.replication.zookeeper import Batch, ZooKeeper

from ottla.driver import Driver
from ottla.metadata import brokers, changes, elections, machine, partitions
from ottla.metadata.values import PartitionState
from ottla.replication import leader
from ottla.replication.follower import Follower
from ottla.replication.leader import Leader
from ottla.replication.values import Truncate

Patch = Callable[[Any, str, Any], None]


@contextmanager
def plant(name: str | None) -> Iterator[None]:
    """Plant a bug, or none."""
    patches: list[Any] = []

    def patch(target: Any, attribute: str, value: Any) -> None:
        patcher = mock.patch.object(target, attribute, value)
        patcher.start()
        patches.append(patcher)

    if name is not None:
        BUGS[name](patch)
    try:
        yield
    finally:
        for patcher in reversed(patches):
            patcher.stop()


# ── leaders ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _answer_before_high_watermark(patch: Patch) -> None:
    """acks=all is answered when the leader has the record."""
    patch(Replica, "when_committed", lambda replica, offset, answer: answer(offset))


def _count_committed_isr_only(patch: Patch) -> None:
    """The high watermark does not wait for members that were proposed and may be committed (KAFKA-12686)."""
    _count_instead(patch, lambda leader, proposed: frozenset(leader.state.isr))


def _forget_leavers_at_once(patch: Patch) -> None:
    """The high watermark does not wait for members that should leave, before the controller has agreed."""
    _count_instead(patch, lambda leader, proposed: frozenset(proposed or leader.state.isr))


def _count_instead(patch: Patch, isr: Callable[[Leader, list[int]], frozenset[int]]) -> None:
    """Let other replicas count for the high watermark than those in the maximal ISR."""
    count = Leader._count

    def counts(self: Leader) -> None:
        count(self)
        proposed = [] if self._in_flight is None else [member.broker_id for member in self._in_flight.isr]
        self.maximal_isr = isr(self, proposed)
        self._counted = [self.followers[each] for each in self.maximal_isr if each != self.me]

    patch(Leader, "_count", counts)


def _use_answer_before_image(patch: Patch) -> None:
    """A leader uses an accepted ISR before the image has it, and so with an older min.insync.replicas."""
    answered = Replica._proposal_answered

    def use(self: Replica, leader: Leader, proposal: Any, answer: Any) -> None:
        if self.leader is leader and isinstance(answer, PartitionState):
            leader.state_changed(answer, now=self.broker.now())
            self.watermark_moved()
        else:
            answered(self, leader, proposal, answer)

    patch(Replica, "_proposal_answered", use)


def _commit_below_min_isr(patch: Patch) -> None:
    """The high watermark rises although the ISR is too small (KAFKA-15583)."""
    count = Leader._count

    def counts(self: Leader) -> None:
        count(self)
        self.is_below_min_isr = False

    patch(Leader, "_count", counts)


def _join_at_high_watermark(patch: Patch) -> None:
    """A follower joins the ISR of a new leader, whose high watermark is too low, without the leader's first records."""
    can_join = Leader._can_join

    def joins(self: Leader, broker_id: int) -> bool:
        start, self.epoch_start_offset = self.epoch_start_offset, 0
        try:
            return can_join(self, broker_id)
        finally:
            self.epoch_start_offset = start

    patch(Leader, "_can_join", joins)


def _join_behind(patch: Patch) -> None:
    """A follower that has fetched joins the ISR, wherever it is."""

    def joins(self: Leader, broker_id: int) -> bool:
        progress = self.followers.get(broker_id)
        return progress is not None and broker_id not in self.state.isr and self._is_eligible(broker_id, progress)

    patch(Leader, "_can_join", joins)


def _count_followers_of_earlier_epochs(patch: Patch) -> None:
    """A new leader epoch starts with what the broker knew about its followers when it led before (KAFKA-7128)."""
    lead = Replica._lead
    known: dict[tuple[Broker, int], Any] = {}

    def remember(replica: Replica, state: PartitionState) -> None:
        lead(replica, state)
        if replica.leader is not None:
            replica.leader.followers.update(
                (each, progress)
                for each, progress in known.get((replica.broker, replica.index), {}).items()
                if each in replica.leader.followers and replica.leader.followers[each].log_end_offset < 0
            )
            known[replica.broker, replica.index] = replica.leader.followers

    patch(Replica, "_lead", remember)


def _accept_fetches_of_earlier_lives(patch: Patch) -> None:
    """A fetch of an earlier life of a broker counts for its present one (KIP-903)."""
    check = Leader._check

    def checked(self: Leader, fetch: Any) -> Any:
        broker = self._brokers.get(fetch.replica)
        progress = check(self, fetch._replace(broker_epoch=2**40))
        if broker is not None:
            progress.broker_epoch = broker.epoch
        return progress

    eligible = Leader._is_eligible

    def is_eligible(self: Leader, broker_id: int, progress: Any) -> bool:
        broker = self._brokers.get(broker_id)
        if broker is not None:
            progress.broker_epoch = broker.epoch
        return eligible(self, broker_id, progress)

    patch(Leader, "_check", checked)
    patch(Leader, "_is_eligible", is_eligible)


def _ignore_divergence(patch: Patch) -> None:
    """The leader does not compare epochs, so a follower keeps records that the leader never had."""
    patch(leader, "divergence", lambda log, fetch_offset, last_fetched_epoch: None)


def _read_uncommitted(patch: Patch) -> None:
    """Consumers read up to the end of the log."""

    def read(replica: Replica, request: Read, answer: Any) -> None:
        start = max(request.offset, replica.log.log_start_offset)
        answer(ReadAnswer(start, replica.log.read(start, replica.log.log_end_offset)))

    patch(Replica, "read", read)


# ── followers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _truncate_to_high_watermark(patch: Patch) -> None:
    """A new follower cuts its log to the high watermark, which may be too low (KIP-101)."""
    follow = Replica._follow

    def cut(replica: Replica, state: PartitionState) -> None:
        replica.log.truncate_to(replica.high_watermark)
        follow(replica, state)

    patch(Replica, "_follow", cut)


def _truncate_once(patch: Patch) -> None:
    """A follower cuts to the leader's offset without comparing the epochs of its own log (KIP-279)."""
    patch(Follower, "_diverging", lambda self, diverging: Truncate(min(diverging.end_offset, self.fetch_offset)))


def _raise_high_watermark_before_truncating(patch: Patch) -> None:
    """A follower takes the leader's high watermark before its log is a prefix of the leader's (KAFKA-14704)."""
    response = Follower.response

    def raised(self: Follower, fetch_offset: int, answer: Any) -> Any:
        self._high_watermark = max(self._high_watermark, answer.high_watermark)
        return response(self, fetch_offset, answer)

    patch(Follower, "response", raised)


# ── the controller ───────────────────────────────────────────────────────────────────────────────────────────────────


def _join_without_epoch_check(patch: Patch) -> None:
    """The controller does not compare the broker epochs of new members (KIP-903)."""
    check = partitions._check_members

    def checked(metadata: Any, state: PartitionState, change: Any) -> None:
        known = metadata.brokers
        isr = tuple((each, known[each].epoch if each in known else epoch) for each, epoch in change.isr)
        check(metadata, state, change._replace(isr=isr))

    patch(partitions, "_check_members", checked)


def _join_of_fenced_broker(patch: Patch) -> None:
    """The controller takes fenced brokers into an ISR (KIP-841)."""
    check = partitions._check_members

    def checked(metadata: Any, state: PartitionState, change: Any) -> None:
        known = {broker_id: replace(broker, is_fenced=False) for broker_id, broker in metadata.brokers.items()}
        check(SimpleNamespace(brokers=known), state, change)  # type: ignore[arg-type]

    patch(partitions, "_check_members", checked)


def _accept_stale_alter_partition(patch: Patch) -> None:
    """The controller does not compare the epochs of a proposal."""
    patch(partitions, "_check_epochs", lambda state, sender, change: None)


def _elect_anybody(patch: Patch) -> None:
    """The controller elects a replica outside of the ISR and the ELR if nobody else is there."""
    rules = elections.Rules
    patch(changes, "Rules", lambda active, min_isr, unclean: rules(active, min_isr, True))


def _unclean_restart_keeps_elr(patch: Patch) -> None:
    """A broker that may have lost records stays eligible."""
    leave = brokers._leave
    patch(
        brokers, "_leave", lambda changes, broker_id, reason, has_lost_records=False: leave(changes, broker_id, reason)
    )


def _eligible_beside_full_isr(patch: Patch) -> None:
    """Replicas stay eligible when the ISR commits again without them."""

    def eligible(before: PartitionState, wanted: PartitionState, min_isr: int, lost: Any) -> tuple[int, ...]:
        members = before.isr + before.elr
        return tuple(
            each for each in members if each in wanted.replicas and each not in wanted.isr and each not in lost
        )

    patch(elections, "_eligible", eligible)


def _keep_elr_with_lower_minimum(patch: Patch) -> None:
    """Replicas stay eligible when a lower min.insync.replicas lets the leader commit without them."""
    patch(machine, "without_void_elr", lambda state, min_isr: state)


def _deposed_controller_writes(patch: Patch) -> None:
    """The metadata log does not check who writes (KAFKA-6082)."""
    append = ZooKeeper.append
    patch(
        ZooKeeper,
        "append",
        lambda self, records, position, epoch: append(self, records, len(self.log), self.controller_epoch),
    )


def _replay_before_writing(patch: Patch) -> None:
    """The controller changes its image before ZooKeeper has the records."""
    write = Controller._write

    def early(self: Controller, outcome: Any, answer: Any) -> None:
        position = self.broker.position
        write(self, outcome, answer)
        self.broker.replay_own(Batch(position, tuple(outcome.records), self.epoch))

    patch(Controller, "_write", early)


# ── brokers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _lead_before_registered(patch: Patch) -> None:
    """A restarted broker takes the roles that the image gave to its earlier life (KAFKA-7235)."""

    loaded = Broker._loaded

    def served(broker: Broker, answer: Any) -> None:
        loaded(broker, answer)
        broker._is_serving = True
        broker._update_replicas()

    patch(Broker, "_loaded", served)


def _take_a_lost_machine_for_a_killed_process(patch: Patch) -> None:
    """The boot id is not compared, so a broker that has lost data looks like one that was only killed."""
    kill = Cluster.kill

    def killed(cluster: Cluster, host: Host, *, loses: bool) -> None:
        epoch = host.disk.life_epoch
        kill(cluster, host, loses=loses)
        host.disk.life_epoch = epoch

    patch(Cluster, "kill", killed)


def _keep_clean_shutdown_file(patch: Patch) -> None:
    """The file of a clean shutdown is not removed at the start, so a later unclean stop looks clean."""
    start = Broker.__init__

    def started(broker: Broker, *args: Any) -> None:
        start(broker, *args)
        broker.disk.clean_epoch = broker._previous_epoch

    registered = Broker._registered

    def remembered(broker: Broker, answer: Any) -> None:
        registered(broker, answer)
        broker.disk.clean_epoch = broker.epoch

    patch(Broker, "__init__", started)
    patch(Broker, "_registered", remembered)


# ── coordinators ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _answer_before_records_are_replicated(patch: Patch) -> None:
    """A coordinator answers when the leader has its records, as in a Jepsen report on Redpanda."""
    wait_for = Driver._wait_for

    def forget(driver: Driver[Any], position: int) -> None:
        wait_for(driver, position)
        driver._uncommitted = None

    patch(Driver, "_wait_for", forget)


def _complete_before_markers_are_replicated(patch: Patch) -> None:
    """A leader answers a marker when it has it, so a transaction is complete whose end may be lost."""
    write = DataPartition._write

    def early(self: DataPartition, written: Any, answer: Any) -> None:
        if written.commits is None:
            write(self, written, answer)
        else:
            write(self, written, lambda offset: None)
            answer(0)

    patch(DataPartition, "_write", early)


BUGS: dict[str, Callable[[Patch], None]] = {
    bug.__name__.removeprefix("_"): bug
    for bug in (
        _answer_before_high_watermark,
        _count_committed_isr_only,
        _forget_leavers_at_once,
        _use_answer_before_image,
        _commit_below_min_isr,
        _join_at_high_watermark,
        _join_behind,
        _count_followers_of_earlier_epochs,
        _accept_fetches_of_earlier_lives,
        _ignore_divergence,
        _read_uncommitted,
        _truncate_to_high_watermark,
        _truncate_once,
        _raise_high_watermark_before_truncating,
        _join_without_epoch_check,
        _join_of_fenced_broker,
        _accept_stale_alter_partition,
        _elect_anybody,
        _unclean_restart_keeps_elr,
        _eligible_beside_full_isr,
        _keep_elr_with_lower_minimum,
        _deposed_controller_writes,
        _replay_before_writing,
        _lead_before_registered,
        _take_a_lost_machine_for_a_killed_process,
        _keep_clean_shutdown_file,
        _answer_before_records_are_replicated,
        _complete_before_markers_are_replicated,
    )
}
#: The bugs that plain records do not show.
OF_COORDINATORS = frozenset(
    {
        "answer_before_records_are_replicated",
        "complete_before_markers_are_replicated",
    }
)
