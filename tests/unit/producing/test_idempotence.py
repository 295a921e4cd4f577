"""Producer ids, epochs and sequence numbers: Kafka's rules, and ours where they are stricter."""

from __future__ import annotations

import pytest
from producer_context import BACKOFF, DELIVERY_TIMEOUT, P0, P1, Context, numbers

from ottla.errors import (
    CorruptMessage,
    DuplicateSequenceNumber,
    InvalidRecord,
    MessageTooLarge,
    NetworkException,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)
from ottla.producing.batch import MAX_SEQUENCE
from ottla.producing.idempotence import MAX_EPOCH, Idempotence
from ottla.producing.values import View


def test_nothing_is_sent_before_there_is_a_producer_id() -> None:
    context = Context()
    context.sender.idempotence = context.idempotence = Idempotence()
    context.batch()
    plan = context.poll()
    assert (plan.requests, plan.identify) == ([], True)
    context.idempotence.identify(5, 0)
    assert numbers(context.request().batches[0]) == (5, 0, 0)


def test_records_are_numbered_a_partition() -> None:
    context = Context()
    context.first_acknowledged()
    batches = context.batches(2)
    assert len(context.poll().requests) == 2
    assert [numbers(batch) for batch in batches] == [(9, 0, 1), (9, 0, 2)]
    context.batch(P1)
    assert numbers(context.request().batches[0]) == (9, 0, 0)


def test_nothing_follows_the_first_batch_before_it_is_acknowledged() -> None:
    """A broker accepts any number from a producer that it does not know: it could accept the second batch first."""
    context = Context()
    context.batches(3)
    first = context.request()
    assert context.poll().requests == []
    context.acknowledge(first)
    assert len(context.poll().requests) == 2


def test_a_retry_keeps_its_numbers_and_goes_alone_until_it_is_acknowledged() -> None:
    context = Context()
    context.first_acknowledged()
    batches = context.batches(3)
    requests = context.poll().requests
    for request in requests:
        assert context.lose(request, NetworkException()) == []
    context.sleep(BACKOFF)
    again = context.request()
    assert again.batches == [batches[0]]
    assert numbers(batches[0]) == (9, 0, 1)
    context.acknowledge(again, 1)
    assert context.request().batches == [batches[1]]


def test_batches_that_come_back_in_any_order_go_in_theirs() -> None:
    context = Context()
    context.first_acknowledged()
    batches = context.batches(3)
    new = context.batches(1)
    requests = context.poll().requests
    for number in (1, 0, 2, 3):
        context.lose(requests[number], NetworkException())
    sent = []
    for _ in range(4):
        context.sleep(BACKOFF)
        request = context.request()
        sent += request.batches
        context.acknowledge(request)
    assert sent == batches + new


def test_no_more_are_in_flight_than_a_broker_remembers_even_to_two_brokers() -> None:
    context = Context()
    context.first_acknowledged()
    context.batches(5)
    assert len(context.poll().requests) == 5
    context.batches(3)
    context.view = View({P0: 1})
    assert context.poll().requests == []


def test_out_of_order_of_a_batch_that_is_not_the_next_is_only_early() -> None:
    context = Context()
    context.first_acknowledged()
    first, second = context.batches(2)
    one, two = context.poll().requests
    context.lose(one, NetworkException())
    assert context.reject(two, OutOfOrderSequenceNumber()) == []
    context.sleep(BACKOFF)
    assert context.request().batches == [first]
    assert numbers(second) == (9, 0, 2)


def test_out_of_order_of_the_next_batch_raises_the_epoch() -> None:
    context = Context()
    context.first_acknowledged()
    first, second = context.batches(2)
    one, two = context.poll().requests
    assert context.reject(one, OutOfOrderSequenceNumber()) == []
    assert context.reject(two, OutOfOrderSequenceNumber()) == []
    context.sleep(BACKOFF)
    again = context.request()
    assert again.batches == [first]
    assert (numbers(first), numbers(second)) == ((9, 1, 0), (9, 1, 1))
    assert first.sequence_reset


def test_a_batch_before_an_acknowledged_one_was_written() -> None:
    context = Context()
    context.first_acknowledged()
    context.batches(2)
    one, two = context.poll().requests
    context.lose(one, NetworkException())
    context.acknowledge(two, 2)
    context.sleep(BACKOFF)
    (finished,) = context.reject(context.request(), OutOfOrderSequenceNumber())
    assert (finished.error, finished.base_offset) == (None, -1)


def test_a_duplicate_counts_as_written_at_an_unknown_offset() -> None:
    context = Context()
    context.first_acknowledged()
    context.batch()
    (finished,) = context.reject(context.request(), DuplicateSequenceNumber())
    assert (finished.error, finished.base_offset) == (None, -1)


@pytest.mark.parametrize(("log_start", "epoch"), [(-1, 0), (0, 1), (50, 1)])
def test_a_forgotten_producer_begins_again(log_start: int, epoch: int) -> None:
    """Without the log start offset the next response decides; with it another epoch starts."""
    context = Context()
    context.first_acknowledged()
    batch = context.batch()
    assert context.reject(context.request(), UnknownProducerId(), log_start) == []
    context.sleep(BACKOFF)
    assert context.request().batches == [batch]
    assert numbers(batch) == (9, epoch, 1 - epoch)


