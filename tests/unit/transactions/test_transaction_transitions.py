"""Every transition between states, with its exact record, response and timers."""

from __future__ import annotations

from pathlib import Path

import pytest
from transaction_context import FIRST_PRODUCER, ID, OFFSETS, P0, P1, START, TIMEOUT, V1, V2, TransactionContext

from ottla import errors
from ottla.machine import Timer
from ottla.transactions import messages as m
from ottla.transactions.coordinator import ABORT_TIMED_OUT, AT_ONCE, EXPIRE
from ottla.transactions.transaction import LAST_EPOCH, MAX_EPOCH, Transaction
from ottla.transactions.transitions import TRANSITIONS, State

CONCURRENT = errors.ConcurrentTransactions.code
FENCED = errors.ProducerFenced.code
WRONG_STATE = errors.InvalidTxnState.code
WRONG_ID = errors.InvalidProducerIdMapping.code
EMPTY = Transaction(
    transactional_id=ID, producer_id=FIRST_PRODUCER, producer_epoch=0, timeout=TIMEOUT, updated_at=START
)


@pytest.fixture
def context() -> TransactionContext:
    return TransactionContext()


def ongoing(context: TransactionContext, *, version: int = V1) -> None:
    context.init()
    context.add(P0, version=version)


# ── InitProducerId ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_id_gets_a_producer_id_and_epoch_0(context: TransactionContext) -> None:
    call = context.init()
    assert call.response == m.InitResponse(FIRST_PRODUCER, 0)
    assert call.value == EMPTY
    assert call.timers == ()


def test_a_producer_that_starts_again_gets_the_next_epoch(context: TransactionContext) -> None:
    context.init()
    call = context.init(timeout=5_000)
    assert call.response == m.InitResponse(FIRST_PRODUCER, 1)
    assert call.value is not None
    assert (call.value.state, call.value.producer_epoch, call.value.timeout) == (State.EMPTY, 1, 5_000)


@pytest.mark.parametrize("committed", [True, False])
def test_a_producer_that_starts_again_after_a_transaction_is_empty(
    context: TransactionContext, committed: bool
) -> None:
    ongoing(context)
    context.end(committed)
    assert context.init().code == CONCURRENT
    context.finish()
    assert context.init().response == m.InitResponse(FIRST_PRODUCER, 1)
    assert (context.state.state, context.state.started_at) == (State.EMPTY, -1)


def test_an_ongoing_transaction_is_aborted_first_and_its_producer_is_fenced(context: TransactionContext) -> None:
    ongoing(context)
    context.now += 10
    call = context.init()
    assert call.response == m.InitResponse(error_code=CONCURRENT)
    assert call.value == Transaction(
        transactional_id=ID,
        producer_id=FIRST_PRODUCER,
        producer_epoch=1,
        last_producer_epoch=0,
        timeout=TIMEOUT,
        state=State.PREPARE_ABORT,
        partitions=frozenset({P0}),
        started_at=START,
        updated_at=START + 10,
        version=V2,
    )
    assert context.init().code == CONCURRENT, "until the markers are written"
    assert context.add(P0).code == FENCED
    assert context.finish() == [m.Markers(ID, FIRST_PRODUCER, 1, False, frozenset({P0}), V2)]
    assert context.state.state is State.COMPLETE_ABORT
    assert context.init().response == m.InitResponse(FIRST_PRODUCER, 2)
    assert context.commit().code == FENCED


@pytest.mark.parametrize("name", ["", "x" * 32_768])
def test_an_id_that_cannot_be_written_down(context: TransactionContext, name: str) -> None:
    assert context.init(name=name).code == errors.InvalidRequest.code


def test_a_producer_keeps_its_id_if_it_tells_it(context: TransactionContext) -> None:
    context.init()
    assert context.init(FIRST_PRODUCER, 0).response == m.InitResponse(FIRST_PRODUCER, 1)
    again = context.init(FIRST_PRODUCER, 0)
    assert again.response == m.InitResponse(FIRST_PRODUCER, 1), "the same request once more"
    assert context.init(FIRST_PRODUCER, 1).response == m.InitResponse(FIRST_PRODUCER, 2)


