"""What the overview and the topic pages compute."""

from __future__ import annotations

from ottla.clients.admin.values import ConfigValue
from ottla.clients.cluster.metadata import Metadata, Node, PartitionInfo, TopicInfo
from ottla.config.describe import ConfigSource
from ottla.console.collector import Snapshot
from ottla.console.rates import Rates
from ottla.console.reading import no_leaders, with_leaders
from ottla.console.render import duration, rate
from ottla.console.views.overview import broker_rows, health, lagging_groups
from ottla.console.views.topics import config_rows, partition_rows, topic_row, topic_rows
from ottla.monitoring.watch import Row
from ottla.types import TopicPartition

ORDERS = TopicInfo(
    "orders",
    None,
    False,
    {
        0: PartitionInfo(0, leader=1, leader_epoch=3, replicas=(1, 2), isr=(1, 2)),
        1: PartitionInfo(1, leader=1, leader_epoch=3, replicas=(1, 2), isr=(1,)),
        2: PartitionInfo(2, leader=-1, leader_epoch=3, replicas=(2,), isr=(2,)),
    },
)
INTERNAL = TopicInfo("__offsets", None, True, {0: PartitionInfo(0, 1, 0, (1,), (1,))})
METADATA = Metadata("id", 1, {1: Node(1, "one", 9092)}, {"orders": ORDERS, "__offsets": INTERNAL})
KEYS = [TopicPartition("orders", number) for number in range(3)]


def _row(lag: int, seconds: float | None, *, lost: int = 0, waits_since: int | None = None) -> Row:
    return Row(0, lag, seconds, None, lost, 0, waits_since)


def test_partitions_without_a_leader_or_with_replicas_behind_are_found() -> None:
    found = health(METADATA)
    assert (found.topics, found.partitions) == (2, 4)
    assert found.offline == (KEYS[2],)
    assert found.under_replicated == (KEYS[1],)


def test_the_records_of_other_partitions_can_be_read_while_one_has_no_leader() -> None:
    assert with_leaders(METADATA, "orders", range(3)) == ([0, 1], [2])
    assert no_leaders([2]) == "partition 2 has no leader now: check that its brokers run"
    assert no_leaders([2, 5, 6, 7]) == "partitions 2,5-7 have no leader now: check that their brokers run"


def test_a_broker_that_is_away_is_still_shown() -> None:
    one, two = broker_rows(METADATA, 1)
    assert (one.node.id, one.is_controller, one.leads, one.replicas, one.in_sync) == (1, True, 3, 3, 3)
    assert (two.node.id, two.node.is_fenced, two.leads, two.replicas) == (2, True, 0, 3)


def test_the_group_that_is_furthest_behind_comes_first() -> None:
    rows = {
        ("slow", KEYS[0]): _row(5, 100.0, waits_since=1000),
        ("slow", KEYS[1]): _row(7, 20.0),
        ("new", KEYS[0]): _row(9, None),
        ("lost", KEYS[0]): _row(0, 0.0, lost=3),
        ("done", KEYS[0]): _row(0, 0.0),
    }
    slow, new, lost = lagging_groups(rows, now=61_000, since={group: 0 for group, _ in rows})
    assert (slow.group, slow.records, slow.seconds, slow.stalled, slow.partitions) == ("slow", 12, 100.0, 60.0, 2)
    assert (new.group, new.seconds) == ("new", None)
    assert (lost.group, lost.lost) == ("lost", 3)


def test_a_group_reads_only_if_it_was_seen_to() -> None:
    def waiting(since: int | None) -> Row:
        return Row(0, 5, 1.0, None, 0, 0, since)

    rows = {("new", KEYS[0]): waiting(6_000), ("reads", KEYS[0]): waiting(6_000), ("stopped", KEYS[0]): waiting(1_000)}
    since = {"new": 6_000, "reads": 1_000, "stopped": 1_000}
    found = {one.group: one for one in lagging_groups(rows, now=9_000, since=since, empty=["stopped"])}
    assert [(name, one.reads, one.is_empty) for name, one in sorted(found.items())] == [
        ("new", False, False),
        ("reads", True, False),
        ("stopped", False, True),
    ]


def test_nothing_is_shown_as_zero_that_is_not_known() -> None:
    (row,) = topic_rows(Snapshot(METADATA))
    assert (row.rate, row.size, row.offline, row.under_replicated) == (None, None, 1, 1)
    known = topic_row(Snapshot(METADATA, rates={KEYS[0]: 2.0, KEYS[1]: 1.5}, sizes={KEYS[0]: 10}), "orders")
    assert known is not None
    assert (known.rate, known.size) == (3.5, 10)
    assert topic_row(Snapshot(), "orders") is None
    zero, _, two = partition_rows(ORDERS, bounds={KEYS[0]: (5, 25)}, rates=None, sizes=None)
    assert (zero.records, zero.rate, zero.state) == (20, None, "good")
    assert (two.records, two.leader, two.state) == (None, None, "offline")


def test_topics_are_searched_without_case_and_sorted() -> None:
    assert [row.name for row in topic_rows(Snapshot(METADATA), internal=True)] == ["__offsets", "orders"]
    first, *_ = topic_rows(Snapshot(METADATA), internal=True, sort="partitions")
    assert first.name == "orders"
    assert [row.name for row in topic_rows(Snapshot(METADATA), search=" ORD ")] == ["orders"]


def test_own_configs_come_first_and_have_documentation() -> None:
    configs = {
        "cleanup.policy": ConfigValue("cleanup.policy", "delete", ConfigSource.DEFAULT, False, False),
        "retention.ms": ConfigValue("retention.ms", "1", ConfigSource.TOPIC, False, False),
        "unheard.of": ConfigValue("unheard.of", None, ConfigSource.UNKNOWN, False, False),
    }
    own, policy, unheard = config_rows(configs)
    assert (own.name, own.is_own) == ("retention.ms", True)
    assert own.documentation
    assert policy.source == "default"
    assert unheard.documentation is None


def test_a_rate_needs_two_readings_and_is_never_negative() -> None:
    rates = Rates()
    assert rates.observe({KEYS[0]: 100, KEYS[1]: 50}, now=0) is None
    assert rates.observe({KEYS[0]: 150, KEYS[1]: 10, KEYS[2]: 7}, now=5000) == {KEYS[0]: 10.0, KEYS[1]: 0.0}
    # Too soon to say anything new.
    assert rates.observe({KEYS[0]: 999}, now=5200) == {KEYS[0]: 10.0, KEYS[1]: 0.0}


def test_a_clock_that_is_set_back_begins_the_rates_again() -> None:
    rates = Rates()
    rates.observe({KEYS[0]: 0}, now=3_600_000)
    rates.observe({KEYS[0]: 10}, now=3_610_000)
    rates.observe({KEYS[0]: 20}, now=10_000)
    assert rates.observe({KEYS[0]: 70}, now=20_000) == {KEYS[0]: 5.0}


def test_numbers_are_rounded_and_never_to_nothing() -> None:
    assert [str(rate(value)) for value in (0, 0.01, 0.25, 1234.5)] == ["0", "&lt;0.1", "0.2", "1,234"]
    assert [str(duration(seconds)) for seconds in (0.4, 66.9, 7300)] == ["0.4 s", "1 min 7 s", "2 h 1 min"]
