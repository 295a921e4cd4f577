"""Memory is granted in the order of requests, and buffers are reused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.producing.buffer_pool import BufferPool, Ticket


def test_what_fits_is_granted_at_once() -> None:
    pool = BufferPool(100, 10)
    assert pool.reserve(60, now=0).granted
    assert pool.available == 40


def test_later_tickets_wait_behind_earlier_ones() -> None:
    """A small record must not overtake a large one forever."""
    pool = BufferPool(100, 10)
    pool.reserve(80, now=0)
    large = pool.reserve(50, now=1)
    small = pool.reserve(5, now=2)
    assert (large.granted, small.granted, pool.waiting) == (False, False, 2)
    assert pool.release(80) == [large, small]
    assert pool.waiting == 0
    assert pool.available == 45


def test_memory_comes_in_pieces_until_the_first_has_enough() -> None:
    pool = BufferPool(100, 10)
    for _ in range(5):
        pool.reserve(20, now=0)
    waiting = pool.reserve(50, now=1)
    assert pool.release(20) == []
    assert pool.release(20) == []
    assert pool.release(20) == [waiting]


def test_a_ticket_that_gives_up_makes_room_for_the_next() -> None:
    pool = BufferPool(100, 10)
    pool.reserve(90, now=0)
    impatient = pool.reserve(50, now=1)
    next_one = pool.reserve(10, now=2)
    assert pool.leave(impatient) == [next_one]
    assert pool.leave(next_one) == []
    assert pool.available == 10


def test_a_granted_ticket_can_be_given_back() -> None:
    pool = BufferPool(100, 10)
    ticket = pool.reserve(100, now=0)
    waiting = pool.reserve(30, now=1)
    assert pool.leave(ticket) == [waiting]
    assert not ticket.granted
    assert pool.available == 70


def test_buffers_of_batch_size_are_used_again_others_are_not() -> None:
    pool = BufferPool(100, 10)
    pool.reserve(10, now=0)
    buffer = pool.buffer(10)
    pool.release(10, buffer)
    assert pool.buffer(10) is buffer
    pool.reserve(30, now=0)
    large = pool.buffer(30)
    pool.release(30, large)
    assert pool.buffer(30) is not large


def test_no_more_buffers_are_kept_than_there_is_memory() -> None:
    pool = BufferPool(20, 10)
    for _ in range(5):
        pool.reserve(10, now=0)
        pool.release(10, bytearray(10))
    assert len({id(pool.buffer(10)) for _ in range(2)}) == 2
    assert pool._free == []


def test_more_than_all_memory_is_an_error() -> None:
    with pytest.raises(ValueError, match="more than the total of 100"):
        BufferPool(100, 10).reserve(101, now=0)


def test_free_memory_can_be_taken_while_no_ticket_waits() -> None:
    pool = BufferPool(100, 10)
    pool.take(60)
    assert pool.available == 40
    with pytest.raises(ValueError, match="not free"):
        pool.take(50)
    pool.reserve(50, now=0)
    with pytest.raises(ValueError, match="not free"):
        pool.take(10)


@given(st.lists(st.tuples(st.sampled_from(["ask", "give", "leave"]), st.integers(1, 60)), max_size=80))
def test_memory_is_never_given_twice_and_always_in_order(steps: list[tuple[str, int]]) -> None:
    pool = BufferPool(100, 16)
    asked: list[Ticket] = []
    held: list[Ticket] = []
    granted: list[Ticket] = []
    for what, size in steps:
        new: list[Ticket] = []
        if what == "ask":
            ticket = pool.reserve(size, now=0)
            asked.append(ticket)
            new = [ticket] if ticket.granted else []
        elif what == "give" and held:
            new = pool.release(held.pop(size % len(held)).size)
        elif what == "leave" and (waiting := [each for each in asked if not each.granted and each not in granted]):
            gone = waiting[size % len(waiting)]
            asked.remove(gone)
            new = pool.leave(gone)
        held += new
        granted += new
        assert sum(each.size for each in held) + pool.available == pool.total
        assert pool.available >= 0
    order = [asked.index(each) for each in granted if each in asked]
    assert order == sorted(order)
