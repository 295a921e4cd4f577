"""The checker finds every kind of damage, and nothing in a history without any."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.crash.ledger import UNKNOWN_OFFSET

from ottla.types import TopicPartition

from .checker import Acked, Commit, History, Outcome, Problem, Read, Sent, check, summary

T = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
X = TopicPartition("x", 0)


def value(number: int) -> bytes:
    return b"p|%d|" % number


def history() -> History:
    """Three replicas of a partition with ten records, read by two consumers, and two transactions."""
    made = History(transactional={"x"})
    for number in range(10):
        made.sent.append(Sent("p", T, value(number)))
        made.acked.append(Acked(T, number, value(number)))
        made.reads["early", T] += [Read(number, value(number))] if number < 6 else []
        made.reads["late", T].append(Read(number, value(number)))
        for broker in (1, 2, 3):
            made.replicas[broker, T].append(Read(number, value(number)))
    # Offsets 2 and 5 of the second topic are markers; the second transaction is aborted.
    for name, offsets in (("one", (0, 1)), ("two", (3, 4))):
        for offset in offsets:
            made.sent.append(Sent("x", X, b"x|%d|" % offset, name))
            made.replicas[1, X].append(Read(offset, b"x|%d|" % offset))
            if name == "one":
                made.reads["late", X].append(Read(offset, b"x|%d|" % offset))
    made.transactions = {"one": Outcome.COMMITTED, "two": Outcome.ABORTED}
    made.commits["g"] = [Commit(1, True), Commit(2, False), Commit(3, True), Commit(4, False)]
    made.fetched = [("g", 1, 1), ("g", 2, 1), ("g", 2, 2), ("g", 3, 3), ("g", 4, 4)]
    return made


def test_a_good_history_has_no_problems() -> None:
    assert check(history()) == []
    assert check(History()) == []


def test_an_acknowledgement_need_not_tell_the_offset() -> None:
    made = history()
    made.acked[3] = Acked(T, UNKNOWN_OFFSET, value(3))
    assert check(made) == []
    del made.replicas[2, T][3]
    assert {problem.kind for problem in check(made)} == {"lost"}


def drop_on_one_replica(made: History) -> None:
    del made.replicas[2, T][9]


def drop_everywhere(made: History) -> None:
    for broker in (1, 2, 3):
        del made.replicas[broker, T][9]


def other_value_on_a_replica(made: History) -> None:
    made.sent.append(Sent("q", T, b"q|0|"))
    made.replicas[3, T][5] = Read(5, b"q|0|")


def other_value_for_an_early_reader(made: History) -> None:
    made.sent.append(Sent("q", T, b"q|0|"))
    made.reads["early", T][5] = Read(5, b"q|0|")


def read_but_not_kept(made: History) -> None:
    made.sent.append(Sent("p", T, value(10)))
    made.reads["early", T] = [*made.reads["late", T], Read(10, value(10))]


def never_sent(made: History) -> None:
    for broker in (1, 2, 3):
        made.replicas[broker, T].append(Read(10, b"z|0|"))


def in_another_partition(made: History) -> None:
    made.sent.append(Sent("p", OTHER, value(10)))
    for broker in (1, 2, 3):
        made.replicas[broker, T].append(Read(10, value(10)))


def written_twice(made: History) -> None:
    for broker in (1, 2, 3):
        made.replicas[broker, T].append(Read(10, value(9)))


def out_of_order(made: History) -> None:
    made.sent += [Sent("p", T, value(10)), Sent("p", T, value(11))]
    for broker in (1, 2, 3):
        made.replicas[broker, T] += [Read(10, value(11)), Read(11, value(10))]


def half_of_a_commit(made: History) -> None:
    del made.reads["late", X][0]


def part_of_an_abort(made: History) -> None:
    made.reads["late", X].append(Read(3, b"x|3|"))


def half_of_an_unknown_one(made: History) -> None:
    made.transactions.pop("two")
    made.reads["late", X].append(Read(3, b"x|3|"))


def a_gap_for_a_reader(made: History) -> None:
    del made.reads["early", T][3]


def a_step_back_for_a_reader(made: History) -> None:
    made.reads["early", T].append(Read(2, value(2)))


def a_commit_is_lost(made: History) -> None:
    made.fetched.append(("g", 4, 2))


def all_commits_are_lost(made: History) -> None:
    made.fetched.append(("g", 4, -1))


@pytest.mark.parametrize(
    ("damage", "kind", "text"),
    [
        (drop_on_one_replica, "lost", "p|9| at t-0 offset 9 is not on broker 2"),
        (drop_everywhere, "lost", "is not on broker 1"),
        (drop_everywhere, "vanished", "late read p|9| at t-0 offset 9"),
        (other_value_on_a_replica, "lost", "p|5| at t-0 offset 5 is not on broker 3"),
        (other_value_on_a_replica, "changed", "t-0 offset 5 is p|5| for its producer and q|0| for broker 3"),
        (other_value_for_an_early_reader, "changed", "q|0| for early"),
        (read_but_not_kept, "vanished", "early read p|10| at t-0 offset 10"),
        (never_sent, "invented", "z|0| at t-0 offset 10 (broker 1) was never sent"),
        (in_another_partition, "invented", "p|10| is in t-0, but was sent to t-1"),
        (written_twice, "twice", "p|9| is at t-0 offsets 9 and 10"),
        (out_of_order, "order", "in t-0 p|10| of p comes after p|11|"),
        (half_of_a_commit, "atomic", "late has 1 of 2 records of one, which is committed"),
        (part_of_an_abort, "atomic", "late has 1 records of two, which is aborted"),
        (half_of_an_unknown_one, "atomic", "late has 1 of 2 records of two"),
        (a_gap_for_a_reader, "skipped", "early did not get t-0 offsets [3]"),
        (a_step_back_for_a_reader, "skipped", "early got t-0 offset 2 again or too late"),
        (a_commit_is_lost, "group", "g has committed offset 2, although 3 was acknowledged last"),
        (all_commits_are_lost, "group", "g has committed offset -1, although 3 was acknowledged last"),
    ],
)
def test_damage_is_found(damage: Callable[[History], None], kind: str, text: str) -> None:
    made = history()
    damage(made)
    found = [str(each) for each in check(made) if each.kind == kind]
    assert any(text in each for each in found), found


def test_a_producer_without_idempotence_may_repeat_and_swap_records() -> None:
    made = history()
    out_of_order(made)
    for broker in (1, 2, 3):
        made.replicas[broker, T].append(Read(12, value(9)))
    made.at_least_once = {"p"}
    assert check(made) == []


def test_a_reader_of_transactions_does_not_see_markers_and_aborted_records() -> None:
    made = history()
    assert [read.offset for read in made.reads["late", X]] == [0, 1]
    assert check(made) == []


def test_the_summary_tells_a_few_of_each_kind() -> None:
    problems = [Problem("lost", str(number)) for number in range(8)] + [Problem("order", "x")]
    assert summary(problems) == ["lost: 0", "lost: 1", "lost: 2", "lost: 3", "lost: 4", "lost: and 3 more", "order: x"]
