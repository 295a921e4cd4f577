"""Committed offsets in the libraries: resume, auto commit, seek, reset."""

from __future__ import annotations

import pytest

from ..clients.base import Admin
from ..waiting import until
from .conftest import MakeScenario
from .drivers import ALL
from .members import Member
from .scenario import Scenario

RECORDS = 60


def values(member: Member) -> list[int]:
    return sorted(read.value for read in member.journal.reads)


def has_read(member: Member, count: int) -> None:
    until(lambda: len(member.journal.reads) >= count, f"{count} records are read")


@pytest.fixture
def filled(make_scenario: MakeScenario) -> Scenario:
    """Create a topic with three partitions and 20 records in each."""
    scenario = make_scenario(3)
    scenario.produce(RECORDS)
    return scenario


@pytest.mark.parametrize("commit", ["handover", "auto"])
@pytest.mark.parametrize("kind", ALL)
def test_the_next_member_goes_on(filled: Scenario, kind: str, commit: str) -> None:
    first = filled.join(kind, commit=commit)
    has_read(first, RECORDS)
    filled.leave(first)
    filled.produce(RECORDS, start=RECORDS)
    second = filled.join(kind, commit=commit)
    has_read(second, RECORDS)
    assert values(first) == list(range(RECORDS))
    assert values(second) == list(range(RECORDS, 2 * RECORDS))


@pytest.mark.parametrize("kind", ALL)
def test_auto_commit_needs_no_handover(filled: Scenario, kind: str) -> None:
    """Offsets are committed while the member continues to read."""
    member = filled.join(kind, commit="auto")
    has_read(member, RECORDS)
    until(lambda: filled.committed() == dict.fromkeys(filled.partitions, RECORDS // 3), "everything is committed")


@pytest.mark.parametrize("kind", ALL)
def test_without_a_commit_everything_is_read_again(filled: Scenario, kind: str) -> None:
    for _ in range(2):
        member = filled.join(kind, commit="never")
        has_read(member, RECORDS)
        filled.leave(member)
        assert values(member) == list(range(RECORDS))


@pytest.mark.parametrize("kind", ALL)
def test_offsets_of_ones_own_choice(filled: Scenario, kind: str) -> None:
    """Offsets may go back, and have metadata."""
    member = filled.join(kind, commit="never")
    has_read(member, RECORDS)
    first, second, third = sorted(filled.partitions)
    member.call(lambda driver: driver.commit({first: (15, "later"), second: (0, "")}))
    member.call(lambda driver: driver.commit({first: (5, "earlier")}))
    assert member.call(lambda driver: driver.committed(first)) == 5
    assert member.call(lambda driver: driver.committed(third)) is None
    assert filled.committed() == {first: 5, second: 0}
    filled.leave(member)
    again = filled.join(kind, commit="never")
    has_read(again, RECORDS - 5)
    assert {(read.partition, read.offset) for read in again.journal.reads} == {
        (partition, offset) for partition in range(3) for offset in range(20) if (partition, offset) >= (0, 5)
    }


@pytest.mark.parametrize("kind", ALL)
def test_a_member_seeks(filled: Scenario, kind: str) -> None:
    member = filled.join(kind, commit="each")
    has_read(member, RECORDS)
    first = min(filled.partitions)
    member.call(lambda driver: driver.seek(first, 12))
    has_read(member, RECORDS + 8)
    assert [read.offset for read in member.journal.reads[RECORDS:]] == list(range(12, 20))
    until(lambda: filled.committed()[first] == 20, "the new position is committed")


@pytest.mark.parametrize("kind", ALL)
def test_a_new_group_that_wants_only_what_is_new(filled: Scenario, kind: str) -> None:
    member = filled.join(kind, offset_reset="latest", commit="each")
    filled.settle()
    number = RECORDS

    def is_reading() -> bool:
        nonlocal number
        filled.produce(3, start=number)
        number += 3
        return {read.partition for read in member.journal.reads} == {0, 1, 2}

    until(is_reading, "something new is read from every partition")
    assert min(values(member)) >= RECORDS


@pytest.mark.parametrize("kind", ALL)
def test_a_new_group_that_wants_no_reset(filled: Scenario, kind: str) -> None:
    member = filled.join(kind, offset_reset="none", commit="never")
    until(lambda: member.journal.errors, "the member is told that there is no offset")
    assert values(member) == []
    filled.forget(member)


@pytest.mark.parametrize("kind", ALL)
def test_a_committed_offset_whose_records_are_gone(filled: Scenario, setup_admin: Admin, kind: str) -> None:
    first, *others = sorted(filled.partitions)
    member = filled.join(kind, commit="never")
    filled.settle()
    member.call(lambda driver: driver.commit({first: (2, ""), **dict.fromkeys(others, (20, ""))}))
    filled.leave(member)
    setup_admin.delete_records({first: 10})
    again = filled.join(kind, commit="never")
    has_read(again, 10)
    assert [(read.partition, read.offset) for read in again.journal.reads] == [(0, offset) for offset in range(10, 20)]
