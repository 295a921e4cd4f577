"""The recorded rebalances of a real group, replayed under other settings."""

from __future__ import annotations

import json

import pytest

from ottla import Broker, Consumer, Producer
from ottla.cli.main import main
from ottla.coordinator import history as h
from ottla.coordinator.records import HistoryValue, Latecomer, Trigger, Who
from ottla.lab.history import advice, replay
from ottla.lab.runs import run

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
    costs = []
    for design in ("classic-eager", "classic-cooperative", "consumer"):
        result = run(
            design,
            found.scenario,
            members=found.members,
            partitions=found.partitions,
            seed=1,
            session_timeout=45_000,
        )
        costs.append((design, 45_000, result.without_ms))
    told = advice(costs, ("classic-eager", 45_000))
    assert told.startswith(("consumer with", "classic-cooperative with"))
    now, best = costs[0][2], min(one[2] for one in costs)
    assert now > 10 * best


def test_a_setting_that_does_not_help_is_not_advised() -> None:
    told = advice([("classic-eager", 45_000, 1_000), ("consumer", 45_000, 950)], ("classic-eager", 45_000))
    assert told == "no other design or session timeout would have helped much"


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
