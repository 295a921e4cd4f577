"""Positions: the order of requests, outdated responses, resets, truncation."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.unit.consuming.consuming_values import T0, T1

from ottla.consuming.errors import LogTruncation, NoOffsetForPartition
from ottla.consuming.positions import Need, Positions
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import OffsetOutOfRange


def make(reset: str = "earliest", *, in_group: bool = True) -> Positions:
    positions = Positions(reset, in_group=in_group)
    positions.add([T0, T1])
    return positions


def test_in_a_group_the_committed_offset_comes_first_then_the_policy() -> None:
    positions = make()
    tokens = positions.to_ask(Need.COMMITTED, now=0)
    assert set(tokens) == {T0, T1}
    assert positions.to_ask(Need.COMMITTED, now=0) == {}, "they are requested already"
    positions.committed(T0, tokens[T0], OffsetAndMetadata(5))
    positions.committed(T1, tokens[T1], None)
    assert positions.consumed() == {T0: OffsetAndMetadata(5)}
    resets = positions.to_ask(Need.RESET, now=0)
    assert set(resets) == {T1}
    positions.found(T1, resets[T1], 40, 2)
    state = positions.get(T1)
    assert state is not None
    assert (state.position, state.fetch_offset, state.epoch, state.need) == (40, 40, 2, Need.NOTHING)


def test_without_a_group_the_policy_decides_at_once() -> None:
    positions = make("latest", in_group=False)
    assert set(positions.to_ask(Need.RESET, now=0)) == {T0, T1}


def test_without_a_policy_the_user_has_to_seek() -> None:
    positions = make("none")
    tokens = positions.to_ask(Need.COMMITTED, now=0)
    for key in (T0, T1):
        positions.committed(key, tokens[key], None)
    assert "t-0, t-1" in str(positions.without_start())
    assert positions.to_ask(Need.RESET, now=10_000) == {}
    positions.seek(T0, 3)
    assert "t-0" not in str(positions.without_start())
    positions.seek_to(T1, "earliest")
    assert positions.without_start() is None


def test_an_answer_to_an_old_question_changes_nothing() -> None:
    positions = make()
    tokens = positions.to_ask(Need.COMMITTED, now=0)
    positions.seek(T0, 9)
    positions.committed(T0, tokens[T0], OffsetAndMetadata(5))
    assert positions.consumed()[T0].offset == 9
    positions.remove([T1])
    positions.add([T1])
    positions.committed(T1, tokens[T1] - 1, OffsetAndMetadata(5))
    assert T1 not in positions.consumed()


def test_a_failed_question_is_asked_again_later() -> None:
    positions = make()
    tokens = positions.to_ask(Need.COMMITTED, now=0)
    positions.try_again(tokens, 100)
    assert positions.to_ask(Need.COMMITTED, now=99) == {}
    assert set(positions.to_ask(Need.COMMITTED, now=100)) == {T0, T1}


def test_partitions_that_stay_keep_their_positions() -> None:
    positions = make()
    positions.seek(T0, 7)
    positions.assign([T0])
    assert positions.assigned == {T0}
    assert positions.consumed() == {T0: OffsetAndMetadata(7)}


def test_out_of_range_follows_the_policy() -> None:
    positions = make("latest")
    positions.seek(T0, 7)
    state = positions.get(T0)
    assert state is not None
    assert positions.range_error(T0, 7) is None
    positions.out_of_range(T0, state.token)
    assert set(positions.to_ask(Need.RESET, now=0)) == {T0}
    strict = make("none")
    strict.seek(T0, 7)
    error = strict.range_error(T0, 7)
    assert isinstance(error, OffsetOutOfRange)
    assert "t-0 has no offset 7" in str(error)


def test_a_new_leader_has_to_confirm_the_position() -> None:
    positions = make()
    positions.new_leader(T0, 4)
    positions.seek(T0, 50, 4)
    (token,) = positions.to_ask(Need.VALIDATE, now=0).values()
    assert positions.validated(T0, token, 60, 4) is None
    assert positions.to_ask(Need.VALIDATE, now=0) == {}
    positions.new_leader(T0, 4)
    assert positions.to_ask(Need.VALIDATE, now=0) == {}, "the same leader"
    positions.new_leader(T0, 5)
    (token,) = positions.to_ask(Need.VALIDATE, now=0).values()
    assert positions.validated(T0, token, 45, 4) is None
    assert positions.consumed()[T0].offset == 45, "the log was truncated, and goes on there"


def test_truncation_is_an_error_without_a_policy() -> None:
    positions = make("none")
    positions.new_leader(T0, 4)
    positions.seek(T0, 50, 4)
    (token,) = positions.to_ask(Need.VALIDATE, now=0).values()
    error = positions.validated(T0, token, 45, 4)
    assert isinstance(error, LogTruncation)
    assert "truncated to offset 45" in str(error)


def test_a_leader_that_knows_no_such_epoch_has_another_log() -> None:
    positions = make()
    positions.new_leader(T0, 4)
    positions.seek(T0, 50, 7)
    (token,) = positions.to_ask(Need.VALIDATE, now=0).values()
    assert positions.validated(T0, token, -1, -1) is None
    (token,) = positions.to_ask(Need.RESET, now=0).values()
    positions.found(T0, token, 10, 4)
    assert positions.consumed()[T0].offset == 10
    strict = make("none")
    strict.new_leader(T0, 4)
    strict.seek(T0, 50, 7)
    (token,) = strict.to_ask(Need.VALIDATE, now=0).values()
    error = strict.validated(T0, token, -1, -1)
    assert isinstance(error, LogTruncation)
    assert "its leader does not know the last epoch" in str(error)
    assert isinstance(strict.without_start(), NoOffsetForPartition)


def test_a_recreated_topic_is_read_by_the_reset_policy() -> None:
    positions = make()
    first, second = UUID(int=1), UUID(int=2)
    positions.committed(T0, positions.to_ask(Need.COMMITTED, now=0)[T0], OffsetAndMetadata(50))
    assert not positions.topic_is(T0, first)
    positions.new_leader(T0, 4)
    assert positions.topic_is(T0, second)
    assert positions.consumed()[T0].offset == 50, "nothing changes while records may be taken"
    positions.restart_recreated()
    assert T0 not in positions.consumed()
    positions.found(T0, positions.to_ask(Need.RESET, now=0)[T0], 0, 0)
    assert not positions.topic_is(T0, first), "of a broker that is behind"
    assert not positions.topic_is(T0, second)
    positions.restart_recreated()
    assert positions.consumed()[T0].offset == 0


def test_a_seek_is_meant_for_the_topic_as_it_is() -> None:
    positions = make()
    positions.topic_is(T0, UUID(int=1))
    assert positions.topic_is(T0, UUID(int=2))
    positions.seek(T0, 7)
    positions.restart_recreated()
    assert positions.consumed()[T0].offset == 7
    assert not positions.topic_is(T0, UUID(int=2))


def test_what_is_buffered_is_not_checked_before_it_is_handed_out() -> None:
    positions = make()
    positions.new_leader(T0, 4)
    positions.seek(T0, 50)
    state = positions.get(T0)
    assert state is not None
    state.epoch, state.fetch_offset = 4, 80
    positions.new_leader(T0, 5)
    assert positions.to_ask(Need.VALIDATE, now=0) == {}


def test_lag() -> None:
    positions = make()
    positions.seek(T0, 50)
    state = positions.get(T0)
    assert state is not None
    assert positions.lag(T0, read_committed=False) is None
    state.high_watermark, state.last_stable_offset = 70, 60
    assert positions.lag(T0, read_committed=False) == 20
    assert positions.lag(T0, read_committed=True) == 10


def test_offsets_are_checked() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        make().seek(T0, -1)
