"""Queues of batches: when they are ready, in which order they are drained, what happens to their memory."""

from __future__ import annotations

import pytest
from producer_context import DELIVERY_TIMEOUT, LINGER, P0, P1, P2, Context

from ottla.producing.accumulator import Appended
from ottla.producing.buffer_pool import Ticket
from ottla.producing.values import EncodedBatch, View
from ottla.records.builder import Lanes


def never(batch: object) -> bool:
    return False


def test_a_batch_is_ready_when_it_has_lingered() -> None:
    context = Context()
    context.append()
    assert context.accumulator.ready(context.view, now=0).nodes == []
    assert context.accumulator.ready(context.view, now=0).wait == LINGER
    assert context.accumulator.ready(context.view, now=2).wait == LINGER - 2
    assert context.accumulator.ready(context.view, now=LINGER).nodes == [0]


def test_a_full_batch_is_ready_at_once_and_the_next_one_begins() -> None:
    context = Context(batch_size=100)
    first = context.append(size=30)
    second = context.append(size=30)
    assert isinstance(first, Appended)
    assert isinstance(second, Appended)
    assert (first.batch is second.batch, second.new_batch) == (False, True)
    assert first.batch.closed
    assert context.accumulator.ready(context.view, now=0).nodes == [0]


def test_a_record_larger_than_a_batch_gets_its_own() -> None:
    context = Context(batch_size=100)
    appended = context.append(size=5_000)
    assert isinstance(appended, Appended)
    assert appended.batch.memory > 5_000
    assert context.accumulator.ready(context.view, now=0).nodes == [0]


def test_the_size_of_a_record_counts_the_bytes_of_its_header_names() -> None:
    size = Context().accumulator.size_for
    assert size(None, b"v", [("trace-of-it", b"1")]) - size(None, b"v", []) < 25
    assert size(None, b"v", [("ß" * 100, b"1")]) - size(None, b"v", []) >= 200


def test_everything_is_ready_while_somebody_waits_for_memory_flushes_or_closes() -> None:
    context = Context(buffer_memory=200)
    context.append()
    assert isinstance(context.append(P1), Ticket)
    assert context.accumulator.ready(context.view, now=0).nodes == [0]
    context = Context()
    context.append()
    waited_for = context.accumulator.begin_flush()
    assert len(waited_for) == 1
    assert context.accumulator.ready(context.view, now=0).nodes == [0]
    context.accumulator.end_flush()
    context = Context()
    context.append()
    context.accumulator.closing = True
    assert context.accumulator.ready(context.view, now=0).nodes == [0]


def test_a_partition_without_a_leader_is_reported() -> None:
    context = Context()
    context.batch(P2)
    ready = context.accumulator.ready(View({P0: 0}), now=0)
    assert (ready.nodes, ready.leaderless) == ([], {"t"})


def test_draining_takes_one_batch_a_partition_and_goes_on_where_it_stopped() -> None:
    context = Context(max_request_size=150)
    for key in (P0, P1):
        context.batches(2, key)
    view = View({P0: 0, P1: 0})
    # Each request has room for one batch: the partitions take turns.
    keys = []
    for _ in range(4):
        (batch,) = context.accumulator.drain(0, view, 80, never, now=0)
        keys.append(batch.topic_partition)
    assert keys == [P0, P1, P0, P1]


def test_a_batch_larger_than_a_request_goes_alone() -> None:
    context = Context()
    context.batch(P0, 500)
    context.batch(P1)
    assert [each.topic_partition for each in context.accumulator.drain(0, context.view, 50, never, now=0)] == [P0]
    assert [each.topic_partition for each in context.accumulator.drain(0, context.view, 50, never, now=0)] == [P1]


def test_muted_partitions_stay() -> None:
    context = Context()
    context.batch(P0)
    context.accumulator.mute(P0)
    assert context.accumulator.ready(context.view, now=0).nodes == []
    assert context.accumulator.drain(0, context.view, 1_000, never, now=0) == []
    context.accumulator.unmute(P0)
    assert len(context.accumulator.drain(0, context.view, 1_000, never, now=0)) == 1


def test_what_goes_again_waits_and_goes_before_what_comes_after() -> None:
    context = Context(idempotent=False)
    first, second = context.batches(2)
    context.accumulator.drain(0, context.view, 1_000, never, now=0)
    context.accumulator.again(first, now=0)
    assert context.accumulator.drain(0, context.view, 1_000, never, now=99) == []
    assert context.accumulator.ready(context.view, now=99).wait == 1
    assert context.accumulator.drain(0, context.view, 1_000, never, now=100) == [first]
    assert context.accumulator.drain(0, context.view, 1_000, never, now=100) == [second]


def test_a_finished_batch_releases_its_memory_to_waiting_tickets() -> None:
    context = Context(buffer_memory=200)
    batch = context.batch()
    ticket = context.append(P1)
    assert isinstance(ticket, Ticket)
    assert context.append(P1, ticket=ticket) is ticket
    context.accumulator.drain(0, context.view, 1_000, never, now=0)
    context.accumulator.finished(batch)
    assert context.accumulator.take_granted() == [ticket]
    assert isinstance(context.append(P1, ticket=ticket), Appended)


