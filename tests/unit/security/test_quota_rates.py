"""Clients in virtual time: what they get through a quota, whatever their pattern is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.security.rates import Bucket

LIMIT = 1_000.0
SECONDS = 300


def run(longest: int, sizes: list[int], gaps: list[int], *, is_consumer: bool = False) -> float:
    """Return the bytes that a client gets through which pauses as it is told.

    What is too much for a consumer is not delivered, and asked for again after the pause.
    """
    bucket = Bucket(longest)
    now = sent = turn = 0
    while now < SECONDS * 1000:
        size, gap = sizes[turn % len(sizes)], gaps[turn % len(gaps)]
        bucket.take(size, rate=LIMIT, now=now)
        pause = bucket.wait(rate=LIMIT, now=now)
        if pause and is_consumer:
            bucket.take(-size, rate=LIMIT, now=now)
            now += pause
        else:
            sent += size
            turn += 1
            now += max(1, pause + gap)
    return sent


LONGEST = st.integers(0, 60_000)
SIZES = st.lists(st.integers(50, 5_000), min_size=1, max_size=5)
BREAKS = st.lists(st.integers(0, 20_000), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(LONGEST, SIZES, st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_a_busy_producer_gets_its_quota_within_ten_percent(longest: int, sizes: list[int], gaps: list[int]) -> None:
    sent = run(longest, sizes, gaps)
    # The time of the windows may be used at once, and one request may be too much.
    assert sent <= 1.1 * LIMIT * SECONDS + LIMIT * longest / 1000 + max(sizes)
    assert sent >= 0.9 * LIMIT * SECONDS


@settings(max_examples=60, deadline=None)
@given(st.integers(5_000, 60_000), SIZES)
def test_a_busy_consumer_gets_its_quota_within_ten_percent(longest: int, sizes: list[int]) -> None:
    sent = run(longest, sizes, [0], is_consumer=True)
    assert 0.9 * LIMIT * SECONDS <= sent <= 1.1 * LIMIT * SECONDS + LIMIT * longest / 1000


@settings(max_examples=100, deadline=None)
@given(LONGEST, SIZES, BREAKS)
def test_bursts_with_breaks_never_get_more_than_the_quota(longest: int, sizes: list[int], gaps: list[int]) -> None:
    assert run(longest, sizes, gaps) <= LIMIT * (SECONDS + longest / 1000) + max(sizes)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 600), min_size=1, max_size=5), st.integers(600, 1_000))
def test_a_client_below_its_quota_never_pauses(sizes: list[int], gap: int) -> None:
    bucket, now = Bucket(1_000), 0
    for turn in range(500):
        bucket.take(sizes[turn % len(sizes)], rate=LIMIT, now=now)
        assert bucket.wait(rate=LIMIT, now=now) == 0
        now += gap


def test_the_pause_is_as_long_as_the_excess_takes() -> None:
    # As in Kafka: 12,500 bytes in windows of 10 seconds, 1,000 per second are allowed.
    bucket = Bucket(10_000)
    bucket.take(12_500, rate=LIMIT, now=0)
    assert bucket.wait(rate=LIMIT, now=0) == 2_500
    assert bucket.wait(rate=LIMIT, now=500) == 2_000
    assert bucket.wait(rate=LIMIT, now=2_500) == 0


def test_a_bucket_is_full_again_after_its_time() -> None:
    bucket = Bucket(11_000)
    bucket.take(100, rate=2, now=5_000)
    assert bucket.wait(rate=2, now=5_000) == 39_000
    assert not bucket.is_full(rate=2, now=44_000)
    assert bucket.is_full(rate=2, now=55_000)


def test_a_tiny_quota_makes_a_pause_that_fits_into_a_response() -> None:
    for rate in (1e-3, 1e-300, 5e-324):
        bucket = Bucket(1_000)
        bucket.take(10**9, rate=rate, now=0)
        assert bucket.wait(rate=rate, now=0) == 2**31 - 1


def test_a_higher_quota_shortens_the_pause() -> None:
    bucket = Bucket(0)
    bucket.take(1_000, rate=100, now=0)
    assert bucket.wait(rate=100, now=0) == 10_000
    assert bucket.wait(rate=1_000, now=0) == 1_000
