"""One replica on a broker: its log, its role, and who waits for it. It does what `broker/partition.py` does."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.simulation.replication.disks import Entry, ReplicaLog
from tests.simulation.replication.messages import AlterPartition, Fetch, FetchAnswer, Produce, Read, ReadAnswer
from tests.virtual import VirtualCommit

from ottla import errors
from ottla.metadata.partitions import IsrChange
from ottla.metadata.values import NO_LEADER, PartitionState
from ottla.replication.follower import Follower
from ottla.replication.leader import Leader
from ottla.replication.values import Append, Proposal, ReplicaFetch, Restart, Step, Stop, Truncate, Wait

if TYPE_CHECKING:
    from tests.simulation.replication.broker import Broker

MAX_LAG = 1_500
FETCH_WAIT = 500
FETCH_TIMEOUT = 1_200
ALTER_TIMEOUT = 1_000
PRODUCE_TIMEOUT = 3_000
BACKOFF = 100
MOST_RECORDS = 4
Answer = Callable[[Any], None]


class Replica:
    """A partition on one broker, in one life of it."""

    def __init__(self, broker: Broker, index: int, log: ReplicaLog, high_watermark: int) -> None:
        self.broker = broker
        self.cluster = broker.cluster
        self.index = index
        self.log = log
        self.state = PartitionState((), (), NO_LEADER, -1, -1)
        self.is_leader = False
        self.leader: Leader | None = None
        """None if this is the only replica."""
        self.follower: Follower | None = None
        self._known_watermark = min(high_watermark, log.log_end_offset)
        self._role = 0
        """Changes with every role."""
        self._uncommitted: list[tuple[int, int, Answer]] = []
        """Who waits for the high watermark: the offset, an order, and whom to tell."""
        self._order = count()
        self._fetches: list[tuple[Fetch, Answer]] = []
        self.on_lead: Callable[[Replica], None] = broker.cluster.on_lead
        """Called when this replica begins to lead; `on_resign` when it ends to have a role."""
        self.on_resign: Callable[[Replica], None] = broker.cluster.on_resign
        self.coordinator: Any = None
        """What coordinates by the records of this partition, while it leads."""

    @property
    def high_watermark(self) -> int:
        if self.leader is not None:
            return self.leader.high_watermark
        if self.is_leader:
            return self.log.log_end_offset
        return self.follower.high_watermark if self.follower is not None else self._known_watermark

    # ── roles ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def update(self, state: PartitionState) -> None:
        """Take the role that the image gives to this replica."""
        if state.leader == self.broker.broker_id:
            self._lead(state)
        elif state.leader == NO_LEADER:
            self.resign()
        elif self.follower is None or state.leader_epoch != self.state.leader_epoch:
            self._follow(state)
        self.state = state

    def _lead(self, state: PartitionState) -> None:
        begins, watermark = not self.is_leader, self.high_watermark
        if begins:
            self.resign()
        if begins or state.leader_epoch != self.state.leader_epoch:
            self.leader = None  # Who waits for a commit goes on waiting.
            self._role += 1
            self._refuse_fetches()
            self.log.begin_epoch(state.leader_epoch)
        self.is_leader = True
        now = self.broker.now()
        if state.replicas == (self.broker.broker_id,):
            self.leader = None
        elif self.leader is None:
            self.leader = Leader(
                me=self.broker.broker_id,
                state=state,
                log=self.log,
                brokers=self.broker.image.brokers,
                min_isr=self.broker.min_isr(),
                max_lag_ms=MAX_LAG,
                high_watermark=watermark,
                now=now,
            )
            self.broker.after(MAX_LAG / 2, partial(self._look_after_isr, self._role))
        else:
            self.leader.state_changed(state, now=now)
        self.state = state
        self.cluster.leads(self, begins)
        self.watermark_moved()
        if begins:
            self.on_lead(self)

    def _follow(self, state: PartitionState) -> None:
        watermark = self.high_watermark
        self.resign()
        self.follower = Follower(state=state, log=self.log, high_watermark=watermark)
        self.fetch(self._role)

    def resign(self) -> None:
        """End the present role. Who waits for a commit is told that it may be lost."""
        self._known_watermark = self.high_watermark
        self._role += 1
        self.is_leader, self.leader, self.follower = False, None, None
        uncommitted, self._uncommitted = self._uncommitted, []
        for *_, answer in uncommitted:
            answer(errors.NotLeaderOrFollower())
        self._refuse_fetches()
        self.on_resign(self)

    def _refuse_fetches(self) -> None:
        fetches, self._fetches = self._fetches, []
        for _, answer in fetches:
            answer(FetchAnswer(errors.NotLeaderOrFollower.code))

    def settings_changed(self) -> None:
        """Use the configs of the image."""
        if self.leader is not None:
            self.leader.settings_changed(min_isr=self.broker.min_isr(), max_lag_ms=MAX_LAG, now=self.broker.now())
            self.watermark_moved()

    # ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────

    def produce(self, request: Produce, answer: Answer) -> None:
        try:
            offset = self.append_own(request.value, needs_all=request.needs_all) - 1
        except errors.KafkaError as error:
            answer(error)
            return
        if request.needs_all:
            self.when_committed(offset, answer)
        else:
            answer(offset)

    def append_own(self, value: object, *, needs_all: bool = True) -> int:
        """Append a record as the leader, and return the end of the log."""
        if not self.is_leader:
            raise errors.NotLeaderOrFollower
        if needs_all and self.leader is not None and self.leader.is_below_min_isr:
            raise errors.NotEnoughReplicas
        self.log.append(Entry(self.state.leader_epoch, value))
        end = self.log.log_end_offset
        if self.leader is not None:
            self.leader.appended(now=self.broker.now())
        self.watermark_moved()
        self._answer_fetches()
        return end

    def when_committed(self, offset: int, answer: Answer) -> None:
        """Answer with the offset once its record is committed, or with an error."""
        if offset < self.high_watermark:
            answer(offset)
            return
        waiter = (offset, next(self._order), answer)
        insort(self._uncommitted, waiter)
        self.broker.after(PRODUCE_TIMEOUT, partial(self._give_up, waiter))

    def committed(self, position: int) -> VirtualCommit | None:
        """Return None if everything below a position is committed, else what to wait for. This never gives up."""
        if position <= self.high_watermark:
            return None
        commit = VirtualCommit()

        def answer(result: Any) -> None:
            commit.finish(result if isinstance(result, errors.NotLeaderOrFollower) else None)

        insort(self._uncommitted, (position - 1, next(self._order), answer))
        return commit

    def _give_up(self, waiter: tuple[int, int, Answer]) -> None:
        if waiter in self._uncommitted:
            self._uncommitted.remove(waiter)
            waiter[2](errors.RequestTimedOut())

    def read(self, request: Read, answer: Answer) -> None:
        """Give committed records to a consumer, as a leader or as a follower."""
        start, end = max(request.offset, self.log.log_start_offset), self.high_watermark
        answer(ReadAnswer(start, self.log.read(start, end) if start < end else []))

    def watermark_moved(self) -> None:
        """Answer what waits for the high watermark, and tell the invariants."""
        self.cluster.invariants.replica_changed(self)
        watermark = self.high_watermark
        while self._uncommitted and self._uncommitted[0][0] < watermark:
            offset, _, answer = self._uncommitted.pop(0)
            below = self.leader is not None and self.leader.is_below_min_isr
            answer(errors.NotEnoughReplicasAfterAppend() if below else offset)
        if self._fetches:
            self._answer_fetches()

    def delete_records(self, offset: int) -> None:
        """Move the start of the leader's log, as retention does."""
        if self.is_leader and offset <= self.high_watermark:
            self.log.delete_before(offset)

    # ── the leader's side of replication ──────────────────────────────────────────────────────────────────────────

    def fetched(self, request: Fetch, answer: Answer) -> None:
        """A follower fetches."""
        if self.leader is None:
            answer(FetchAnswer(errors.NotLeaderOrFollower.code))
            return
        try:
            fetched = self.leader.fetched(request.fetch, now=self.broker.now())
        except errors.KafkaError as error:
            answer(FetchAnswer(error.code, log_start_offset=self.log.log_start_offset))
            return
        if fetched.diverging is not None:
            answer(FetchAnswer(0, self.high_watermark, self.log.log_start_offset, fetched.diverging))
            return
        self.cluster.invariants.fetched(self, request.fetch)
        if fetched.has_raised_high_watermark:
            self.watermark_moved()
        self.propose()
        if self._has_news(request):
            answer(self._news(request))
        else:
            waiter = (request, answer)
            self._fetches.append(waiter)
            self.broker.after(FETCH_WAIT, partial(self._end_wait, waiter))

    def _has_news(self, request: Fetch) -> bool:
        return request.fetch.fetch_offset < self.log.log_end_offset or request.high_watermark < self.high_watermark

    def _news(self, request: Fetch) -> FetchAnswer:
        offset = request.fetch.fetch_offset
        if offset < self.log.log_start_offset:
            return FetchAnswer(errors.OffsetOutOfRange.code, log_start_offset=self.log.log_start_offset)
        records = self.log.read(offset, offset + MOST_RECORDS)
        return FetchAnswer(0, self.high_watermark, self.log.log_start_offset, None, records)

    def _answer_fetches(self) -> None:
        for waiter in [each for each in self._fetches if self._has_news(each[0])]:
            self._end_wait(waiter)

    def _end_wait(self, waiter: tuple[Fetch, Answer]) -> None:
        if waiter in self._fetches:
            self._fetches.remove(waiter)
            waiter[1](self._news(waiter[0]))

    def _look_after_isr(self, role: int) -> None:
        if role == self._role:
            self.propose()
            self.broker.after(MAX_LAG / 2, partial(self._look_after_isr, role))

    def propose(self) -> None:
        """Send AlterPartition if the ISR should change."""
        leader = self.leader
        if leader is None or (proposal := leader.proposal(now=self.broker.now())) is None:
            return
        isr = tuple((member.broker_id, member.broker_epoch) for member in proposal.isr)
        change = IsrChange(self.cluster.topic_id, self.index, proposal.leader_epoch, proposal.partition_epoch, isr)
        self.cluster.say(f"broker {self.broker.broker_id} proposes the ISR {isr} for {self.index}")
        self.broker.ask_controller(
            AlterPartition(self.broker.broker_id, self.broker.epoch, change),
            ALTER_TIMEOUT,
            partial(self._proposal_answered, leader, proposal),
        )

    def _proposal_answered(self, leader: Leader, proposal: Proposal, answer: Any) -> None:
        """The controller has answered. An accepted change counts when the image has it, with the configs before it."""
        if self.leader is leader and not isinstance(answer, PartitionState):
            error = answer if isinstance(answer, errors.KafkaError) else errors.RequestTimedOut()
            self.cluster.say(f"the proposal of broker {self.broker.broker_id} failed: {error!r}")
            leader.proposal_failed(proposal, error, now=self.broker.now())
            self.watermark_moved()

    # ── the follower's side ───────────────────────────────────────────────────────────────────────────────────────

    def fetch(self, role: int) -> None:
        """Fetch from the leader."""
        follower, broker = self.follower, self.broker
        if role != self._role or follower is None:
            return
        request = ReplicaFetch(
            replica=broker.broker_id,
            broker_epoch=broker.epoch,
            leader_epoch=follower.leader_epoch,
            fetch_offset=follower.fetch_offset,
            last_fetched_epoch=follower.last_fetched_epoch,
            log_start_offset=self.log.log_start_offset,
        )
        self.cluster.call(
            broker,
            follower.leader,
            Fetch(self.index, request, follower.high_watermark),
            FETCH_TIMEOUT,
            partial(self._fetch_answered, role, request.fetch_offset),
        )

    def _fetch_answered(self, role: int, fetch_offset: int, answer: Any) -> None:
        follower = self.follower
        if role != self._role or follower is None:
            return
        if not isinstance(answer, FetchAnswer):
            self.broker.after(BACKOFF, partial(self.fetch, role))
            return
        response = follower.response(fetch_offset, answer)  # type: ignore[arg-type]
        self._perform(follower, response, role)

    def _perform(self, follower: Follower, step: Step, role: int) -> None:
        match step:
            case Append(records):
                for entry in records:
                    self.log.append(entry)  # type: ignore[arg-type]
                follower.appended(step)
                self.log.delete_before(follower.start_offset)
            case Truncate(offset):
                self.log.truncate_to(offset)
            case Restart(offset):
                self.log.restart_at(offset)
            case Wait():
                self.broker.after(BACKOFF, partial(self.fetch, role))
                return
            case Stop():
                return
        self.cluster.invariants.replica_changed(self)
        self.fetch(role)
