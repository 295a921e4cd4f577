"""The broker restarts with the same address and data: groups and their offsets are still there."""

from __future__ import annotations

import pytest

from ..conftest import StartBroker
from .conftest import GROUP_CONFIG, MakeScenario
from .drivers import ALL

#: Members must not expire while the broker is down.
PATIENT = {**GROUP_CONFIG, "group.consumer.session.timeout.ms": "30000"}


@pytest.mark.parametrize("kind", ALL)
def test_a_group_goes_on(start_own_broker: StartBroker, make_scenario: MakeScenario, kind: str) -> None:
    broker = start_own_broker(**PATIENT)
    group = make_scenario(4, on=broker)
    group.feed()
    group.join(kind, session_ms=30_000)
    group.join(kind, session_ms=30_000)
    group.settle()
    group.flowing()
    broker.stop()
    broker.start()
    group.settle()
    group.flowing()
    third = group.join(kind, session_ms=30_000)
    group.settle()
    group.leave(third)
    group.settle()
    group.finish()