def test_a_producer_that_was_replaced_learns_it(context: TransactionContext) -> None:
    context.init()
    context.init()
    assert context.init(FIRST_PRODUCER, 0).code == FENCED
    assert context.init(FIRST_PRODUCER + 7, 1).code == FENCED
    assert context.state.producer_epoch == 1


def test_a_producer_whose_id_has_expired_gets_a_new_one(context: TransactionContext) -> None:
    assert context.init(77, 3).response == m.InitResponse(FIRST_PRODUCER, 0)


def exhausted(context: TransactionContext) -> None:
    context.init()
    context.force(producer_epoch=LAST_EPOCH)


def test_when_all_epochs_are_used_the_producer_gets_another_id(context: TransactionContext) -> None:
    exhausted(context)
    call = context.init()
    assert call.response == m.InitResponse(FIRST_PRODUCER + 1, 0)
    assert call.value is not None
    assert call.value.previous_producer_id == FIRST_PRODUCER
    assert context.add(P0, epoch=LAST_EPOCH).code == WRONG_ID


def test_a_repeated_request_for_the_epoch_after_the_last(context: TransactionContext) -> None:
    exhausted(context)
    assert context.init(FIRST_PRODUCER, LAST_EPOCH).response == m.InitResponse(FIRST_PRODUCER + 1, 0)
    assert context.init(FIRST_PRODUCER, LAST_EPOCH).response == m.InitResponse(FIRST_PRODUCER + 1, 0)


def test_without_a_spare_producer_id_the_request_comes_again(context: TransactionContext) -> None:
    request = m.InitRequest(transactional_id=ID, timeout=TIMEOUT)
    assert context.run(context.coordinator.init_producer_id, request).code == CONCURRENT


# ── partitions ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_partition_begins_a_transaction(context: TransactionContext) -> None:
    context.init()
    context.now += 5
    call = context.add(P0)
    assert call.response == m.AddPartitionsResponse()
    assert call.value == Transaction(
        transactional_id=ID,
        producer_id=FIRST_PRODUCER,
        producer_epoch=0,
        timeout=TIMEOUT,
        state=State.ONGOING,
        partitions=frozenset({P0}),
        started_at=START + 5,
        updated_at=START + 5,
    )
    assert call.timers == (Timer(ABORT_TIMED_OUT, START + 5 + 10_000),)


def test_more_partitions_join_it_and_known_ones_write_nothing(context: TransactionContext) -> None:
    ongoing(context)
    context.now += 5
    call = context.add(P0, P1, OFFSETS)
    assert call.value is not None
    assert call.value.partitions == {P0, P1, OFFSETS}
    assert (call.value.started_at, call.value.updated_at) == (START, START + 5)
    assert call.timers == ()
    assert context.add(P1).records == ()


def test_who_may_not_add_partitions(context: TransactionContext) -> None:
    assert context.add(P0).code == WRONG_ID
    assert context.add(P0, name="").code == errors.InvalidRequest.code
    context.init()
    assert context.add(P0, producer_id=5).code == WRONG_ID
    assert context.add(P0, epoch=1).code == FENCED
    context.add(P0)
    context.commit()
    assert context.add(P1).code == CONCURRENT


@pytest.mark.parametrize("committed", [True, False])
def test_the_next_transaction_begins_anew(context: TransactionContext, committed: bool) -> None:
    ongoing(context)
    context.end(committed)
    context.finish()
    context.now += 100
    context.add(P1)
    assert (context.state.partitions, context.state.started_at) == ({P1}, START + 100)


def test_partitions_are_verified(context: TransactionContext) -> None:
    assert context.verify(P0).response.codes == {P0: WRONG_ID}
    ongoing(context)
    assert context.verify(P0, P1).response.codes == {P0: 0, P1: errors.TransactionAbortable.code}
    assert context.verify(P0, epoch=1).response.codes == {P0: FENCED}
    context.commit()
    assert context.verify(P0).response.codes == {P0: CONCURRENT}
    context.finish()
    assert context.verify(P0).response.codes == {P0: errors.TransactionAbortable.code}