def test_a_ticket_that_is_not_needed_any_more_is_given_back() -> None:
    context = Context(buffer_memory=400)
    context.batch(P0)
    context.batch(P0)
    first, second = context.append(P1), context.append(P1)
    assert isinstance(first, Ticket)
    assert isinstance(second, Ticket)
    for batch in list(context.accumulator.incomplete):
        context.accumulator.finished(batch)
    assert isinstance(context.append(P1, ticket=first), Appended)
    assert isinstance(context.append(P1, ticket=second), Appended)  # into the batch of the first
    assert context.accumulator.pool.available == 200


def test_a_record_that_cannot_be_encoded_takes_no_memory() -> None:
    accumulator = Context().accumulator
    for _ in range(3):
        with pytest.raises(UnicodeEncodeError):
            accumulator.append(P0, 0, None, b"v", (("\ud800", b""),), now=0)
    assert accumulator.pool.available == accumulator.pool.total
    assert not accumulator.incomplete


def test_old_batches_expire_wherever_they_are() -> None:
    context = Context()
    drained, waiting = context.batches(2)
    context.accumulator.drain(0, context.view, 1_000, never, now=0)
    context.sleep(10)
    young = context.batch(P1)
    assert context.accumulator.next_expiry(now=10) == DELIVERY_TIMEOUT - 10
    assert context.accumulator.expired(now=DELIVERY_TIMEOUT - 1) == []
    assert context.accumulator.expired(now=DELIVERY_TIMEOUT) == [drained, waiting]
    for batch in (drained, waiting):
        context.accumulator.finished(batch)
    assert context.accumulator.expired(now=DELIVERY_TIMEOUT + 10) == [young]


def test_encoded_batches_are_queued_like_others() -> None:
    context = Context()
    opened = context.append()
    assert isinstance(opened, Appended)
    opened.batch.close()
    assert opened.batch.buffer is not None
    payload = bytes(opened.batch.buffer[61 : opened.batch.size])
    outcome = context.accumulator.append_batch(EncodedBatch(P0, payload, 1, 5, 5), now=0)
    assert isinstance(outcome, Appended)
    assert (outcome.batch.count, outcome.batch.memory, outcome.batch.closed) == (1, 61 + len(payload), True)
    after = context.append()
    assert isinstance(after, Appended)
    assert after.new_batch  # what comes later goes behind it
    context = Context(buffer_memory=300)
    context.batch()
    assert isinstance(context.accumulator.append_batch(EncodedBatch(P0, bytes(200), 3, 0, 0), now=0), Ticket)


def test_framed_batches_are_queued_without_a_copy() -> None:
    context = Context()
    opened = context.append()
    assert isinstance(opened, Appended)
    assert opened.batch.buffer is not None
    framed = bytearray(opened.batch.buffer[: opened.batch.size])
    outcome = context.accumulator.append_batch(EncodedBatch(P0, framed, 1, 5, 5, framed=True), now=0)
    assert isinstance(outcome, Appended)
    assert outcome.batch.buffer is framed
    assert (outcome.batch.count, outcome.batch.memory, outcome.batch.closed) == (1, len(framed), True)
    with pytest.raises(TypeError, match="bytearray"):
        context.accumulator.append_batch(EncodedBatch(P0, bytes(framed), 1, 5, 5, framed=True), now=0)


def test_the_fast_path_knows_which_batch_is_open() -> None:
    context = Context(batch_size=100)
    lanes = Lanes("t", 3)
    context.accumulator.add_topic(lanes)
    appended = context.append()
    assert isinstance(appended, Appended)
    assert lanes.opened(0) is appended.batch
    context.accumulator.drain(0, context.view, 1_000, never, now=LINGER)
    assert lanes.opened(0) is None
    context.append()
    grown = Lanes("t", 5)
    context.accumulator.add_topic(grown)
    assert grown.opened(0) is lanes.opened(0)
    context.accumulator.drop_all()
    assert grown.opened(0) is None


def test_the_next_batch_of_a_known_partition_starts_on_a_short_path() -> None:
    context = Context(buffer_memory=600)
    lanes = Lanes("t", 3)
    context.accumulator.add_topic(lanes)
    assert context.accumulator.begin_batch("t", 0, now=0) is None  # nothing was written there yet
    first = context.batch(P0)
    begun = context.accumulator.begin_batch("t", 0, now=0)
    assert begun is not None
    assert (begun.count, begun.memory, lanes.opened(0) is begun, first.closed) == (0, 200, True, True)
    assert begun.append(0, None, b"v") == 0
    assert context.accumulator.pool.available == 200
    # Waiting tickets come first.
    waiting = context.append(P1, size=300)
    assert isinstance(waiting, Ticket)
    assert context.accumulator.begin_batch("t", 0, now=0) is None
    context.accumulator.give_up(waiting)
    assert context.accumulator.begin_batch("t", 0, now=0) is not None
    assert context.accumulator.begin_batch("t", 0, now=0) is None  # memory is out


def test_queue_lengths_are_what_partitioners_ask_for() -> None:
    context = Context()
    context.batches(3, P1)
    assert context.accumulator.queue_lengths("t", [0, 1]) == [(0, 0), (1, 3)]
