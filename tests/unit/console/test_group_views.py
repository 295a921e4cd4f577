"""What the pages of groups compute: owners over time, lag over time, lists."""

from __future__ import annotations

from xml.etree import ElementTree

from ottla.clients.admin.groups import CLASSIC, GroupDescription, GroupMember, ListedGroup
from ottla.clients.admin.offsets_topic import GroupHistory
from ottla.clients.cluster.metadata import Node
from ottla.console.views.groups import group_rows, member_rows, partition_ranges
from ottla.console.views.lag import LagHistory, LogTimes, lag_charts, lag_over_time, log_times
from ottla.console.views.rebalances import (
    cause_of,
    chart_start,
    diagnosis_of,
    names_of,
    ownership,
    ownership_chart,
    rebalances_of,
)
from ottla.coordinator import history as h
from ottla.coordinator import records as r
from ottla.groups.log_ends import FirstRecord
from ottla.groups.offsets import OffsetRow
from ottla.monitoring.derived import Derived
from ottla.monitoring.watch import Row
from ottla.types import TopicPartition

NOW = 1_700_000_000_000
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def rebalance(
    number: int, at: int, *moves: tuple[int, str | None, str | None], moved: int | None = None
) -> r.HistoryValue:
    return r.HistoryValue(
        number=number,
        generation=number + 1,
        outcome=h.STABLE,
        protocol="range",
        started_at=at,
        joined_at=at + 200,
        ended_at=at + 1_000,
        members=2,
        leader="a",
        triggers=(r.Trigger(h.MEMBER_JOINED, at, r.Who("b-1", None, "b", "/10.0.0.2")),),
        triggers_left_out=0,
        late=(),
        partitions_kept=0,
        partitions_moved=len(moves) if moved is None else moved,
        moves=tuple(r.PartitionMove("orders", *one) for one in moves),
    )


def member(name: str, *keys: TopicPartition) -> GroupMember:
    return GroupMember(name, None, name.partition("-")[0], "/10.0.0.1", assignment=keys)


def described(*members: GroupMember) -> GroupDescription:
    return GroupDescription("billing", CLASSIC, "Stable", "consumer", "range", Node(1, "h", 1), members)


def test_owners_follow_from_todays_assignment_and_the_moves_back_in_time() -> None:
    history = GroupHistory((rebalance(0, 100_000, (1, "a-1", "b-1")), rebalance(1, 200_000, (1, "b-1", None))), None, 2)
    found = ownership(rebalances_of(history), [member("a-1", P0)], first=50_000, last=300_000)
    assert found.rows == {
        P0: [(50_000, 300_000, "a-1")],
        P1: [(50_000, 101_000, "a-1"), (101_000, 201_000, "b-1"), (201_000, 300_000, None)],
    }
    later = ownership(rebalances_of(history), [member("a-1", P0)], first=250_000, last=300_000)
    assert later.rows == {P0: [(250_000, 300_000, "a-1")], P1: [(250_000, 300_000, None)]}


def test_many_partitions_of_a_member_take_little_room() -> None:
    keys = [TopicPartition("wide", number) for number in (*range(400), 402, 404)]
    assert partition_ranges([*keys, P1, P0]) == "orders:0,1; wide:0-399,402,404"


def test_the_chart_of_a_young_group_begins_with_the_group() -> None:
    young = rebalances_of(GroupHistory((rebalance(0, 200_000, (1, None, "a-1")),), None, 1))
    assert chart_start(young, first=0, last=300_000) == 195_000
    assert chart_start(young, first=250_000, last=300_000) == 250_000
    old = rebalances_of(GroupHistory((rebalance(7, 200_000, (1, "b-1", "a-1")),), None, 1))
    assert chart_start(old, first=0, last=300_000) == 0
    assert chart_start((), first=0, last=300_000) == 0


def test_a_rebalance_with_more_moves_than_are_recorded_makes_earlier_owners_uncertain() -> None:
    history = GroupHistory((rebalance(0, 100_000, (1, "a-1", "b-1"), moved=500),), None, 1)
    found = ownership(rebalances_of(history), [member("b-1", P1)], first=0, last=300_000)
    assert found.doubtful_before == 101_000
    assert found.unknown_before is None


def test_owners_before_a_rebalance_of_which_nothing_is_known_are_left_out() -> None:
    """Apache Kafka's records of a consumer group have its epochs, but not what moved."""
    derived = (Derived(100_000, 1, 0, 1), Derived(200_000, 2, 0, 2))
    rebalances = rebalances_of(GroupHistory((), None, 2, derived))
    found = ownership(rebalances, [member("a-1", P0), member("b-1", P1)], first=50_000, last=300_000)
    assert found.rows == {P0: [(200_000, 300_000, "a-1")], P1: [(200_000, 300_000, "b-1")]}
    assert found.unknown_before == 200_000


def test_the_chart_is_xml_with_a_link_for_each_rebalance_and_one_color_for_a_client_that_comes_back() -> None:
    history = GroupHistory(
        (rebalance(0, NOW, (0, None, "b-1")), rebalance(1, NOW + 60_000, (0, "b-1", "b-2"), (1, None, "<x>"))), None, 2
    )
    group = described(member("b-2", P0), member("<x>", P1))
    names = names_of(group, history)
    rebalances = rebalances_of(history)
    found = ownership(rebalances, group.members, first=NOW, last=NOW + 120_000)
    svg = ownership_chart(found, rebalances, names, {0: "/r/0?a=1&b=2", 1: "/r/1"}, group="<billing>")
    root = ElementTree.fromstring(svg)
    space = {"s": "http://www.w3.org/2000/svg"}
    assert [one.get("href") for one in root.findall("s:a", space)] == ["/r/0?a=1&b=2", "/r/1"]
    bands = [one.get("class") for one in root.findall("s:rect", space) if "band" in str(one.get("class"))]
    assert bands == ["band nobody", "band l1", "band l1", "band nobody", "band l0"]