# ── the end, first version ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("committed", "prepared", "complete"),
    [(True, State.PREPARE_COMMIT, State.COMPLETE_COMMIT), (False, State.PREPARE_ABORT, State.COMPLETE_ABORT)],
)
def test_a_transaction_is_decided_then_marked_then_complete(
    context: TransactionContext, committed: bool, prepared: State, complete: State
) -> None:
    ongoing(context)
    context.now += 10
    decided = context.end(committed)
    assert decided.response == m.EndResponse()
    expected = Transaction(
        transactional_id=ID,
        producer_id=FIRST_PRODUCER,
        producer_epoch=0,
        timeout=TIMEOUT,
        state=prepared,
        partitions=frozenset({P0}),
        started_at=START,
        updated_at=START + 10,
    )
    assert decided.value == expected
    markers = m.Markers(ID, FIRST_PRODUCER, 0, committed, frozenset({P0}), V1)
    assert list(context.coordinator.unfinished()) == [markers]
    context.now += 10
    call = context.run(context.coordinator.markers_written, markers)
    assert call.value is not None
    assert (call.value.state, call.value.partitions, call.value.updated_at) == (complete, frozenset(), START + 20)
    assert not context.coordinator.has_unfinished
    assert context.run(context.coordinator.markers_written, markers).response is False


@pytest.mark.parametrize("committed", [True, False])
def test_the_first_version_may_ask_again_for_the_same_end_only(context: TransactionContext, committed: bool) -> None:
    ongoing(context)
    context.end(committed)
    assert context.end(committed).code == CONCURRENT
    assert context.end(not committed).code == WRONG_STATE
    context.finish()
    assert context.end(committed).response == m.EndResponse()
    assert context.end(not committed).code == WRONG_STATE
    assert context.end(committed, epoch=1).code == FENCED


def test_what_cannot_be_ended(context: TransactionContext) -> None:
    assert context.commit().code == WRONG_ID
    assert context.commit(name="").code == errors.InvalidRequest.code
    context.init()
    assert context.commit().code == WRONG_STATE
    assert context.abort().code == WRONG_STATE
    context.add(P0)
    assert context.commit(producer_id=5).code == WRONG_ID
    assert context.commit(epoch=1).code == FENCED
    assert context.state.state is State.ONGOING


def test_markers_of_an_older_decision_complete_nothing(context: TransactionContext) -> None:
    ongoing(context)
    context.commit()
    (old,) = context.finish()
    context.init()
    context.add(P0, epoch=1)
    context.abort(epoch=1)
    assert context.run(context.coordinator.markers_written, old).records == ()
    assert context.state.state is State.PREPARE_ABORT


# ── the end, second version ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("committed", [True, False])
def test_the_second_version_raises_the_epoch_with_every_transaction(
    context: TransactionContext, committed: bool
) -> None:
    ongoing(context, version=V2)
    call = context.end(committed, version=V2)
    assert call.response == m.EndResponse(FIRST_PRODUCER, 1)
    assert call.value is not None
    assert (call.value.producer_epoch, call.value.last_producer_epoch, call.value.version) == (1, 0, V2)
    assert context.finish() == [m.Markers(ID, FIRST_PRODUCER, 1, committed, frozenset({P0}), V2)]
    assert context.add(P0, epoch=0).code == FENCED, "a late request of the transaction that is over"
    assert context.add(P0, epoch=1, version=V2).code == 0


@pytest.mark.parametrize("committed", [True, False])
def test_the_second_version_knows_a_repeated_end_by_its_epoch(context: TransactionContext, committed: bool) -> None:
    ongoing(context, version=V2)
    context.end(committed, version=V2)
    assert context.end(committed, version=V2).code == CONCURRENT
    assert context.end(not committed, version=V2).code == WRONG_STATE
    assert context.end(committed, epoch=1, version=V2).code == FENCED
    context.finish()
    assert context.end(committed, version=V2).response == m.EndResponse(FIRST_PRODUCER, 1)
    assert context.end(not committed, version=V2).code == WRONG_STATE
    assert context.end(committed, epoch=4, version=V2).code == FENCED


