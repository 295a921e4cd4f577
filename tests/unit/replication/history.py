"""A partition with three replicas, a small model of the controller, and messages that arrive late or never.

The leader and the followers are the real machines. A history is a list of (operation, number, number); the numbers
choose among what is possible. After each operation `check` compares all replicas with what was ever committed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from ottla import errors
from ottla.metadata.values import NO_LEADER, BrokerState, PartitionState
from ottla.replication.follower import Follower
from ottla.replication.leader import Leader
from ottla.replication.values import Proposal, ReplicaFetch
from unit.replication.cluster_material import LAG, Entry, MemoryLog, Response, answer_fetch, perform

REPLICAS = (1, 2, 3)
MIN_ISR = 2
Operation: TypeAlias = tuple[str, int, int]


class Controller:
    """The model of the controller: one state after the other, with the rules of KIP-966."""

    def __init__(self) -> None:
        self.brokers = {broker_id: BrokerState(broker_id, 100 + broker_id, ()) for broker_id in REPLICAS}
        self.state = PartitionState.new(REPLICAS)
        self.images: list[tuple[PartitionState, dict[int, BrokerState]]] = []
        self.next_epoch = 200
        self._publish()

    def _publish(self) -> None:
        self.images.append((self.state, dict(self.brokers)))

    def _change(self, isr: tuple[int, ...], *, elr: set[int], by_controller: bool) -> None:
        old = self.state
        candidates = (elr | set(old.isr)) - set(isr)
        if len(isr) >= MIN_ISR:
            candidates = set()
        leader = old.leader
        if leader not in isr or not self.brokers[leader].is_active:
            active = [b for b in REPLICAS if self.brokers[b].is_active]
            leader = next((b for b in active if b in isr), next((b for b in active if b in candidates), NO_LEADER))
        if leader != NO_LEADER and leader not in isr:
            isr, candidates = (*isr, leader), candidates - {leader}
        is_new = leader != old.leader or (by_controller and set(old.isr) - set(isr))
        self.state = replace(
            old,
            isr=isr,
            leader=leader,
            leader_epoch=old.leader_epoch + bool(is_new),
            partition_epoch=old.partition_epoch + 1,
            elr=tuple(sorted(candidates)),
        )

    def fence(self, broker_id: int) -> None:
        """A broker is dead or suspected to be."""
        self.brokers[broker_id] = replace(self.brokers[broker_id], is_fenced=True)
        if broker_id in self.state.isr:
            isr = tuple(b for b in self.state.isr if b != broker_id)
            self._change(isr, elr=set(self.state.elr), by_controller=True)
        self._publish()

    def register(self, broker_id: int, *, clean: bool) -> int:
        """A broker has started. It is in no ISR, since it was fenced; after an unclean stop it is not eligible."""
        if not self.brokers[broker_id].is_fenced:
            self.fence(broker_id)
        self.next_epoch += 1
        self.brokers[broker_id] = BrokerState(broker_id, self.next_epoch, ())
        elr = set(self.state.elr) - (set() if clean else {broker_id})
        if elr != set(self.state.elr) or self.state.leader == NO_LEADER:
            self._change(self.state.isr, elr=elr, by_controller=True)
        self._publish()
        return self.next_epoch

    def alter(self, sender: int, proposal: Proposal) -> PartitionState | errors.KafkaError:
        """AlterPartition."""
        state = self.state
        if state.leader != sender or state.leader_epoch != proposal.leader_epoch:
            return errors.FencedLeaderEpoch()
        if state.partition_epoch != proposal.partition_epoch:
            return errors.InvalidUpdateVersion()
        for member in proposal.isr:
            broker = self.brokers[member.broker_id]
            known = member.broker_epoch in (broker.epoch, -1)
            if member.broker_id not in state.isr and not (broker.is_active and known and member.broker_epoch >= 0):
                return errors.IneligibleReplica()
        self._change(tuple(member.broker_id for member in proposal.isr), elr=set(state.elr), by_controller=False)
        self._publish()
        return self.state


class Broker:
    """One replica: its log survives; what it knows does not."""

    def __init__(self, broker_id: int, history: History) -> None:
        self.id = broker_id
        self.epoch = 100 + broker_id
        self.log = MemoryLog()
        self.checkpoint = 0
        self.is_alive = True
        self.role: Leader | Follower | None = None
        self.image = -1
        self.brokers: dict[int, BrokerState] = {}
        self._history = history

    @property
    def high_watermark(self) -> int:
        return min(self.checkpoint, self.log.log_end_offset) if self.role is None else self.role.high_watermark

    def read_image(self, position: int) -> None:
        """Catch up with the controller to `position`; states in between are not seen."""
        state, brokers = self._history.controller.images[position]
        self.image = position
        self.brokers.clear()
        self.brokers.update(brokers)
        now = self._history.now
        if isinstance(self.role, Leader) and state.leader_epoch == self.role.leader_epoch:
            self.role.state_changed(state, now=now)
        elif self.role is None or state.leader_epoch > self.role.leader_epoch:
            high_watermark = self.high_watermark
            if state.leader == self.id:
                self.log.begin_epoch(state.leader_epoch)
                self.role = Leader(
                    me=self.id,
                    state=state,
                    log=self.log,
                    brokers=self.brokers,
                    min_isr=MIN_ISR,
                    max_lag_ms=LAG,
                    high_watermark=high_watermark,
                    now=now,
                )
            else:
                self.role = Follower(state=state, log=self.log, high_watermark=high_watermark)

    def stop(self, *, lost: int) -> None:
        self.checkpoint = min(self.checkpoint, self.high_watermark)
        self.is_alive, self.role = False, None
        if lost:
            self.log.truncate_to(max(self.log.log_start_offset, self.log.log_end_offset - lost))


@dataclass
class FetchMessage:
    follower: Follower
    fetch: ReplicaFetch


@dataclass
class FetchAnswer:
    follower: Follower
    fetch_offset: int
    response: Response


@dataclass
class Proposed:
    leader: Leader
    proposal: Proposal
    is_given_up: bool = False


@dataclass
class Answered:
    leader: Leader
    proposal: Proposal
    answer: PartitionState | errors.KafkaError


class History:
    """Runs operations and checks the invariants after each."""

    def __init__(self) -> None:
        self.now = 0
        self.controller = Controller()
        self.brokers = {broker_id: Broker(broker_id, self) for broker_id in REPLICAS}
        self.wire: list[FetchMessage | FetchAnswer | Proposed | Answered] = []
        self.committed: list[Entry] = []
        self.unclean: set[int] = set()
        """Brokers that lost records and are not back in the ISR."""
        self.values = 0
        self._seen: dict[Leader, int] = {}
        for broker in self.brokers.values():
            broker.read_image(0)

    def run(self, operations: list[Operation]) -> None:
        for name, first, second in operations:
            getattr(self, f"do_{name}")(first, second)
            self.check()

    def settle(self) -> None:
        """Let everything arrive until nothing changes: all brokers run and all logs are the same."""
        for broker in self.brokers.values():
            if not broker.is_alive or self.controller.brokers[broker.id].is_fenced:
                self._start(broker, clean=True)
        for _ in range(60):
            self.now += 200
            for number in range(3):
                self.do_image(number, 10**6)
                self.do_fetch(number, 0)
                self.do_propose(number, 0)
            while self.wire:
                self.do_deliver(0, 0)
                self.check()

    # ── operations ──────────────────────────────────────────────────────────────────────────────────────

    def _broker(self, number: int) -> Broker:
        return self.brokers[REPLICAS[number % 3]]

    def _of(self, role: Leader | Follower) -> Broker | None:
        return next((b for b in self.brokers.values() if b.is_alive and b.role is role), None)

    def do_produce(self, number: int, count: int) -> None:
        """Also a leader that was deposed and does not know it takes records."""
        broker = self._broker(number)
        if isinstance(broker.role, Leader):
            for _ in range(count % 3 + 1):
                self.values += 1
                broker.log.append(Entry(broker.role.leader_epoch, self.values))
            broker.role.appended(now=self.now)

    def do_fetch(self, number: int, _: int) -> None:
        broker = self._broker(number)
        role = broker.role
        if isinstance(role, Follower) and role.leader != NO_LEADER:
            fetch = ReplicaFetch(
                broker.id,
                broker.epoch,
                role.leader_epoch,
                role.fetch_offset,
                role.last_fetched_epoch,
                broker.log.log_start_offset,
            )
            self.wire.append(FetchMessage(role, fetch))

    def do_round(self, number: int, rounds: int) -> None:
        """Fetches that nothing delays."""
        for _ in range(rounds % 3 + 1):
            self.do_fetch(number, 0)
            for kind in (FetchMessage, FetchAnswer):
                if self.wire and isinstance(self.wire[-1], kind):
                    self._receive(self.wire.pop())

    def do_propose(self, number: int, _: int) -> None:
        role = self._broker(number).role
        if isinstance(role, Leader) and (proposal := role.proposal(now=self.now)) is not None:
            self.wire.append(Proposed(role, proposal))

    def do_deliver(self, number: int, _: int) -> None:
        """Any message may be the next."""
        if self.wire:
            self._receive(self.wire.pop(number % len(self.wire)))

    def do_lose(self, number: int, _: int) -> None:
        if self.wire:
            message = self.wire.pop(number % len(self.wire))
            if isinstance(message, Answered) or (isinstance(message, Proposed) and not message.is_given_up):
                message.leader.proposal_failed(message.proposal, errors.RequestTimedOut(), now=self.now)

    def do_time_out(self, number: int, _: int) -> None:
        """The leader gives up waiting, but the request is still on its way."""
        waiting = [message for message in self.wire if isinstance(message, Proposed) and not message.is_given_up]
        if waiting:
            message = waiting[number % len(waiting)]
            message.is_given_up = True
            message.leader.proposal_failed(message.proposal, errors.RequestTimedOut(), now=self.now)

    def do_image(self, number: int, steps: int) -> None:
        broker, newest = self._broker(number), len(self.controller.images) - 1
        if broker.is_alive and broker.image < newest:
            broker.read_image(min(newest, broker.image + 1 + steps % (newest + 1)))

    def do_checkpoint(self, number: int, _: int) -> None:
        broker = self._broker(number)
        broker.checkpoint = broker.high_watermark

    def do_wait(self, number: int, _: int) -> None:
        self.now += (10, 60, LAG // 2, LAG + 1)[number % 4]

    def do_suspect(self, number: int, _: int) -> None:
        """The controller fences a broker that lives. The broker registers again when it sees that."""
        broker = self._broker(number)
        self.controller.fence(broker.id)

    def do_stop(self, number: int, lost: int) -> None:
        """A crash; up to MIN_ISR - 1 brokers lose the end of their logs."""
        broker = self._broker(number)
        if broker.is_alive:
            lossy = lost % 4 if not self.unclean - {broker.id} else 0
            if lossy:
                self.unclean.add(broker.id)
            broker.stop(lost=lossy)
            if lost % 2:
                self.controller.fence(broker.id)

    def do_start(self, number: int, clean: int) -> None:
        broker = self._broker(number)
        if not broker.is_alive or self.controller.brokers[broker.id].is_fenced:
            self._start(broker, clean=bool(clean % 4))

    def _start(self, broker: Broker, *, clean: bool) -> None:
        if broker.is_alive:
            broker.stop(lost=0)
        if broker.id in self.unclean:
            clean = False
        broker.epoch = self.controller.register(broker.id, clean=clean)
        broker.is_alive = True
        broker.read_image(len(self.controller.images) - 1)

    def _receive(self, message: FetchMessage | FetchAnswer | Proposed | Answered) -> None:
        match message:
            case FetchMessage(follower, fetch):
                target = self.brokers[follower.leader]
                response = Response(errors.NotLeaderOrFollower.code)
                if target.is_alive and isinstance(target.role, Leader):
                    response = answer_fetch(target.role, target.log, fetch, now=self.now, count=2)
                self.wire.append(FetchAnswer(follower, fetch.fetch_offset, response))
            case FetchAnswer(follower, offset, response):
                if (broker := self._of(follower)) is not None:
                    perform(follower, broker.log, follower.response(offset, response), response.entries)
            case Proposed(leader, proposal, is_given_up):
                answer = self.controller.alter(leader.me, proposal)
                if not is_given_up:
                    self.wire.append(Answered(leader, proposal, answer))
            case Answered(leader, proposal, errors.KafkaError() as error):
                leader.proposal_failed(proposal, error, now=self.now)

    # ── invariants ──────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        state = self.controller.state
        self.unclean -= {broker_id for broker_id in state.isr if self.brokers[broker_id].is_alive}
        for broker in self.brokers.values():
            if broker.is_alive and isinstance(broker.role, Leader):
                self._check_leader(broker, broker.role, state)
        for broker in self.brokers.values():
            for offset in range(broker.log.log_start_offset, broker.high_watermark):
                assert broker.log.at(offset) == self.committed[offset], f"LogMatching of {broker.id} at {offset}"
            if broker.is_alive and broker.id in {*state.isr, *state.elr}:
                assert broker.log.entries[: len(self.committed)] == self.committed, f"{broker.id} is not complete"

    def _check_leader(self, broker: Broker, leader: Leader, state: PartitionState) -> None:
        high_watermark = leader.high_watermark
        assert high_watermark >= self._seen.get(leader, 0), "the high watermark fell"
        assert high_watermark <= broker.log.log_end_offset
        self._seen[leader] = high_watermark
        for offset in range(high_watermark):
            entry = broker.log.at(offset)
            if offset == len(self.committed):
                self.committed.append(entry)
            assert self.committed[offset] == entry, f"ConsistentRead at {offset}"
        if leader.leader_epoch == state.leader_epoch and not leader.is_below_min_isr:
            assert leader.maximal_isr >= {*state.isr, *state.elr}, "ReplicationQuorumSuperset"
