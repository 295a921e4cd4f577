"""A member dies: its session expires, and the others continue from its commits."""

from __future__ import annotations

import pytest

from ..waiting import until
from .conftest import MakeScenario
from .drivers import ALL

SHORT_SESSION_MS = 1_500


@pytest.mark.parametrize("kind", ALL)
def test_a_member_is_killed(make_scenario: MakeScenario, kind: str) -> None:
    group = make_scenario(4)
    group.feed()
    doomed = group.join_process(kind, session_ms=SHORT_SESSION_MS, commit="each")
    group.settle()  # it joins first, so it leads a classic group
    survivor = group.join(kind)
    group.settle()
    until(lambda: doomed.journal.reads, "the member that will die has read something")
    group.flowing()
    doomed.kill()
    group.forget(doomed)
    assert len(group.settle()[survivor.options.client_id]) == 4
    group.finish(exactly_once=False)


@pytest.mark.parametrize("kind", ALL)
def test_everybody_is_killed_and_others_come(make_scenario: MakeScenario, kind: str) -> None:
    """New members wait until the sessions of the dead ones expire, and continue from their commits."""
    group = make_scenario(4)
    group.feed()
    doomed = [group.join_process(kind, session_ms=SHORT_SESSION_MS, commit="each") for _ in range(2)]
    group.settle()
    group.flowing()
    for member in doomed:
        member.kill()
        group.forget(member)
    group.join(kind)
    group.join(kind)
    group.settle()
    group.finish(exactly_once=False)