@pytest.mark.parametrize("before", ["empty", "committed", "aborted"])
def test_the_second_version_may_abort_what_never_began(context: TransactionContext, before: str) -> None:
    epoch = 0
    context.init()
    if before != "empty":
        context.add(P0, version=V2)
        context.end(before == "committed", version=V2)
        context.finish()
        epoch = 1
    assert context.commit(epoch=epoch, version=V2).code == WRONG_STATE
    assert context.abort(epoch=epoch, version=V2).response == m.EndResponse(FIRST_PRODUCER, epoch + 1)
    assert (context.state.state, context.state.started_at) == (State.PREPARE_ABORT, START)
    assert context.finish() == [m.Markers(ID, FIRST_PRODUCER, epoch + 1, False, frozenset(), V2)]


def test_an_empty_transaction_is_not_known_by_an_older_epoch(context: TransactionContext) -> None:
    context.init()
    context.init()
    assert context.abort(epoch=0, version=V2).code == FENCED


@pytest.mark.parametrize("committed", [True, False])
def test_after_the_last_epoch_the_second_version_goes_on_with_another_id(
    context: TransactionContext, committed: bool
) -> None:
    exhausted(context)
    context.add(P0, epoch=LAST_EPOCH, version=V2)
    call = context.end(committed, epoch=LAST_EPOCH, version=V2)
    assert call.response == m.EndResponse(FIRST_PRODUCER + 1, 0)
    assert call.value is not None
    assert (call.value.producer_epoch, call.value.next_producer_id) == (MAX_EPOCH, FIRST_PRODUCER + 1)
    assert context.finish() == [m.Markers(ID, FIRST_PRODUCER, MAX_EPOCH, committed, frozenset({P0}), V2)]
    assert (context.state.producer_id, context.state.producer_epoch) == (FIRST_PRODUCER + 1, 0)
    assert context.state.next_producer_id == -1
    again = context.end(committed, epoch=LAST_EPOCH, version=V2)
    assert again.response == m.EndResponse(FIRST_PRODUCER + 1, 0)


def test_a_producer_at_the_last_epoch_can_still_be_fenced(context: TransactionContext) -> None:
    exhausted(context)
    context.add(P0, epoch=LAST_EPOCH)
    assert context.init().code == CONCURRENT
    assert context.finish() == [m.Markers(ID, FIRST_PRODUCER, MAX_EPOCH, False, frozenset({P0}), V2)]
    rotated = context.init().response
    assert (rotated.producer_id > FIRST_PRODUCER, rotated.producer_epoch) == (True, 0)


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_transaction_that_takes_too_long_is_aborted(context: TransactionContext) -> None:
    ongoing(context)
    for _ in range(6):
        (tick,) = context.sleep(10_000)
        assert tick.records == ()
        assert tick.timers == (Timer(ABORT_TIMED_OUT, context.now + 10_000),)
    (tick,) = context.sleep(10_000)
    assert tick.value is not None
    assert (tick.value.state, tick.value.producer_epoch, tick.value.updated_at) == (
        State.PREPARE_ABORT,
        1,
        START + 70_000,
    )
    assert tick.timers == ()
    assert context.finish() == [m.Markers(ID, FIRST_PRODUCER, 1, False, frozenset({P0}), V2)]
    assert context.commit().code == FENCED
    assert context.commit(version=V2).code == WRONG_STATE
    assert context.abort(version=V2).response == m.EndResponse(FIRST_PRODUCER, 1), "it may go on with the epoch after"


def test_a_transaction_that_has_ended_does_not_time_out(context: TransactionContext) -> None:
    ongoing(context)
    context.commit()
    context.finish()
    (tick,) = context.sleep(100_000)
    assert (tick.records, tick.timers) == ((), ())
    context.add(P0)
    assert context.timers.next_deadline() == context.now + 10_000


