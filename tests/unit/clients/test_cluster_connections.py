"""When a client retries addresses, which broker it uses, and which connections it closes: in virtual time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.cluster.connections import (
    JITTER,
    Backoff,
    ConnectionStates,
    State,
    idle,
    least_loaded,
    next_idle_check_ms,
)

RECONNECT = Backoff(50, 1_000)
SETUP = Backoff(10_000, 30_000)


def states() -> ConnectionStates[str]:
    return ConnectionStates(RECONNECT, SETUP)


def fail(links: ConnectionStates[str], address: str, *, now: int, chance: float = 0.0) -> None:
    links.connecting(address, now=now, chance=chance)
    links.lost(address, now=now, chance=chance, connecting=True)


# Back-off.


def test_waits_double_up_to_the_longest() -> None:
    links, now, waits = states(), 0, []
    for _ in range(8):
        fail(links, "a", now=now)
        waits.append(links.wait_ms("a", now=now))
        now += waits[-1]
        assert links.wait_ms("a", now=now) == 0
    assert waits == [50, 100, 200, 400, 800, 1_000, 1_000, 1_000]
    assert links.failures("a") == 8


def test_a_connection_that_was_made_starts_again_with_the_shortest_wait() -> None:
    links = states()
    for _ in range(5):
        fail(links, "a", now=0)
    links.connecting("a", now=2_000, chance=0.0)
    links.ready("a")
    assert (links.state("a"), links.wait_ms("a", now=2_000)) == (State.READY, 0)
    links.lost("a", now=3_000, chance=0.0)
    assert links.wait_ms("a", now=3_000) == 50
    assert links.wait_ms("a", now=3_040) == 10


def test_addresses_do_not_wait_for_each_other() -> None:
    links = states()
    fail(links, "a", now=0)
    assert links.wait_ms("b", now=0) == 0


def test_what_we_closed_ourselves_is_opened_at_once() -> None:
    links = states()
    links.connecting("a", now=0, chance=0.0)
    links.ready("a")
    links.closed("a")
    assert (links.state("a"), links.wait_ms("a", now=0)) == (State.DISCONNECTED, 0)


@given(st.integers(1, 100), st.floats(-1, 1), st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_jitter_stays_in_its_bounds(failures: int, chance: float, first: int, longest: int) -> None:
    wait = Backoff(first, longest).after(failures, chance=chance)
    plain = Backoff(first, longest).after(failures, chance=0.0)
    assert plain <= max(first, longest)
    assert plain * (1 - JITTER) - 1 <= wait <= plain * (1 + JITTER) + 1


def test_an_hour_of_a_broker_that_is_away() -> None:
    links, now, attempts = states(), 0, 0
    dice = random.Random(7)
    while now < 3_600_000:
        fail(links, "a", now=now, chance=dice.uniform(-1, 1))
        attempts += 1
        now += max(1, links.wait_ms("a", now=now))
    assert 3_500 < attempts < 3_700


def test_slow_connections_get_more_time_after_each_failure() -> None:
    links, allowed = states(), []
    for _ in range(4):
        allowed.append(links.connecting("a", now=0, chance=0.0))
        links.lost("a", now=0, chance=0.0, connecting=True)
    assert allowed == [10_000, 20_000, 30_000, 30_000]
    links.ready("a")
    assert links.connecting("a", now=0, chance=0.0) == 10_000


def test_a_lost_connection_is_no_slow_one() -> None:
    links = states()
    links.ready("a")
    links.lost("a", now=0, chance=0.0)
    assert links.connecting("a", now=100, chance=0.0) == 10_000


def test_addresses_that_are_gone_are_forgotten_unless_they_are_in_use() -> None:
    links = states()
    fail(links, "gone", now=0)
    fail(links, "known", now=0)
    links.ready("open")
    links.forget(["known"])
    assert [links.failures(one) for one in ("gone", "known")] == [0, 1]
    assert links.state("open") is State.READY


# Choosing a broker.


def choose(
    links: ConnectionStates[str], in_flight: dict[str, int] | None = None, *, now: int = 0, start: int = 0
) -> str:
    chosen = least_loaded(["a", "b", "c"], links, in_flight or {}, now=now, start=start)
    return chosen or "nobody"


def test_the_ready_one_with_the_fewest_requests_is_asked() -> None:
    links = states()
    for address in ("a", "b", "c"):
        links.ready(address)
    assert choose(links, {"a": 3, "b": 1, "c": 2}) == "b"
    assert choose(links, {"a": 3, "b": 1}) == "c"


@pytest.mark.parametrize(("start", "first"), [(0, "a"), (1, "b"), (2, "c"), (65_535, "a")])
def test_equals_are_taken_by_chance(start: int, first: str) -> None:
    assert choose(states(), start=start) == first


def test_a_connection_in_the_making_is_waited_for_before_another_is_made() -> None:
    links = states()
    links.connecting("b", now=0, chance=0.0)
    assert choose(links) == "b"
    links.ready("c")
    assert choose(links, {"c": 99}) == "c"


def test_the_least_recently_tried_address_comes_first_and_none_that_backs_off() -> None:
    links = states()
    fail(links, "a", now=10)
    fail(links, "b", now=20)
    assert choose(links, now=20) == "c"
    fail(links, "c", now=30)
    assert choose(links, now=40) == "nobody"
    assert choose(links, now=500) == "a"
    assert choose(links, now=500, start=2) == "a"


def test_without_addresses_there_is_no_choice() -> None:
    assert least_loaded([], states(), {}, now=0, start=3) is None


# Idle connections.


def test_idle_connections_are_closed_the_least_recently_used_first() -> None:
    used = {"a": 700, "b": 100, "c": 400, "d": 990}
    assert idle(used, max_idle_ms=300, now=1_000) == ["b", "c", "a"]
    assert idle(used, max_idle_ms=1_000, now=1_000) == []


def test_the_next_look_is_when_the_oldest_may_be_idle() -> None:
    assert next_idle_check_ms([700, 100], max_idle_ms=1_000, now=1_000) == 100
    assert next_idle_check_ms([0], max_idle_ms=10, now=1_000) == 1
    assert next_idle_check_ms([], max_idle_ms=10, now=1_000) is None
