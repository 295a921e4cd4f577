"""Members with a group.instance.id keep their partitions over a restart, and each id is used once."""

from __future__ import annotations

import pytest

from ..clients.base import ClientError
from ..waiting import until
from .conftest import MakeScenario
from .drivers import ALL, CLASSIC, CONSUMER_PROTOCOL

SHORT_SESSION_MS = 1_500
FENCED_INSTANCE_ID = 82


@pytest.mark.parametrize("kind", ALL)
def test_a_restart_moves_nothing(make_scenario: MakeScenario, kind: str) -> None:
    group = make_scenario(6)
    group.feed()
    members = [group.join(kind, instance_id=name) for name in ("a", "b", "c")]
    before = group.settle()
    others = members[1:]
    moves = [list(member.journal.moves) for member in others]
    group.leave(members[0])
    back = group.join(kind, instance_id="a")
    after = group.settle()
    assert after[back.options.client_id] == before[members[0].options.client_id]
    group.flowing()
    assert [list(member.journal.moves) for member in others] == moves
    group.finish()


@pytest.mark.parametrize("kind", CLASSIC)
def test_a_killed_member_comes_back_in_time(make_scenario: MakeScenario, kind: str) -> None:
    group = make_scenario(4)
    group.feed()
    doomed = group.join_process(kind, instance_id="doomed", commit="each", session_ms=20_000)
    other = group.join(kind, instance_id="other")
    before = group.settle()
    moves = list(other.journal.moves)
    group.flowing()
    doomed.kill()
    group.forget(doomed)
    back = group.join_process(kind, instance_id="doomed", commit="each", session_ms=20_000)
    assert group.settle()[back.options.client_id] == before[doomed.options.client_id]
    assert other.journal.moves == moves
    group.finish(exactly_once=False)


@pytest.mark.parametrize("kind", ALL)
def test_a_member_that_stays_away_loses_its_partitions(make_scenario: MakeScenario, kind: str) -> None:
    group = make_scenario(4)
    group.feed()
    gone = group.join(kind, instance_id="gone", session_ms=SHORT_SESSION_MS)
    stays = group.join(kind, instance_id="stays")
    group.settle()
    group.leave(gone)
    assert len(group.settle()[stays.options.client_id]) == 4
    group.finish()


@pytest.mark.parametrize("kind", ["confluent", "kafka_python"])  # aiokafka does not send its id, and joins again
def test_a_second_member_with_the_same_id_fences_the_first(make_scenario: MakeScenario, kind: str) -> None:
    group = make_scenario(2)
    # Rare heartbeats, so that the commit gets the error: librdkafka does not report the error of a heartbeat.
    first = group.join(kind, instance_id="same", commit="never", heartbeat_ms=20_000, session_ms=60_000)
    owned = group.settle()[first.options.client_id]
    group.forget(first)
    second = group.join(kind, instance_id="same", commit="never")
    assert group.settle()[second.options.client_id] == owned
    with pytest.raises(ClientError) as refused:
        first.call(lambda driver: driver.commit({min(owned): (0, "")}))
    assert refused.value.code == FENCED_INSTANCE_ID
    second.call(lambda driver: driver.commit({min(owned): (0, "")}))


def test_a_second_member_with_the_same_id_is_kept_out(make_scenario: MakeScenario) -> None:
    """Unlike in the classic protocol, the first member stays."""
    group = make_scenario(2)
    group.feed()
    first = group.join(CONSUMER_PROTOCOL, instance_id="same")
    owned = group.settle()
    second = group.join(CONSUMER_PROTOCOL, instance_id="same")
    group.forget(second)
    until(lambda: second.journal.errors, "the second is told")
    assert "instance ID is still used" in str(second.journal.errors[0])  # UNRELEASED_INSTANCE_ID
    assert group.settle() == owned
    assert len(first.journal.moves) == 1
    group.finish()
