"""Every step of a producer's transactions, in virtual time: states, requests, and the three kinds of errors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from producer_context import BACKOFF, DELIVERY_TIMEOUT, LINGER, P0, P1, Context, numbers

from ottla import errors
from ottla.errors import KafkaError
from ottla.producing.errors import TransactionAborted
from ottla.producing.sender import Plan, Request
from ottla.producing.transaction_states import FOLLOWS, State, TransactionMisuse
from ottla.producing.transaction_values import (
    AddOffsets,
    AddPartitions,
    Answer,
    Ask,
    CommitOffsets,
    EndTransaction,
    FindCoordinator,
    GroupMember,
    InitProducerId,
    Offset,
    What,
)
from ottla.producing.transactions import FIRST_RETRY_MS, Operation, Transactions

MEMBER = GroupMember("g", 3, "m")
OFFSETS = {P0: Offset(7)}


class Scene(Context):
    """A transactional producer, which talks to one coordinator of each kind."""

    def __init__(self, version: int = 2) -> None:
        super().__init__()
        self.version = version
        self.machine = Transactions("x", backoff=lambda attempt: BACKOFF * attempt)
        self.sender.transactions = self.machine
        self.sender.idempotence = self.machine.numbers

    @property
    def state(self) -> State:
        return self.machine.state

    def ask(self) -> Ask:
        """The present request."""
        ask = self.poll().ask
        assert ask is not None
        return ask

    def answer(self, ask: Ask, error: KafkaError | None = None, **told: object) -> Ask:
        self.machine.answered(ask, Answer(error, **told), now=self.now)  # type: ignore[arg-type]
        return ask

    def goes(self, error: KafkaError | None = None, **told: object) -> What:
        """Send the next request and give this result."""
        return self.answer(self.ask(), error, **told).what

    def init(self) -> Operation:
        operation = self.machine.init()
        assert self.goes(node="txn") == FindCoordinator(None)
        assert self.goes(producer_id=9, producer_epoch=0, version=self.version) == InitProducerId()
        return operation

    def ready(self) -> Scene:
        assert self.init().done
        assert self.state is State.READY
        return self

    def begun(self) -> Scene:
        self.ready()
        self.machine.begin()
        return self

    def sent(self) -> Request:
        """A batch is in flight, in a transaction."""
        self.batch()
        if self.version == 1:
            assert self.goes() == AddPartitions((P0,))
        return self.request()

    def ended(self, epoch: int = 1) -> What:
        told = {"producer_id": 9, "producer_epoch": epoch} if self.version == 2 else {}
        return self.goes(**told)


def begun(version: int = 2) -> Scene:
    return Scene(version).begun()


# A normal transaction.


def test_the_coordinator_is_found_and_gives_id_and_epoch() -> None:
    scene = Scene()
    assert scene.state is State.UNINITIALIZED
    operation = scene.init()
    assert (operation.done, operation.error, scene.state) == (True, None, State.READY)
    assert (scene.machine.numbers.producer_id, scene.machine.version) == (9, 2)


@pytest.mark.parametrize("commit", [True, False])
def test_the_second_version_sends_at_once_and_takes_the_epoch_of_the_answer(commit: bool) -> None:
    scene = begun()
    request = scene.sent()
    assert request.batches[0].producer_epoch == 0
    scene.acknowledge(request)
    operation = scene.machine.commit() if commit else scene.machine.abort()
    assert scene.state is (State.COMMITTING if commit else State.ABORTING)
    assert scene.ended(epoch=1) == EndTransaction(commit)
    assert operation.done
    assert operation.error is None
    scene.machine.begin()
    scene.batch()
    assert numbers(scene.request().batches[0]) == (9, 1, 0)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_is_left_open_and_another_id_taken_over(version: int) -> None:
    scene = begun(version)
    scene.acknowledge(scene.sent())
    assert scene.machine.leave_open() == (9, 0, version)
    assert scene.state is State.UNINITIALIZED
    assert scene.poll().ask is None  # nobody ends it here
    operation = scene.machine.take_over("y")
    assert scene.goes(node="other") == FindCoordinator(None)
    assert scene.goes(producer_id=10, producer_epoch=4, version=version) == InitProducerId()
    assert operation.done
    scene.machine.begin()
    assert numbers(scene.sent().batches[0]) == (10, 4, 0)
    with pytest.raises(TransactionMisuse):
        scene.machine.take_over("z")


def test_taking_over_the_same_id_again_asks_the_same_coordinator() -> None:
    scene = Scene().ready()
    scene.machine.take_over("x")
    assert scene.goes(producer_id=9, producer_epoch=1, version=2) == InitProducerId()
    assert scene.state is State.READY


def test_the_first_version_adds_partitions_first_and_keeps_epoch_and_numbers() -> None:
    scene = begun(version=1)
    scene.batch(P0)
    scene.batch(P1)
    plan = scene.poll()
    assert plan.requests == []
    assert plan.ask is not None
    assert plan.ask.what == AddPartitions((P0, P1))
    assert plan.ask.version == 1
    scene.answer(plan.ask)
    scene.acknowledge(scene.request())
    scene.machine.commit()
    assert scene.ended() == EndTransaction(True)
    scene.machine.begin()
    scene.batch(P0)
    assert scene.goes() == AddPartitions((P0,)), "each transaction adds its partitions again"
    assert numbers(scene.request().batches[0]) == (9, 0, 1)


@pytest.mark.parametrize("version", [1, 2])
def test_an_empty_transaction_sends_no_request(version: int) -> None:
    scene = begun(version)
    operation = scene.machine.commit()
    assert scene.poll().ask is None
    assert operation.done
    scene.machine.begin()
    operation = scene.machine.abort()
    assert scene.poll().ask is None
    assert operation.done
    assert scene.state is State.READY


def test_a_commit_waits_for_the_batches_and_an_abort_drops_what_was_not_sent() -> None:
    scene = begun()
    request = scene.sent()
    scene.batch()  # Waits, since the first one of an epoch goes alone.
    scene.machine.commit()
    assert scene.poll().ask is None
    scene.acknowledge(request)
    second = scene.request()
    assert scene.poll().ask is None
    scene.acknowledge(second)
    assert scene.ended() == EndTransaction(True)
    scene.machine.begin()
    request, unsent = scene.sent(), scene.batch()
    scene.machine.abort()
    plan = scene.poll()
    assert [each.batch for each in plan.finished] == [unsent]
    assert isinstance(plan.finished[0].error, TransactionAborted)
    assert plan.ask is None
    scene.acknowledge(request)
    assert scene.ended(2) == EndTransaction(False)


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_go_to_the_coordinator_of_the_group(version: int) -> None:
    scene = begun(version)
    operation = scene.machine.send_offsets(OFFSETS, MEMBER)
    if version == 1:
        assert scene.goes() == AddOffsets("g")
    assert scene.goes(node="group") == FindCoordinator("g")
    ask = scene.answer(scene.ask())
    assert (ask.what, ask.broker) == (CommitOffsets(OFFSETS, MEMBER), "group")
    assert operation.done
    scene.machine.commit()
    assert scene.ask().broker == "txn"


def test_offsets_that_must_wait_go_again_alone() -> None:
    scene = begun()
    operation = scene.machine.send_offsets({P0: Offset(1), P1: Offset(2)}, MEMBER)
    scene.goes(node="group")
    scene.goes(errors={P1: errors.CoordinatorLoadInProgress()})
    assert not operation.done
    scene.sleep(BACKOFF)
    assert scene.goes() == CommitOffsets({P1: Offset(2)}, MEMBER)
    assert operation.done


def test_a_call_that_was_given_up_is_taken_up_again() -> None:
    scene = Scene()
    assert scene.machine.init() is scene.machine.init()
    scene = begun()
    first = scene.machine.send_offsets(OFFSETS, MEMBER)
    assert scene.machine.send_offsets(OFFSETS, MEMBER) is first
    assert scene.machine.commit() is scene.machine.commit()
    with pytest.raises(TransactionMisuse, match="being committed"):
        scene.machine.abort()


def test_the_version_may_change_between_transactions() -> None:
    scene = begun(version=1)
    scene.acknowledge(scene.sent())
    scene.machine.commit()
    scene.goes(version=2)
    assert scene.machine.version == 1
    scene.machine.begin()
    assert scene.machine.version == 2


# Which calls are allowed.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda machine: machine.begin(), "init_transactions"),
        (lambda machine: machine.commit(), "init_transactions"),
        (lambda machine: machine.check_send(), "send cannot be called yet: call init_transactions"),
    ],
)
def test_nothing_goes_before_init(call: Callable[[Transactions], object], message: str) -> None:
    with pytest.raises(TransactionMisuse, match=message):
        call(Scene().machine)


def test_calls_outside_of_their_state_say_what_to_call() -> None:
    scene = Scene().ready()
    calls = (
        scene.machine.check_send,
        scene.machine.commit,
        scene.machine.abort,
        lambda: scene.machine.send_offsets(OFFSETS, MEMBER),
    )
    for call in calls:
        with pytest.raises(TransactionMisuse, match="outside a transaction: call begin_transaction"):
            call()
    with pytest.raises(TransactionMisuse, match=r"called before\. A producer calls it once: begin a transaction"):
        scene.machine.init()
    scene.machine.begin()
    for again in (scene.machine.begin, scene.machine.init):
        with pytest.raises(TransactionMisuse, match="ends it"):
            again()
    scene.machine.send_offsets(OFFSETS, MEMBER)
    with pytest.raises(TransactionMisuse, match="another group"):
        scene.machine.send_offsets(OFFSETS, GroupMember("other"))


def test_the_table_ends_in_the_fatal_state_which_everything_reaches() -> None:
    assert set(FOLLOWS) == set(State)
    assert not FOLLOWS[State.FATAL_ERROR]
    assert all(State.FATAL_ERROR in after for state, after in FOLLOWS.items() if state is not State.FATAL_ERROR)
    with pytest.raises(RuntimeError, match="not followed"):
        Scene().machine._enter(State.COMMITTING)


# Retry.


@pytest.mark.parametrize(
    ("error", "wait"),
    [(errors.ConcurrentTransactions(), FIRST_RETRY_MS), (errors.CoordinatorLoadInProgress(), BACKOFF)],
)
def test_passing_errors_are_asked_again_after_a_while(error: KafkaError, wait: int) -> None:
    scene = Scene()
    operation = scene.machine.init()
    scene.goes(node="txn")
    scene.goes(error)
    plan = scene.poll()
    assert (plan.ask, plan.wait) == (None, wait)
    scene.sleep(wait)
    scene.goes(errors.ConcurrentTransactions())
    assert scene.poll().wait == 2 * BACKOFF
    scene.sleep(2 * BACKOFF)
    assert scene.goes(producer_id=9, producer_epoch=0, version=2) == InitProducerId()
    assert operation.done


@pytest.mark.parametrize(
    "error", [errors.NotCoordinator(), errors.CoordinatorNotAvailable(), errors.NetworkException()]
)
def test_coordinators_that_moved_are_looked_for(error: KafkaError) -> None:
    scene = begun()
    scene.acknowledge(scene.sent())
    scene.machine.send_offsets(OFFSETS, MEMBER)
    scene.goes(node="group")
    scene.goes(errors={P0: error})
    scene.sleep(BACKOFF)
    assert scene.goes(node="another group") == FindCoordinator("g")
    ask = scene.answer(scene.ask())
    assert ask.broker == "another group"
    scene.machine.commit()
    scene.goes(error)
    scene.sleep(BACKOFF)
    assert scene.goes(errors.CoordinatorNotAvailable()) == FindCoordinator(None)
    scene.sleep(2 * BACKOFF)
    assert scene.goes(node="another") == FindCoordinator(None)
    ask = scene.ask()
    assert (ask.what, ask.broker, ask.producer_epoch) == (EndTransaction(True), "another", 0)


def test_a_partition_that_is_not_known_yet_is_added_again() -> None:
    scene = begun(version=1)
    scene.batch()
    scene.goes(errors={P0: errors.UnknownTopicOrPartition()})
    scene.sleep(BACKOFF)
    assert scene.goes() == AddPartitions((P0,))


# Abort.


def test_a_batch_that_fails_makes_the_transaction_abortable() -> None:
    scene = begun()
    request, unsent = scene.sent(), scene.batch()
    (finished,) = scene.reject(request, errors.InvalidRecord())
    assert isinstance(finished.error, errors.InvalidRecord)
    assert scene.state is State.ABORTABLE_ERROR
    assert [each.batch for each in scene.poll().finished] == [unsent]
    for call in (scene.machine.commit, scene.machine.check_send):
        with pytest.raises(errors.InvalidRecord, match=r"To abort: call abort_transaction\(\)") as caught:
            call()
        assert caught.value.remedy == "abort"
    operation = scene.machine.abort()
    assert scene.ended() == EndTransaction(False)
    assert operation.done
    scene.machine.begin()
    scene.acknowledge(scene.sent())


def test_a_commit_whose_batch_fails_says_so_and_can_be_aborted() -> None:
    scene = begun()
    scene.sent()
    operation = scene.machine.commit()
    scene.sleep(DELIVERY_TIMEOUT)
    assert scene.poll().ask is None
    assert isinstance(operation.error, errors.RequestTimedOut)
    assert operation.error.remedy == "abort"
    scene.machine.abort()
    assert scene.ended() == EndTransaction(False)


def test_the_first_version_gets_another_epoch_after_a_failed_batch() -> None:
    """Otherwise a late request could end up in the next transaction."""
    scene = begun(version=1)
    scene.reject(scene.sent(), errors.InvalidRecord())
    operation = scene.machine.abort()
    assert scene.ended() == EndTransaction(False)
    assert not operation.done
    assert scene.state is State.INITIALIZING
    assert scene.goes(producer_id=9, producer_epoch=1, version=1) == InitProducerId(9, 0)
    assert operation.done
    scene.machine.begin()
    assert numbers(scene.sent().batches[0]) == (9, 1, 0)


def test_lost_numbers_abort_instead_of_raising_the_epoch() -> None:
    scene = begun()
    scene.acknowledge(scene.sent())
    scene.reject(scene.sent(), errors.OutOfOrderSequenceNumber())
    assert scene.state is State.ABORTABLE_ERROR
    assert scene.machine.numbers.producer_epoch == 0


def test_a_forgotten_producer_begins_with_0_only_if_its_records_were_deleted() -> None:
    scene = begun(version=1)
    scene.acknowledge(scene.sent(), base_offset=5)
    scene.batch()
    request = scene.request()
    assert scene.reject(request, errors.UnknownProducerId(), log_start_offset=8) == []
    scene.sleep(BACKOFF)
    request = scene.request()
    assert numbers(request.batches[0]) == (9, 0, 0)
    scene.acknowledge(request, base_offset=9)
    scene.batch()
    scene.reject(scene.request(), errors.UnknownProducerId(), log_start_offset=8)
    assert scene.state is State.ABORTABLE_ERROR


@pytest.mark.parametrize(
    "error",
    [
        errors.TransactionAbortable(),
        errors.UnknownMemberId(),
        errors.IllegalGeneration(),
        errors.FencedInstanceId(),
        errors.GroupAuthorizationFailed(),
    ],
)
def test_offsets_that_are_rejected_abort(error: KafkaError) -> None:
    scene = begun()
    operation = scene.machine.send_offsets(OFFSETS, MEMBER)
    scene.goes(node="group")
    scene.goes(errors={P0: error})
    assert isinstance(operation.error, type(error))
    assert "To abort" in str(operation.error)
    assert scene.state is State.ABORTABLE_ERROR


def test_partitions_that_cannot_be_added_abort() -> None:
    scene = begun(version=1)
    batch = scene.batch()
    scene.goes(errors={P0: errors.TopicAuthorizationFailed()})
    (finished,) = scene.poll().finished
    assert finished.batch is batch
    assert isinstance(finished.error, errors.TopicAuthorizationFailed)
    operation = scene.machine.abort()
    assert scene.poll().ask is None, "the coordinator knows nothing"
    assert operation.done


def test_a_coordinator_that_forgot_the_producer_gives_it_another_id() -> None:
    scene = begun()
    scene.acknowledge(scene.sent())
    committing = scene.machine.commit()
    scene.goes(errors.InvalidProducerIdMapping())
    assert committing.error is not None
    assert committing.error.remedy == "abort"
    operation = scene.machine.abort()
    assert scene.goes(producer_id=10, producer_epoch=0, version=2) == InitProducerId(9, 0)
    assert operation.done
    scene.machine.begin()
    assert numbers(scene.sent().batches[0]) == (10, 0, 0)


def test_one_that_forgot_it_when_asked_to_abort_does_too() -> None:
    scene = begun()
    scene.acknowledge(scene.sent())
    operation = scene.machine.abort()
    scene.goes(errors.InvalidProducerIdMapping())
    assert scene.goes(producer_id=10, producer_epoch=0, version=2) == InitProducerId(9, 0)
    assert operation.done


def test_an_abort_gives_up_offsets_on_their_way() -> None:
    scene = begun()
    sending = scene.machine.send_offsets(OFFSETS, MEMBER)
    scene.goes(node="group")
    ask = scene.ask()
    operation = scene.machine.abort()
    assert sending.done
    assert scene.poll().ask is None, "one request at a time"
    scene.answer(ask, errors.TransactionAbortable())
    assert scene.state is State.ABORTING
    assert scene.ended() == EndTransaction(False)
    assert operation.done


# Stop.


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (errors.ProducerFenced(), errors.ProducerFenced),
        (errors.InvalidProducerEpoch(), errors.ProducerFenced),
        (errors.TransactionalIdAuthorizationFailed(), errors.TransactionalIdAuthorizationFailed),
        (errors.UnsupportedVersion(), errors.UnsupportedVersion),
        (errors.InvalidTxnState(), errors.InvalidTxnState),
        (errors.UnknownServerError(), errors.UnknownServerError),
    ],
)
@pytest.mark.parametrize("commit", [True, False])
def test_some_errors_are_the_end(error: KafkaError, raised: type[KafkaError], commit: bool) -> None:
    scene = begun()
    scene.acknowledge(scene.sent())
    operation = scene.machine.commit() if commit else scene.machine.abort()
    scene.goes(error)
    assert scene.state is State.FATAL_ERROR
    assert isinstance(operation.error, raised)
    assert operation.error.remedy == "stop"
    calls = (
        scene.machine.begin,
        scene.machine.commit,
        scene.machine.abort,
        scene.machine.init,
        scene.machine.check_send,
    )
    for call in calls:
        with pytest.raises(raised, match="To stop"):
            call()
    assert scene.poll().ask is None


def test_an_abort_that_is_rejected_is_the_end() -> None:
    scene = begun()
    scene.acknowledge(scene.sent())
    scene.machine.abort()
    scene.goes(errors.TransactionAbortable())
    assert scene.state is State.FATAL_ERROR


@pytest.mark.parametrize("error", [errors.InvalidTransactionTimeout(), errors.TransactionAbortable()])
def test_init_that_is_rejected_is_the_end(error: KafkaError) -> None:
    scene = Scene()
    operation = scene.machine.init()
    scene.goes(node="txn")
    scene.goes(error)
    assert scene.state is State.FATAL_ERROR
    assert isinstance(operation.error, type(error))


def test_a_fenced_epoch_at_a_partition_is_decided_by_the_coordinator() -> None:
    scene = begun()
    scene.reject(scene.sent(), errors.InvalidProducerEpoch())
    assert scene.state is State.ABORTABLE_ERROR
    scene.machine.abort()
    scene.goes(errors.ProducerFenced())
    assert scene.state is State.FATAL_ERROR


def test_after_the_end_every_record_fails_and_answers_change_nothing() -> None:
    scene = begun()
    request, queued = scene.sent(), scene.batch()
    scene.machine.send_offsets(OFFSETS, MEMBER)
    ask = scene.ask()
    scene.reject(request, errors.ProducerFenced())
    assert scene.state is State.FATAL_ERROR
    plan: Plan = scene.poll()
    assert [each.batch for each in plan.finished] == [queued]
    scene.answer(ask, node="group")
    assert scene.poll().ask is None


def test_numbers_of_batches_given_up_in_flight_are_not_gone_on_with() -> None:
    scene = begun(version=1)
    scene.acknowledge(scene.sent())
    scene.batch()
    request = scene.request()
    scene.sleep(DELIVERY_TIMEOUT)
    scene.poll()
    assert scene.state is State.ABORTABLE_ERROR
    scene.machine.abort()
    assert scene.ended() == EndTransaction(False)
    assert scene.goes(producer_id=9, producer_epoch=1, version=1) == InitProducerId(9, 0)
    scene.machine.begin()
    scene.acknowledge(request)  # the response comes late
    scene.sleep(LINGER)
    assert numbers(scene.sent().batches[0]) == (9, 1, 0)
    assert scene.state is State.IN_TRANSACTION
