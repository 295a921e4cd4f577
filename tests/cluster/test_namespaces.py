"""A broker whose network is really cut: its packets are lost. `make crash-cluster` runs it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from .clusters import NamespaceCluster, why_no_namespaces
from .faults import Faults
from .trial import BROKER, Trial

pytestmark = [pytest.mark.crash, pytest.mark.long]


@pytest.fixture(scope="module")
def cluster() -> Iterator[NamespaceCluster]:
    if (why := why_no_namespaces()) is not None:
        pytest.skip(why)
    with NamespaceCluster(config=BROKER) as started:
        yield started


@pytest.mark.parametrize("role", ["leader", "follower", "controller"])
def test_nothing_is_lost_when_a_link_is_down(cluster: NamespaceCluster, role: str) -> None:
    trial = Trial(cluster, role, 1, others=())
    faults = Faults(cluster, random.Random(1), trial.plain)
    trial.start()
    try:
        trial.await_progress()
        victim = faults.victim(role)
        victim.isolate()
        faults.wait(5, 5)
        victim.rejoin()
        trial.await_progress()
    finally:
        trial.halt()
    assert trial.finish() == []
