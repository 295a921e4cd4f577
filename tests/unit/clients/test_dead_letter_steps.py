"""What happens to records whose handler fails, step by step and in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.clients.cluster.connections import Backoff
from ottla.clients.consumer.dead_letter_steps import (
    Commit,
    DeadLetter,
    Handle,
    Letter,
    Policy,
    Processed,
    Send,
    Steps,
    Wait,
    Waited,
)
from ottla.clients.serializers import SerializationError
from ottla.consuming.values import ConsumerRecord
from ottla.errors import ConfigError, MessageTooLarge, NotEnoughReplicas
from ottla.types import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def record(offset: int, partition: int = 0, value: Any = b"v", headers: Any = ()) -> ConsumerRecord:
    return ConsumerRecord("orders", partition, offset, 1_700_000_000_000, 0, b"k", value, list(headers))


def size(letter: Letter) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in letter.headers)
    return len(letter.key or b"") + len(letter.value or b"") + headers


class World:
    """Carries out the steps, with a handler that fails on demand, a clock that only `Wait` moves, and a test broker."""

    def __init__(self, failures: dict[int, list[Exception]] | None = None) -> None:
        self.failures = failures or {}
        self.now = 0
        self.handled: list[tuple[int, int]] = []
        self.letters: list[Letter] = []
        self.commits: list[dict[TopicPartition, int]] = []
        self.waits: list[int] = []
        self.refuse: Exception | None = None
        self.largest: int | None = None
        self.waited: Callable[[Wait], Waited] = lambda _: Waited()
        self.stopping = False

    def run(self, policy: Policy, records: list[ConsumerRecord]) -> Processed:
        return self.drive(policy.steps(records, chance=lambda: 0.0, stopping=lambda: self.stopping))

    def drive(self, steps: Steps) -> Processed:
        try:
            step = next(steps)
            while True:
                try:
                    answer = self._do(step)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            done: Processed = end.value
            return done

    def _do(self, step: Any) -> Any:
        match step:
            case Handle(one):
                self.handled.append((one.offset, self.now))
                waiting = self.failures.get(one.offset)
                return waiting.pop(0) if waiting else None
            case Wait(ms, _):
                self.now += ms
                self.waits.append(ms)
                return self.waited(step)
            case Send(letter):
                if self.refuse is not None:
                    raise self.refuse
                if self.largest is not None and size(letter) > self.largest:
                    raise MessageTooLarge
                self.letters.append(letter)
            case Commit(offsets):
                self.commits.append(dict(offsets))
        return None


POLICY = Policy("{topic}.dead", "billing", attempts=3, backoff=Backoff(100, 150))


def failing(*offsets: int, times: int = 9) -> World:
    return World({offset: [ValueError(f"no {offset}") for _ in range(times)] for offset in offsets})


def test_records_that_work_are_handled_in_order_and_committed_at_the_end() -> None:
    world = World()
    done = world.run(POLICY, [record(5), record(7), record(2, partition=1)])
    assert [offset for offset, _ in world.handled] == [5, 7, 2]
    assert world.commits == [{P0: 8, P1: 3}]
    assert (done.handled, done.dead) == (3, 0)


def test_a_failure_that_passes_is_tried_again_with_back_off() -> None:
    world = failing(1, times=2)
    done = world.run(POLICY, [record(0), record(1), record(2)])
    assert world.handled == [(0, 0), (1, 0), (1, 100), (1, 250), (2, 250)]
    assert (done.handled, done.dead, world.letters) == (3, 0, [])


def test_after_the_last_attempt_the_record_goes_to_the_dead_letters_and_the_group_goes_on() -> None:
    world = failing(1)
    done = world.run(POLICY, [record(0), record(1, headers=[("trace", b"7")]), record(2)])
    assert [offset for offset, _ in world.handled] == [0, 1, 1, 1, 2]
    assert (done.handled, done.dead) == (2, 1)
    assert world.commits == [{P0: 1}, {P0: 3}]
    (letter,) = world.letters
    assert (letter.topic, letter.key, letter.value) == ("orders.dead", b"k", b"v")
    told = dict(letter.headers)
    traceback = told.pop("dead-letter-error-traceback") or b""
    assert b"ValueError: no 1" in traceback
    assert told == {
        "trace": b"7",
        "dead-letter-topic": b"orders",
        "dead-letter-partition": b"0",
        "dead-letter-offset": b"1",
        "dead-letter-timestamp": b"1700000000000",
        "dead-letter-group": b"billing",
        "dead-letter-attempts": b"3",
        "dead-letter-error-class": b"builtins.ValueError",
        "dead-letter-error-message": b"no 1",
    }


def test_errors_that_cannot_pass_are_not_tried_again() -> None:
    world = failing(0)
    world.run(Policy("dead", attempts=9, retry_on=(OSError,)), [record(0)])
    assert (len(world.handled), len(world.letters), world.waits) == (1, 1, [])


def test_nothing_is_committed_beyond_a_dead_letter_that_was_not_acknowledged() -> None:
    world = failing(2)
    world.refuse = NotEnoughReplicas()
    with pytest.raises(NotEnoughReplicas):
        world.run(POLICY, [record(0), record(1), record(2), record(3)])
    assert world.commits == [{P0: 2}]
    assert max(offset for offset, _ in world.handled) == 2


def test_a_lost_partition_is_left_to_its_new_owner_and_the_others_go_on() -> None:
    world = failing(1)
    world.waited = lambda _: Waited(lost=frozenset({P0}))
    world.run(POLICY, [record(0), record(1), record(2), record(5, partition=1)])
    assert [offset for offset, _ in world.handled] == [0, 1, 5]
    assert world.commits == [{P0: 1}, {P1: 6}]
    assert world.letters == []


def test_a_partition_that_is_lost_while_another_waits_is_left_too() -> None:
    world = failing(1)
    pending: list[dict[TopicPartition, int]] = []

    def lose(wait: Wait) -> Waited:
        pending.append(wait.pending)
        return Waited(lost=frozenset({P1}) if len(pending) == 1 else frozenset())

    world.waited = lose
    world.run(POLICY, [record(4, partition=1), record(1), record(5, partition=1), record(2)])
    assert [offset for offset, _ in world.handled] == [4, 1, 1, 1, 2]
    assert pending == [{P0: 1, P1: 5}, {P0: 1}]
    assert world.commits == [{P1: 5}, {P0: 3}]
    assert len(world.letters) == 1


def test_stopping_leaves_the_rest_for_the_next_start() -> None:
    world = failing(1)
    world.waited = lambda _: Waited(stopped=True)
    done = world.run(POLICY, [record(0), record(1), record(2)])
    assert (done.stopped, world.commits, world.letters) == (True, [{P0: 1}], [])
    world = World()
    world.stopping = True
    assert world.run(POLICY, [record(0)]).stopped
    assert world.handled == world.commits == []


def test_a_record_that_cannot_be_read_is_a_dead_letter_at_once() -> None:
    world = World()
    world.drive(POLICY.undecodable(record(4, value=b"\xff"), ValueError("not JSON")))
    assert [letter.value for letter in world.letters] == [b"\xff"]
    assert world.commits == [{P0: 5}]


def test_a_dead_letter_that_dies_again_tells_of_its_last_death_only() -> None:
    world = failing(0)
    world.run(POLICY, [record(0, headers=[("dead-letter-topic", b"before"), ("own", None)])])
    names = [name for name, _ in world.letters[0].headers]
    assert names.count("dead-letter-topic") == 1
    assert "own" in names


def test_a_dead_letter_can_be_read_again() -> None:
    world = failing(0)
    world.run(POLICY, [record(0, headers=[("own", b"1")])])
    headers = world.letters[0].headers
    letter = DeadLetter.of(ConsumerRecord("orders.dead", 3, 9, 0, 0, b"k", b"v", headers))
    assert (letter.topic, letter.partition, letter.offset, letter.group) == ("orders", 0, 0, "billing")
    assert (letter.attempts, letter.error_class, letter.error_message) == (3, "builtins.ValueError", "no 0")
    assert letter.headers == [("own", b"1")]
    with pytest.raises(ValueError, match="not a dead letter"):
        DeadLetter.of(record(0))


def test_long_messages_are_cut() -> None:
    world = World({0: [ValueError("x" * 50_000)]})
    world.run(Policy("dead", attempts=1), [record(0)])
    told = dict(world.letters[0].headers)
    assert len(told["dead-letter-error-message"] or b"") < 2_000
    assert len(told["dead-letter-error-traceback"] or b"") < 10_000


def letter_within(room: int, value: bytes = b"v" * 1_000, headers: Any = ()) -> DeadLetter:
    """The letter for a record with a long error, if a letter may have so many bytes more than its value."""
    world = World({0: [ValueError("x" * 500)]})
    world.largest = len(value) + room
    done = world.run(Policy("dead", "billing", attempts=1), [record(0, value=value, headers=headers), record(1)])
    assert (done.handled, done.dead, world.commits) == (1, 1, [{P0: 2}]), "the group goes on"
    (letter,) = world.letters
    return DeadLetter.of(ConsumerRecord("dead", 0, 0, 0, 0, letter.key, letter.value, letter.headers))


def test_a_letter_that_is_too_large_tells_less_of_the_error() -> None:
    whole = letter_within(5_000)
    assert (len(whole.error_message), whole.traceback != "", whole.omitted) == (500, True, ())
    without_traceback = letter_within(1_000)
    assert (len(without_traceback.error_message), without_traceback.traceback) == (500, "")
    short = letter_within(400)
    assert (len(short.error_message), short.error_class, short.group) == (100, "builtins.ValueError", "billing")
    place = letter_within(80)
    assert (place.topic, place.partition, place.offset, place.error_message) == ("orders", 0, 0, "")
    for letter in (whole, without_traceback, short, place):
        assert (letter.value, letter.key, letter.size) == (b"v" * 1_000, b"k", None)


def test_a_record_that_is_too_large_gets_a_letter_without_its_value() -> None:
    letter = letter_within(-50_000, value=b"v" * 60_000, headers=[("own", b"1")])
    assert (letter.value, letter.omitted, letter.size) == (None, ("value",), 60_000)
    assert (letter.key, letter.headers, letter.topic, letter.offset) == (b"k", [("own", b"1")], "orders", 0)
    assert (letter.traceback != "", len(letter.error_message)) == (True, 500), "now there is room for it"
    letter = letter_within(-50_000, value=b"v" * 60_000, headers=[("own", b"1" * 20_000)])
    assert (letter.key, letter.headers, letter.omitted) == (None, [], ("value", "key", "headers"))


def test_the_log_says_where_a_record_lies_that_was_too_large() -> None:
    *_, smallest = POLICY.letters(record(7, value=b"v" * 10), ValueError("no"), 3)
    assert str(smallest).startswith("orders-0 at offset 7 goes to orders.dead without its value and key and headers")
    assert "max.request.size" in str(smallest)
    first = next(POLICY.letters(record(7), ValueError("no"), 3))
    assert str(first) == "orders-0 at offset 7 goes to orders.dead (builtins.ValueError: no)"


def test_a_topic_that_takes_no_letter_at_all_stops_the_group() -> None:
    world = failing(1)
    world.largest = 10
    with pytest.raises(MessageTooLarge):
        world.run(POLICY, [record(0), record(1)])
    assert world.commits[-1] == {P0: 1}


def test_objects_need_a_serializer() -> None:
    with pytest.raises(SerializationError, match="value_serializer"):
        failing(0).run(POLICY, [record(0, value={"a": 1})])
    world = failing(0)
    world.run(Policy("dead", attempts=1, value=lambda _, value: repr(value).encode()), [record(0, value=[1])])
    assert world.letters[0].value == b"[1]"


def test_mistakes_are_reported() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        Policy("dead", attempts=0)
    with pytest.raises(ConfigError, match="read again"):
        Policy("{topic}")
    with pytest.raises(ConfigError, match="choose another one"):
        failing(0).run(Policy("orders", attempts=1), [record(0)])