def test_very_many_that_time_out_are_aborted_in_several_batches(context: TransactionContext) -> None:
    for number in range(AT_ONCE + 3):
        context.init(name=f"id-{number}")
        context.add(P0, name=f"id-{number}", producer_id=FIRST_PRODUCER + number)
    first, second = context.sleep(TIMEOUT + 10_000)
    assert (len(first.records), len(second.records)) == (AT_ONCE, 3)


def test_an_id_that_nobody_uses_expires(context: TransactionContext) -> None:
    context.init()
    week = 7 * 24 * 3_600_000
    context.sleep(week - 1)
    assert ID in context.coordinator.transactions
    ticks = context.sleep(3_600_000)
    assert [tick.value for tick in ticks] == [None]
    assert ticks[0].timers == (Timer(EXPIRE, context.now + 3_600_000),)
    assert ID not in context.coordinator.transactions
    assert context.add(P0).code == WRONG_ID
    context.restart()
    assert context.coordinator.transactions == {}


def test_what_is_open_or_undecided_does_not_expire() -> None:
    context = TransactionContext(transactional_id_expiration_ms=1)
    context.init()
    context.add(P0)
    context.commit()
    context.sleep(3_600_000)
    assert context.state.state is State.PREPARE_COMMIT


# ── restart ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("committed", [True, False])
def test_what_was_decided_before_a_crash_is_finished_after_it(context: TransactionContext, committed: bool) -> None:
    ongoing(context)
    context.add(OFFSETS)
    context.end(committed)
    context.restart()
    assert context.init().code == CONCURRENT
    assert context.finish() == [m.Markers(ID, FIRST_PRODUCER, 0, committed, frozenset({P0, OFFSETS}), V1)]
    assert context.init().response == m.InitResponse(FIRST_PRODUCER, 1)


def test_what_is_open_at_a_crash_goes_on_and_can_time_out(context: TransactionContext) -> None:
    ongoing(context)
    before = context.state
    context.restart()
    assert context.state == before
    assert context.timers.next_deadline() == START + 10_000
    assert context.add(P1).code == 0
    context.sleep(TIMEOUT + 10_000)
    assert context.state.state is State.PREPARE_ABORT


def test_a_repeated_end_is_known_after_a_restart(context: TransactionContext) -> None:
    ongoing(context, version=V2)
    context.commit(version=V2)
    context.finish()
    context.restart()
    assert context.commit(version=V2).response == m.EndResponse(FIRST_PRODUCER, 1)


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_list_and_describe(context: TransactionContext) -> None:
    ongoing(context)
    context.init(name="idle")
    context.now += 500
    look = context.coordinator
    mine, idle = m.Listed(ID, FIRST_PRODUCER, State.ONGOING), m.Listed("idle", FIRST_PRODUCER + 1, State.EMPTY)
    assert context.run(look.list_transactions).response == (mine, idle)
    assert context.run(look.list_transactions, ["Ongoing"]).response == (mine,)
    assert context.run(look.list_transactions, (), [FIRST_PRODUCER + 1]).response == (idle,)
    assert context.run(look.list_transactions, longer_than=499).response == (mine,)
    assert context.run(look.list_transactions, longer_than=500).response == ()
    assert context.run(look.list_transactions, matches=lambda name: name == "idle").response == (idle,)
    described = context.run(look.describe, ID).response
    assert described == m.Described(ID, 0, State.ONGOING, TIMEOUT, START, FIRST_PRODUCER, 0, (P0,))
    assert context.run(look.describe, "nobody").response.error_code == errors.TransactionalIdNotFound.code
    assert context.run(look.describe, "").response.error_code == errors.InvalidRequest.code


# ── the table ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_picture_in_the_docs_is_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "transactions.md"
    diagram = TRANSITIONS.mermaid(State.EMPTY, State.DEAD)
    assert diagram in page.read_text(), f"the table has changed: put this into docs/transactions.md:\n{diagram}"