def test_other_partitions_take_the_new_epoch_once_nothing_of_theirs_is_in_flight() -> None:
    context = Context()
    context.first_acknowledged(P0)
    context.first_acknowledged(P1)
    in_flight = context.batch(P1)
    other = context.request()
    context.batch(P0)
    context.reject(context.request(), OutOfOrderSequenceNumber())
    waiting = context.batch(P1)
    assert context.poll().requests == []
    assert context.idempotence is not None
    assert context.idempotence.producer_epoch == 1
    assert numbers(in_flight) == (9, 0, 1)
    context.acknowledge(other)
    assert context.request().batches == [waiting]
    assert numbers(waiting) == (9, 1, 0)


def test_a_rejected_batch_leaves_a_gap_that_another_epoch_closes() -> None:
    context = Context()
    context.first_acknowledged()
    bad, good = context.batches(2)
    one, two = context.poll().requests
    (finished,) = context.reject(one, InvalidRecord("no"))
    assert finished.batch is bad
    assert isinstance(finished.error, InvalidRecord)
    assert str(finished.error) == "partition t-0: no"
    context.reject(two, OutOfOrderSequenceNumber())
    context.sleep(BACKOFF)
    assert context.request().batches == [good]
    assert numbers(good) == (9, 1, 0)


def test_what_lies_before_the_gap_goes_again_as_it_was() -> None:
    """Its response was lost: with new numbers the broker would not recognize it."""
    context = Context()
    context.first_acknowledged()
    lost, bad = context.batches(2)
    one, two = context.poll().requests
    context.lose(one, NetworkException())
    context.reject(two, InvalidRecord())
    after = context.batch()
    context.sleep(BACKOFF)
    again = context.request()
    assert again.batches == [lost]
    assert numbers(lost) == (9, 0, 1)
    context.acknowledge(again, 1)
    assert context.request().batches == [after]
    assert numbers(after) == (9, 1, 0)
    assert bad.base_sequence == 2


def test_a_batch_given_up_in_flight_stops_new_ones_until_its_fate_is_known() -> None:
    context = Context()
    context.first_acknowledged()
    context.batch()
    old = context.request()
    context.sleep(DELIVERY_TIMEOUT // 2)
    later = context.batch()
    later_request = context.request()
    context.sleep(DELIVERY_TIMEOUT // 2)
    new = context.batch()
    plan = context.poll()
    assert len(plan.finished) == 1
    assert plan.requests == []  # unresolved: whether 1 was written decides about what comes next
    context.acknowledge(old, 1)  # too late for the user, but it tells
    context.acknowledge(later_request, 2)
    assert context.request().batches == [new]
    assert numbers(new) == (9, 0, 3)
    assert later.base_sequence == 2


def test_if_the_fate_stays_unknown_another_epoch_begins() -> None:
    context = Context()
    context.first_acknowledged()
    context.batch()
    context.request()
    context.sleep(DELIVERY_TIMEOUT)
    new = context.batch()
    request = context.request()
    assert request.batches == [new]
    assert numbers(new) == (9, 1, 0)


def test_after_the_last_epoch_comes_a_new_producer_id() -> None:
    context = Context()
    assert context.idempotence is not None
    context.idempotence.identify(9, MAX_EPOCH)
    context.first_acknowledged()
    batch = context.batch()
    context.reject(context.request(), OutOfOrderSequenceNumber())
    context.sleep(BACKOFF)
    plan = context.poll()
    assert (plan.identify, plan.requests) == (True, [])
    context.idempotence.identify(10, 0)
    assert context.request().batches == [batch]
    assert numbers(batch) == (10, 0, 0)


def test_sequence_numbers_begin_again_after_the_largest() -> None:
    context = Context()
    context.first_acknowledged()
    assert context.idempotence is not None
    entry = context.idempotence._entries[P0]
    entry.next_sequence, entry.last_acked_sequence = MAX_SEQUENCE, MAX_SEQUENCE - 1
    first, second = context.batches(2)
    one, two = context.poll().requests
    assert (first.base_sequence, second.base_sequence) == (MAX_SEQUENCE, 0)
    context.lose(two, NetworkException())
    context.lose(one, NetworkException())
    context.sleep(BACKOFF)
    again = context.request()
    assert again.batches == [first]
    context.acknowledge(again)
    assert context.request().batches == [second]


def test_halves_keep_the_numbers_of_the_whole() -> None:
    context = Context()
    context.first_acknowledged()
    for _ in range(3):
        context.append()
    context.sleep(10)
    request = context.request()
    assert context.reject(request, MessageTooLarge()) == []
    first = context.request()
    assert [numbers(batch) for batch in first.batches] == [(9, 0, 1)]
    assert first.batches[0].count == 1
    context.acknowledge(first, 1)
    second = context.request()
    assert [numbers(batch) for batch in second.batches] == [(9, 0, 2)]
    assert second.batches[0].count == 2


@pytest.mark.parametrize("error", [NotLeaderOrFollower(), CorruptMessage()])
def test_passing_errors_change_no_numbers(error: NotLeaderOrFollower) -> None:
    context = Context()
    context.first_acknowledged()
    batch = context.batch()
    assert context.reject(context.request(), error) == []
    context.sleep(BACKOFF)
    context.request()
    assert numbers(batch) == (9, 0, 1)
