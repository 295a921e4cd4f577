"""What is sent to which broker and when, and what responses mean."""

from __future__ import annotations

import pytest
from producer_context import BACKOFF, DELIVERY_TIMEOUT, LINGER, P0, P1, P2, Context

from ottla.errors import (
    ClusterAuthorizationFailed,
    InvalidTopicException,
    MessageTooLarge,
    NetworkException,
    NotLeaderOrFollower,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownServerError,
)
from ottla.producing.errors import DeliveryTimeout
from ottla.producing.values import View
from ottla.records.builder import RecordFuture


def test_one_request_a_broker_with_a_batch_of_each_partition() -> None:
    context = Context()
    context.batch(P0)
    context.append(P1)  # not full: it goes along
    context.batch(P2)
    requests = {request.node: request for request in context.poll().requests}
    assert [batch.topic_partition for batch in requests[0].batches] == [P0, P1]
    assert [batch.topic_partition for batch in requests[1].batches] == [P2]


def test_several_requests_go_at_once_up_to_the_limit() -> None:
    context = Context(in_flight=3)
    context.first_acknowledged()
    context.batches(7)
    requests = context.poll().requests
    assert len(requests) == 3
    assert context.sender.requests_in_flight == 3
    assert context.poll().requests == []
    context.acknowledge(requests[0])
    assert len(context.poll().requests) == 1


def test_a_batch_that_may_still_grow_is_not_sent_as_a_second_request() -> None:
    context = Context()
    context.first_acknowledged()
    context.batch(P0)
    context.append(P0)
    assert len(context.poll().requests) == 1
    assert context.poll().wait == LINGER


def test_brokers_are_connected_to_when_there_is_something_for_them() -> None:
    context = Context()
    context.connected = set()
    context.batch(P2)
    plan = context.poll()
    assert (plan.connect, plan.requests) == ({1}, [])
    context.connected = {1}
    assert [request.node for request in context.poll().requests] == [1]


def test_one_in_flight_mutes_the_partition() -> None:
    context = Context(idempotent=False, in_flight=1)
    first, second = context.batches(2)
    request = context.request()
    context.lose(request, NetworkException())
    assert context.poll().requests == []
    context.sleep(BACKOFF)
    again = context.request()
    assert again.batches == [first]
    context.acknowledge(again)
    assert context.request().batches == [second]


def test_metadata_is_asked_for_when_leaders_are_unknown_or_wrong() -> None:
    context = Context()
    context.batch(P0)
    context.view = View({})
    assert context.poll().refresh == {"t"}
    context.view = View({P0: 0})
    context.reject(context.request(), NotLeaderOrFollower())
    assert context.poll().refresh == {"t"}
    assert context.poll().refresh == set()


def test_passing_errors_are_tried_again_with_longer_and_longer_waits() -> None:
    context = Context()
    batch = context.batch()
    for attempt in range(3):
        assert context.reject(context.request(), RequestTimedOut()) == []
        wait = BACKOFF * 2**attempt
        assert context.poll().wait == min(wait, DELIVERY_TIMEOUT - context.now)
        context.sleep(wait - 1)
        assert context.poll().requests == []
        context.sleep(1)
    assert batch.attempts == 3
    assert context.sender.retried == 3


def test_retries_run_out() -> None:
    context = Context(idempotent=False, retries=1)
    context.batch()
    assert context.reject(context.request(), RequestTimedOut()) == []
    context.sleep(BACKOFF)
    (finished,) = context.reject(context.request(), RequestTimedOut("slow"))
    assert isinstance(finished.error, RequestTimedOut)
    assert "t-0" in str(finished.error)


@pytest.mark.parametrize("error", [TopicAuthorizationFailed(), InvalidTopicException(), UnknownServerError()])
def test_lasting_errors_fail_at_once(error: InvalidTopicException) -> None:
    context = Context()
    batch = context.batch()
    (finished,) = context.reject(context.request(), error)
    assert finished.batch is batch
    assert type(finished.error) is type(error)
    assert context.accumulator.pool.available == context.accumulator.pool.total