def test_what_apache_kafka_records_is_marked_as_derived() -> None:
    who = r.Who("c-1", None, "c", "/10.0.0.3")
    moves = (r.PartitionMove("orders", 0, None, "c-1"),)
    derived = (Derived(NOW, 1, 0, 1, joined=(who,), partitions_moved=1, partitions_kept=0, moves=moves),)
    history = GroupHistory((), None, 1, derived)
    (one,) = rebalances_of(history)
    assert one.is_derived
    assert not one.phases
    assert cause_of(one, names_of(None, history)) == "member joined: c-c-1"
    assert diagnosis_of(history, now=NOW + 1, period=3_600_000).sentence == (
        "Rebalanced once in the last hour because c on 10.0.0.3 joined."
    )


def log(*ends: tuple[int, int]) -> LogTimes:
    """A log that had these ends at these times."""
    return LogTimes(ends, [(end, at) for at, end in ends])


def test_lag_is_what_was_written_and_not_committed_at_a_time() -> None:
    commits = [(5_000, 50), (20_000, 150), (30_000, 200)]
    ends = log((0, 0), (10_000, 100), (20_000, 200), (30_000, 200))
    found = lag_over_time([0, 10_000, 20_000, 30_000], commits, ends)
    assert [one.records for one in found] == [None, 50, 50, 0]
    assert [one.seconds for one in found] == [None, 5.0, 5.0, 0.0], "the record at 150 was written at 15 s"


def test_lag_before_the_first_sample_is_unknown_in_seconds() -> None:
    found = lag_over_time([50_000], [(1_000, 3)], log((40_000, 100), (50_000, 200)))
    assert (found[0].records, found[0].seconds) == (197, None)


def test_a_burst_between_two_samples_is_as_old_as_its_first_record() -> None:
    """The first of 267 records was written 8 s before the second sample."""
    answers = {0: FirstRecord(0, 52_000), 60_000: FirstRecord(-1, -1), 120_000: FirstRecord(-1, -1)}
    known = log_times([0, 60_000, 120_000], answers, end=267)
    found = lag_over_time([60_000, 120_000], [(55_000, 0)], known)
    assert [(one.records, one.seconds) for one in found] == [(267, 8.0), (267, 68.0)]
    (later,) = lag_over_time([120_000], [(55_000, 200)], known)
    assert later.seconds is not None
    assert 60 <= later.seconds <= 68


def test_a_log_only_grows_also_if_timestamps_go_back() -> None:
    answers = {1: FirstRecord(5, 7), 2: FirstRecord(3, 2), 4: FirstRecord(-1, -1)}
    assert log_times([1, 2, 3, 4], answers, end=9).ends == [(1, 5), (2, 5), (4, 9)]


def test_lag_charts_name_the_worst_partitions() -> None:
    ends = log((NOW, 0), (NOW + 10_000, 100))
    keys = [TopicPartition("orders", number) for number in range(20)]
    lags = {key: lag_over_time([NOW, NOW + 10_000], [(NOW, 0), (NOW + 9_000, 5 * key.partition)], ends) for key in keys}
    history = LagHistory(lags)
    assert history.worst() == keys[:7]
    assert history.records()[-1] == (NOW + 10_000, sum(100 - 5 * number for number in range(20)))
    for svg in lag_charts("billing", history):
        assert len(ElementTree.fromstring(svg).findall(".//{http://www.w3.org/2000/svg}path[@class]")) > 8


def row(lag: int, seconds: float | None) -> Row:
    return Row(0, lag, seconds, None, 0, 0, None)


def test_groups_are_searched_filtered_and_sorted() -> None:
    listed = [
        ListedGroup("a-slow", "consumer", "Stable", CLASSIC),
        ListedGroup("b-behind", "consumer", "Empty", CLASSIC),
        ListedGroup("c-new", "consumer", None, None),
    ]
    rows = {("a-slow", P0): row(5, 900.0), ("b-behind", P0): row(100, 1.0), ("b-behind", P1): row(1, None)}
    assert [one.name for one in group_rows(listed, rows)] == ["b-behind", "a-slow", "c-new"]
    assert [one.name for one in group_rows(listed, rows, sort="seconds")] == ["a-slow", "b-behind", "c-new"]
    assert [one.name for one in group_rows(listed, rows, search="A-S")] == ["a-slow"]
    assert [one.name for one in group_rows(listed, rows, state="Empty")] == ["b-behind"]
    behind, _, new = group_rows(listed, rows)
    assert (behind.lag, behind.seconds) == (101, None), "the seconds of one partition are unknown"
    assert (new.lag, new.kind) == (None, "idle")


def test_the_lag_of_a_member_is_unknown_if_it_has_not_committed_everything() -> None:
    group = described(member("a-1", P0, P1), member("b-1"))
    offsets = [OffsetRow(P0, None, 10, None)]
    first, second = member_rows(group, offsets, {"a-1": "a"})
    assert (first.name, first.lag, first.assignment) == ("a", None, "orders:0,1")
    assert (second.name, second.lag) == ("b-1", 0)
