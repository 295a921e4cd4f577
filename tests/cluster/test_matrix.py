"""Kafka's failure matrix: clean or hard, stop or bounce or repeated bounce, of leader or follower or controller.

The producers use acks=all, and two of three replicas must be in sync. `make crash-cluster` runs it.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

import pytest

from ottla.cluster.member import ClusterBroker

from .clusters import PlainCluster
from .faults import Faults
from .trial import BROKER, Trial

# kafka-python leaves sockets open when a broker dies.
pytestmark = [
    pytest.mark.crash,
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainCluster]:
    with PlainCluster(data_dir=tmp_path_factory.mktemp("matrix"), config=BROKER) as started:
        yield started


def end(broker: ClusterBroker, how: str) -> None:
    broker.stop() if how == "clean" else broker.kill()


@pytest.mark.parametrize("role", ["leader", "follower", "controller"])
@pytest.mark.parametrize("pattern", ["stop", "bounce", "repeated bounce"])
@pytest.mark.parametrize("how", ["clean", "hard"])
def test_failure(cluster: PlainCluster, how: str, pattern: str, role: str) -> None:
    number = next(_numbers)
    trial = Trial(cluster, f"{number}", number)
    faults = Faults(cluster, random.Random(number), trial.plain)
    trial.start()
    try:
        trial.await_progress()
        broker = faults.victim(role)
        for _ in range(3 if pattern == "repeated bounce" else 1):
            end(broker, how)
            if pattern == "stop":
                trial.await_progress()
                time.sleep(2)
            broker.start()
        trial.await_progress()
    finally:
        trial.halt()
    assert trial.finish() == []
    assert len(trial.history.acked) > 100
