"""The recorded rebalances of a real group, replayed under other settings."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ottla import Broker, Consumer, Producer
from ottla.cli.main import main
from ottla.coordinator import history as h
from ottla.coordinator.records import HistoryValue, Latecomer, Trigger, Who
from ottla.lab.history import replay
from ottla.lab.replays import Setting, advice, run_under, settings

START = 1_700_000_000_000
MINUTE = 60_000


def who(name: str) -> Who:
    return Who(f"{name}-id", None, name, "/10.0.0.1")


def rebalance(number: int, at: int, *triggers: tuple[str, str], late: tuple[str, int] | None = None) -> HistoryValue:
    return HistoryValue(
        number=number,
        generation=number + 1,
        outcome=h.STABLE,
        protocol="range",
        started_at=at,
        joined_at=at,
        ended_at=at + 100,
        members=5,
        leader="",
        triggers=tuple(Trigger(kind, at, who(name)) for kind, name in triggers),
        triggers_left_out=0,
        late=() if late is None else (Latecomer(who(late[0]), late[1], removed=False),),
        partitions_kept=4,
        partitions_moved=6,
        moves=(),
    )


def test_what_was_recorded_becomes_events() -> None:
    values = [
        rebalance(0, START, (h.MEMBER_JOINED, "new"), late=("slow", 7_000)),
        rebalance(1, START + 10 * MINUTE, (h.MEMBER_LEFT, "old")),
        rebalance(2, START + 11 * MINUTE, (h.SESSION_EXPIRED, "gone")),
    ]
    found = replay("billing", values, is_consumer=False, session_timeout=45_000)
    assert (found.members, found.partitions, found.design) == (4, 10, "classic-eager")
    told = [(one.action, one.at, one.length) for one in found.scenario.events]
    assert told == [("slow", 5_000, 7_000), ("start", 5_001, 0), ("leave", 125_001, 0), ("crash", 140_001, 0)]
    numbers = {one.action: one.member for one in found.scenario.events}
    assert numbers["start"] == 4, "it was not there at the start"
    assert len(set(numbers.values())) == 4


def test_a_client_whose_session_expired_and_that_came_back_was_paused() -> None:
    values = [
        rebalance(0, START, (h.SESSION_EXPIRED, "a")),
        rebalance(1, START + 20_000, (h.MEMBER_JOINED, "a")),
    ]
    found = replay("billing", values, is_consumer=False, session_timeout=45_000)
    assert [(one.action, one.length) for one in found.scenario.events] == [("pause", 65_000), ("start", 0)]


def test_a_group_that_rebalanced_twenty_times_because_of_one_slow_member() -> None:
    """The prepared case: the lab names what would have helped."""
    values = []
    for n in range(10):
        at = START + n * 6 * MINUTE
        values.append(rebalance(2 * n, at, (h.MEMBER_JOINED, f"worker-{n}"), late=("slow", 20_000)))
        values.append(rebalance(2 * n + 1, at + 3 * MINUTE, (h.MEMBER_LEFT, f"worker-{n}"), late=("slow", 20_000)))
    found = replay("billing", values, is_consumer=False, session_timeout=45_000)
    results = [run_under(found, one, seed=1) for one in settings(found, ["classic-cooperative", "consumer"])]
    told = advice(found, results)
    assert told.startswith(("group.protocol=consumer would have helped most", "partition.assignment.strategy=coop"))
    assert results[0].without_ms > 10 * min(one.without_ms for one in results)


def test_a_member_that_left_because_it_did_not_poll_names_the_setting() -> None:
    values = []
    for n in range(3):
        at = START + n * 6 * MINUTE
        left = rebalance(2 * n, at, (h.MEMBER_LEFT, "slow"))
        reason = "no poll for longer than max.poll.interval.ms (60000)"
        values.append(replace(left, triggers=tuple(replace(one, reason=reason) for one in left.triggers)))
        values.append(rebalance(2 * n + 1, at + 30_000, (h.MEMBER_JOINED, "slow")))
    found = replay("billing", values, is_consumer=False, session_timeout=45_000)
    assert (found.max_poll_interval, found.longest_poll) == (60_000, 90_000)
    assert {one.length for one in found.scenario.events if one.action == "slow"} == {90_000}
    assert settings(found, [])[1] == Setting("classic-eager", 45_000, 120_000)
    results = [run_under(found, one, seed=1) for one in settings(found, ["consumer"])]
    now, longer = results[0], results[2]
    assert (now.max_poll_interval_ms, longer.max_poll_interval_ms) == (60_000, 120_000)
    assert now.moved > 6
    assert longer.moved == 0, "nobody leaves any more"
    assert advice(found, results).startswith("max.poll.interval.ms=120000 would have helped most: 0 s instead of")


def test_a_setting_that_does_not_help_is_not_advised() -> None:
    values = [rebalance(0, START, (h.PARTITIONS_ADDED, "a"))]
    found = replay("billing", values, is_consumer=False, session_timeout=45_000)
    results = [run_under(found, one, seed=1) for one in settings(found, [])]
    assert advice(found, results) == "no other design or timeout would have helped much"


def test_the_history_of_a_real_group(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        config = {"bootstrap.servers": broker.bootstrap_servers}
        with Producer(config) as producer:
            producer.send("orders", b"x").result()
        for _ in range(2):
            with Consumer({**config, "group.id": "billing"}) as consumer:
                consumer.subscribe(["orders"])
                while not consumer.assignment():
                    consumer.poll(timeout_ms=100)
        common = ["lab", "--group", "billing", "-b", broker.bootstrap_servers]
        assert main([*common, "--json", "--design", "consumer"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert {one["action"] for one in told["events"]} == {"start", "leave"}
        assert [one["session_timeout_ms"] for one in told["results"]][::2] == [45_000, 135_000]
        assert main([*common, "--since", "1h"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("group billing: 4 recorded events")
        assert "session timeout 45.0 s" in out
        assert main([*common, "--since", "0.001s"]) == 1
        assert "has no recorded rebalances in this time" in capsys.readouterr().err


@pytest.mark.parametrize("args", [[], ["scale", "--group", "g"], ["scale", "--since", "1h"]])
def test_wrong_usage(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *args]) == 2
    assert "group" in capsys.readouterr().err
