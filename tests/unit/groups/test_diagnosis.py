"""What the rebalances of a group have in common, in one sentence, and the setting to change."""

from __future__ import annotations

import pytest

from ottla.coordinator import history as h
from ottla.coordinator.records import Latecomer, Trigger, Who
from ottla.groups.diagnosis import HOUR, Diagnosis, Happening, derived_happenings, diagnose
from ottla.monitoring.derived import Derived

NOW = 1_700_000_000_000
MINUTE = 60_000
POLL = "no poll for longer than max.poll.interval.ms (60000)"


def who(name: str, instance: str | None = None) -> Who:
    return Who(f"{name}-{id(name)}", instance, name, "/10.0.0.7")


def happening(
    number: int, at: int, kind: str, name: str = "a", reason: str = "", late: tuple[Latecomer, ...] = ()
) -> Happening:
    return Happening(number, at, (Trigger(kind, at, who(name), reason),), late)


def coming_and_going(kind: str, reason: str = "", times: int = 10) -> Diagnosis:
    some = []
    for n in range(times):
        at = NOW - HOUR + (n + 1) * 5 * MINUTE
        some.append(happening(2 * n, at, kind, "billing-3", reason))
        some.append(happening(2 * n + 1, at + MINUTE, h.MEMBER_JOINED, "billing-3"))
    return diagnose(some, now=NOW)


def test_a_member_that_did_not_poll() -> None:
    found = coming_and_going(h.MEMBER_LEFT, POLL)
    assert found.sentence == (
        "Rebalanced 20 times in the last hour: 20 because billing-3 on 10.0.0.7 did not poll within "
        "max.poll.interval.ms (1 min 0 s), left, and came back."
    )
    assert found.advice.startswith("Raise max.poll.interval.ms of billing-3 above the time")
    assert "max.poll.records" in found.advice
    assert found.is_troubled


@pytest.mark.parametrize("reason", ["consumer poll timeout has expired.", "max.poll.interval.ms exceeded"])
def test_other_clients_say_it_in_other_words(reason: str) -> None:
    assert "did not poll within max.poll.interval.ms, left" in coming_and_going(h.MEMBER_LEFT, reason).sentence


def test_a_member_that_pauses() -> None:
    found = coming_and_going(h.SESSION_EXPIRED)
    assert "20 because billing-3 on 10.0.0.7 sent no heartbeat within its session timeout, and came back" in (
        found.sentence
    )
    assert "If it pauses, raise its session.timeout.ms" in found.advice


def test_a_member_that_restarts() -> None:
    found = coming_and_going(h.MEMBER_LEFT, "the consumer was closed")
    assert "billing-3 on 10.0.0.7 left, and came back" in found.sentence
    assert "group.instance.id" in found.advice


def test_a_crash_is_no_pause() -> None:
    found = diagnose([happening(0, NOW - MINUTE, h.SESSION_EXPIRED)], now=NOW)
    assert found.sentence == (
        "Rebalanced once in the last hour because a on 10.0.0.7 sent no heartbeat within its session timeout."
    )
    assert "crashed or was cut off" in found.advice
    assert not found.is_troubled


def test_several_causes_and_the_rest() -> None:
    some = [happening(n, NOW - MINUTE, h.MEMBER_JOINED, f"m{n}") for n in range(5)]
    some += [Happening(9, NOW - MINUTE, (Trigger(h.PARTITIONS_ADDED, NOW - MINUTE, None, "orders"),))] * 2
    assert diagnose(some, now=NOW).sentence == (
        "Rebalanced 7 times in the last hour: 2 because of this: partitions added; 1 because m0 on 10.0.0.7 joined; "
        "1 because m1 on 10.0.0.7 joined; 3 for other reasons."
    )


def test_only_the_period_counts() -> None:
    old = [happening(0, NOW - HOUR - 1, h.MEMBER_LEFT)]
    assert diagnose(old, now=NOW).sentence == "No rebalance in the last hour."
    assert diagnose(old, now=NOW, period=2 * HOUR).sentence.startswith("Rebalanced once in the last 2 hours because")


def test_a_member_that_was_removed_while_the_others_waited_is_slow() -> None:
    late = (Latecomer(who("slow"), 60_000, removed=True),)
    some = [
        happening(0, NOW - 10 * MINUTE, h.MEMBER_JOINED, "b", late=late),
        happening(1, NOW - 8 * MINUTE, h.MEMBER_JOINED, "slow"),
    ]
    found = diagnose(some, now=NOW)
    assert "1 because slow on 10.0.0.7 did not poll within max.poll.interval.ms" in found.sentence
    assert found.waits.startswith("The group waited once for slow on 10.0.0.7, 1 min 0 s in all.")


def test_the_second_rebalance_of_a_cooperative_one_has_the_same_cause() -> None:
    some = [happening(0, NOW - MINUTE, h.MEMBER_LEFT, "b"), happening(1, NOW - MINUTE + 3_000, h.MEMBER_REJOINED, "c")]
    assert diagnose(some, now=NOW).sentence == "Rebalanced 2 times in the last hour: 2 because b on 10.0.0.7 left."


def test_apache_kafka_does_not_tell_why_a_member_is_gone() -> None:
    some = []
    for n in range(5):
        at = NOW - HOUR + (n + 1) * 5 * MINUTE
        some.append(Derived(at, 2 * n + 1, 0, 2, gone=(who("b"),)))
        some.append(Derived(at + MINUTE, 2 * n + 2, 0, 3, joined=(who("b"),)))
    found = diagnose(derived_happenings(some), now=NOW)
    assert (
        "10 because b on 10.0.0.7 left or its session expired, and came back (Apache Kafka does not" in found.sentence
    )
    unknown = diagnose(derived_happenings([Derived(NOW, 1, 0, 1)]), now=NOW)
    assert unknown.sentence.endswith("because of something that was not recorded.")