def test_a_partition_that_the_broker_leaves_out_fails() -> None:
    context = Context()
    context.batch()
    (finished,) = context.sender.answered(context.request(), {}, now=0)
    assert isinstance(finished.error, UnknownServerError)


def test_acks_0_is_done_when_it_is_sent() -> None:
    context = Context(idempotent=False)
    context.batch()
    (finished,) = context.sender.unanswered(context.request(), now=0)
    assert (finished.error, finished.base_offset) == (None, -1)


def test_batches_that_wait_too_long_fail_and_say_so() -> None:
    context = Context()
    context.connected = set()
    context.append()
    context.append()
    context.sleep(DELIVERY_TIMEOUT - 1)
    assert context.poll().wait == 1
    context.sleep(1)
    (finished,) = context.poll().finished
    assert isinstance(finished.error, DeliveryTimeout)
    assert "2 record(s) for t-0" in str(finished.error)
    assert "never sent" in str(finished.error)
    assert context.accumulator.pool.available == context.accumulator.pool.total


def test_batches_in_flight_fail_in_time_too_and_a_late_answer_changes_nothing() -> None:
    context = Context()
    batch = context.batch()
    request = context.request()
    buffer = batch.buffer
    context.sleep(DELIVERY_TIMEOUT)
    (finished,) = context.poll().finished
    assert isinstance(finished.error, DeliveryTimeout)
    assert "sent 1 time(s)" in str(finished.error)
    batch.finish(-1, -1, finished.error)
    # The connection may still read from the buffer: it is not reused.
    assert context.accumulator.pool.buffer(200) is not buffer
    assert context.acknowledge(request) == []
    assert context.sender.requests_in_flight == 0


def test_a_batch_that_is_too_large_goes_in_halves_down_to_the_record_that_is() -> None:
    context = Context(idempotent=False)
    for _ in range(3):
        context.append()
    whole = next(iter(context.accumulator.incomplete))
    futures = [RecordFuture(whole, index, 0, -1, 10) for index in range(3)]
    context.sleep(LINGER)
    assert context.reject(context.request(), MessageTooLarge()) == []
    half, rest = (request.batches[0] for request in context.poll().requests)
    assert (half.count, rest.count) == (1, 2)
    assert (half.created, rest.created) == (0, 0)
    assert [future.batch.locate(future.index) for future in futures] == [(half, 0), (rest, 0), (rest, 1)]
    (finished,) = context.reject(context.sender._in_flight[0][0], MessageTooLarge())
    assert isinstance(finished.error, MessageTooLarge)
    assert "max.message.bytes" in str(finished.error)
    assert [batch.count for batch in context.accumulator.incomplete] == [2]


def test_without_a_producer_id_for_good_everything_fails() -> None:
    context = Context()
    context.batch()
    context.sender.fatal = ClusterAuthorizationFailed("no")
    (finished,) = context.poll().finished
    assert finished.error is context.sender.fatal


def test_closing_without_waiting_fails_what_is_queued_and_in_flight() -> None:
    context = Context()
    context.first_acknowledged()
    context.batch()
    context.request()
    context.append()
    error = RuntimeError("closed")
    finished = context.sender.abandon(error)
    assert [outcome.error for outcome in finished] == [error, error]
    assert context.accumulator.incomplete == {}


def test_a_broker_that_takes_nothing_is_stuck_after_a_while() -> None:
    context = Context(availability_timeout_ms=50)
    context.connected = set()
    context.batch()
    context.poll()
    assert not context.sender.stuck(0, now=50)
    assert context.sender.stuck(0, now=51)
    context.connected = {0}
    context.poll()
    assert not context.sender.stuck(0, now=200)
    assert not Context().sender.stuck(0, now=200)


def test_it_rests_when_nothing_waits_and_nothing_has_to_be_asked() -> None:
    context = Context()
    assert context.sender.is_idle
    context.append(P0)
    assert not context.sender.is_idle
    context.sleep(LINGER)
    request = context.poll().requests[0]
    assert context.sender.is_idle  # a response will come
    context.reject(request, NotLeaderOrFollower())
    assert not context.sender.is_idle
    assert context.poll().refresh
    context.sleep(BACKOFF)
    context.acknowledge(context.poll().requests[0])
    assert context.sender.is_idle
