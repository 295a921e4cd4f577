"""What must hold after every step. The names are those of the formal model of KIP-966.

`Invariants.committed` has what leaders have declared committed by moving their high watermarks. Nothing of it may
change or be lost while no more machines lose data than promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.replication.disks import Entry, ReplicaLog
from tests.simulation.replication.messages import ReadAnswer

from ottla.metadata import records as r
from ottla.metadata.values import NO_LEADER, PartitionState
from ottla.replication.values import ReplicaFetch

if TYPE_CHECKING:
    from tests.simulation.replication.broker import Broker
    from tests.simulation.replication.cluster import Cluster, Host
    from tests.simulation.replication.replica import Replica
    from tests.simulation.replication.zookeeper import Batch

LEADER_COMPLETENESS = "LeaderCompleteness"
CANDIDATE_COMPLETENESS = "LeaderCandidateCompleteness"
QUORUM_SUPERSET = "ReplicationQuorumSuperset"
LOG_MATCHING = "LogMatching"
METADATA_LOG_MATCHING = "MetadataLogMatching"
NOT_LOST = "NoCommittedRecordLost"
CONSISTENT_READ = "ConsistentRead"
ELR_EMPTY = "ValidControllerIsrAndElr"
FENCED_OUT = "ValidControllerState"
UNCLEAN_EXCLUSION = "UncleanExclusion"
LIVENESS = "Liveness"


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class Invariants:
    """Watches a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.is_lossy = cluster.options.unclean
        """Unclean elections lose committed records, so most invariants do not hold."""
        self.changed: set[int] = set()
        """The partitions to check."""
        partitions = range(cluster.options.partitions)
        self.committed: list[list[Entry | None]] = [[] for _ in partitions]
        self.promised = [0 for _ in partitions]
        """The smallest number of replicas that have every committed record."""
        self._unclean: dict[int, int] = {}
        """The brokers whose last registration followed an unclean stop, with their epochs."""
        self._caught_up: set[tuple[int, int, int]] = set()
        """Broker, epoch and partition of the followers that were caught up with a leader."""

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────────

    def replica_changed(self, replica: Replica) -> None:
        """A log or a high watermark has changed."""
        self.changed.add(replica.index)
        if self.is_lossy or not replica.is_leader:
            return
        committed, watermark = self.committed[replica.index], replica.high_watermark
        if watermark > len(committed):
            committed += replica.log.entries[len(committed) : watermark]

    def host_changed(self) -> None:
        """A machine has lost data, or may have."""
        self.changed.update(range(len(self.committed)))

    def fetched(self, replica: Replica, fetch: ReplicaFetch) -> None:
        """A leader has accepted a fetch."""
        if fetch.replica in self._unclean and fetch.fetch_offset >= replica.high_watermark:
            self._caught_up.add((fetch.replica, fetch.broker_epoch, replica.index))

    def acknowledged(self, index: int, offset: int, value: object) -> None:
        """A producer was told that its record is committed."""
        committed = self.committed[index]
        if self.is_lossy:
            return
        if offset >= len(committed):
            raise Violation(NOT_LOST, f"{value} was acknowledged at {index}@{offset} before it was committed")
        if (entry := committed[offset]) is None or entry.value != value:
            raise Violation(NOT_LOST, f"{value} was acknowledged at {index}@{offset}, where {entry} is committed")

    def read(self, index: int, answer: ReadAnswer) -> None:
        """A consumer has read records."""
        if self.is_lossy:
            return
        committed = self.committed[index]
        for offset, entry in enumerate(answer.entries, answer.offset):
            if offset >= len(committed) or committed[offset] != entry:
                known = committed[offset] if offset < len(committed) else None
                raise Violation(CONSISTENT_READ, f"{entry} was read at {index}@{offset}, where {known} is committed")

    def metadata_written(self, batch: Batch) -> None:
        """The controller has written a batch."""
        truth, topic = self.cluster.truth, self.cluster.topic
        for record in batch.records:
            if isinstance(record, r.BrokerRegistered):
                self._registered(record.broker_id, record.epoch)
        truth.replay_batch(batch.records)
        for record in batch.records:
            if isinstance(record, r.PartitionsChanged):
                for index, state in record.states.items():
                    self.cluster.say(f"metadata {batch.position}: {index} is {_short(state)}: {record.reason}")
            else:
                self.cluster.say(f"metadata {batch.position}: {record}")
        if topic in truth.topics:
            for index, state in enumerate(truth.topics[topic].states):
                self.changed.add(index)
                self._check_state(index, state)
                self._check_unclean(index, state)

    def _registered(self, broker_id: int, epoch: int) -> None:
        node = self.cluster.zookeeper.brokers.get(broker_id)
        self._unclean.pop(broker_id, None)
        if node is None or node.czxid != epoch:
            return  # A later life has registered since.
        if not node.session.broker.is_clean:
            self._unclean[broker_id] = epoch
        known = self.cluster.truth.brokers.get(broker_id)
        if known is not None and known.epoch != node.data:
            self._suspect(self.cluster.hosts[broker_id])

    def _suspect(self, host: Host) -> None:
        """The controller does not trust a broker. It cannot distinguish it from one that has lost data."""
        host.suspected = set(host.disk.logs)
        for index in host.suspected:
            self._excuse_if_broken(index)

    def _excuse_if_broken(self, index: int) -> None:
        if not self.is_lossy and self.breaks_promise(index):
            self.is_lossy = True
            self.cluster.say("from now on committed records may be lost: too many brokers are suspected")

    def breaks_promise(self, index: int, *, suspected: Host | None = None, loses: bool = False) -> bool:
        """Whether a partition may lose committed records, if this broker stopped uncleanly as well.

        As long as a machine has lost data, fewer brokers than the promised minimum may stop uncleanly: the controller
        cannot know which of them have lost data.
        """
        hosts = self.cluster.hosts.values()
        if not loses and not any(index in host.lost for host in hosts):
            return False
        return sum(index in host.suspected or host is suspected for host in hosts) >= self.promised[index]

    def _check_state(self, index: int, state: PartitionState) -> None:
        min_isr = state.min_isr(self._min_isr())
        if len(state.isr) >= min_isr and state.elr:
            raise Violation(ELR_EMPTY, f"{index} has eligible replicas beside an ISR that commits: {_short(state)}")
        brokers = self.cluster.truth.brokers
        if any(brokers[broker_id].is_fenced for broker_id in state.isr):
            raise Violation(FENCED_OUT, f"{index} has a fenced broker in its ISR: {_short(state)}")
        least = min(min_isr, len(state.replicas) - len(state.removing))
        is_full = len(state.isr) == len(state.replicas)
        self.promised[index] = least if is_full else min(least, self.promised[index])
        for host in self.cluster.hosts.values():
            if index in host.suspected:
                known = self.cluster.truth.brokers.get(host.broker_id)
                is_back = (
                    host.is_up and host.broker is not None and known is not None and known.epoch == host.broker.epoch
                )
                if host.broker_id not in state.replicas or (is_back and host.broker_id in state.isr):
                    host.suspected.discard(index)
                    host.lost.discard(index)
        self._excuse_if_broken(index)

    def _min_isr(self) -> int:
        truth = self.cluster.truth
        return truth.settings(truth.topics[self.cluster.topic]).min_isr

    def replayed(self, broker: Broker, batch: Batch) -> None:
        """A broker has replayed a batch."""
        log = self.cluster.zookeeper.log
        if not (broker.position == batch.position < len(log) and log[batch.position] is batch):
            raise Violation(
                METADATA_LOG_MATCHING, f"broker {broker.broker_id} has replayed {batch} at {broker.position}"
            )

    # ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Check the partitions that have changed."""
        changed, self.changed = self.changed, set()
        topic = self.cluster.truth.topics.get(self.cluster.topic)
        if topic is None or self.is_lossy:
            return
        for index in changed:
            self._check_partition(index, topic.states[index])

    def _check_partition(self, index: int, state: PartitionState) -> None:
        committed = self.committed[index]
        end, most = len(committed), 0
        running: dict[int, ReplicaLog | None] = {}
        for host in self.cluster.hosts.values():
            log = host.disk.logs.get(index)
            if log is not None:
                agreed = _agree(log, committed)
                most = max(most, agreed)
            broker = host.broker
            if broker is None or not broker.is_alive:
                continue
            replica = broker.replicas.get(index)
            if replica is not None:
                self._check_watermark(replica, end)
            known = self.cluster.truth.brokers.get(host.broker_id)
            if known is not None and known.epoch == broker.epoch:
                running[host.broker_id] = log
        if most < end:
            raise Violation(NOT_LOST, f"no machine has {committed[most]} at {index}@{most} any more")
        self._check_candidates(index, state, running, end)
        self._check_quorum(index, state)

    def _check_watermark(self, replica: Replica, end: int) -> None:
        watermark, log = replica.high_watermark, replica.log
        if watermark > end or log.agreed < min(watermark, log.log_end_offset):
            raise Violation(
                LOG_MATCHING,
                f"broker {replica.broker.broker_id} has the high watermark {watermark} of {replica.index}, but agrees "
                f"up to {log.agreed} of {end} committed records",
            )

    def _check_candidates(
        self, index: int, state: PartitionState, running: dict[int, ReplicaLog | None], end: int
    ) -> None:
        for broker_id in self._candidates(state):
            if broker_id not in running:
                continue
            log = running[broker_id]
            agreed = 0 if log is None else log.agreed
            if agreed < end:
                name = LEADER_COMPLETENESS if broker_id == state.leader else CANDIDATE_COMPLETENESS
                raise Violation(
                    name, f"broker {broker_id} has {agreed} of {end} committed records of {index}; {_short(state)}"
                )

    def _candidates(self, state: PartitionState) -> tuple[int, ...]:
        """Return who may be elected."""
        return state.isr + state.elr

    def _check_quorum(self, index: int, state: PartitionState) -> None:
        if state.leader == NO_LEADER:
            return
        broker = self.cluster.hosts[state.leader].broker
        replica = None if broker is None or not broker.is_alive else broker.replicas.get(index)
        leader = None if replica is None else replica.leader
        if leader is None or leader.leader_epoch != state.leader_epoch or leader.is_below_min_isr:
            return
        if not leader.maximal_isr.issuperset(self._candidates(state)):
            raise Violation(
                QUORUM_SUPERSET,
                f"broker {state.leader} counts {sorted(leader.maximal_isr)} for {index}, but the controller may elect "
                f"{self._candidates(state)}",
            )

    def _check_unclean(self, index: int, state: PartitionState) -> None:
        for broker_id, epoch in self._unclean.items():
            if broker_id not in self._candidates(state) or (broker_id, epoch, index) in self._caught_up:
                continue
            if state.isr == (broker_id,) and not state.elr:
                self._caught_up.add((broker_id, epoch, index))  # Nobody else is left: it is the last leader.
            else:
                raise Violation(
                    UNCLEAN_EXCLUSION,
                    f"broker {broker_id} stopped uncleanly and has not caught up with {index}: {_short(state)}",
                )

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def unsettled(self) -> str | None:
        """Return what has not converged, or None."""
        cluster = self.cluster
        for host in cluster.hosts.values():
            broker, known = host.broker, cluster.truth.brokers.get(host.broker_id)
            if broker is None or not broker.is_alive or broker.is_stopping:
                return f"broker {host.broker_id} does not run"
            if known is None or known.epoch != broker.epoch or not known.is_active:
                return f"broker {host.broker_id} is not active: {known}"
            if broker.position != len(cluster.zookeeper.log):
                return f"broker {host.broker_id} is at {broker.position} of {len(cluster.zookeeper.log)} batches"
        topic = cluster.truth.topics.get(cluster.topic)
        if topic is None:
            return "the topic does not exist"
        return next(filter(None, (self._unsettled(index, state) for index, state in enumerate(topic.states))), None)

    def _unsettled(self, index: int, state: PartitionState) -> str | None:
        if state.leader == NO_LEADER or set(state.isr) != set(state.replicas) or state.is_reassigning:
            return f"{index} is {_short(state)}"
        first: ReplicaLog | None = None
        for broker_id in state.replicas:
            broker = self.cluster.hosts[broker_id].broker
            replica = None if broker is None else broker.replicas.get(index)
            if replica is None:
                return f"broker {broker_id} has no replica of {index}"
            log = replica.log
            if replica.high_watermark != log.log_end_offset:
                return f"broker {broker_id} has {replica.high_watermark} of {log.log_end_offset} of {index} committed"
            first = first or log
            start = max(first.log_start_offset, log.log_start_offset)
            if log.entries[start:] != first.entries[start:]:
                return f"broker {broker_id} has another log of {index} than broker {state.replicas[0]}"
        return None

    def check_images(self) -> None:
        """Compare what brokers have in the end with what the log says."""
        truth = self.cluster.truth
        for broker in self.cluster.alive():
            image = broker.image
            same = image.brokers == truth.brokers and image.topics == truth.topics
            if broker.position == len(self.cluster.zookeeper.log) and not same:
                raise Violation(METADATA_LOG_MATCHING, f"broker {broker.broker_id} has another state than the log")


def _agree(log: ReplicaLog, committed: list[Entry | None]) -> int:
    """Move the mark up to which a log agrees with the committed records, and return it."""
    offset, end = max(log.agreed, log.log_start_offset), min(len(log.entries), len(committed))
    entries = log.entries
    while offset < end and entries[offset] == committed[offset]:
        offset += 1
    log.agreed = offset
    return offset


def _short(state: PartitionState) -> str:
    moving = f" adding {state.adding} removing {state.removing}" if state.is_reassigning else ""
    return (
        f"leader {state.leader} epoch {state.leader_epoch}.{state.partition_epoch} of {state.replicas} "
        f"isr {state.isr} elr {state.elr} last {state.last_known_elr}{moving}"
    )
