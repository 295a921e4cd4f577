"""One real ZooKeeper for all tests of a worker, and a chroot for each test; one cluster of three brokers."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from ottla.cluster.cluster import Cluster
from ottla.cluster.zookeeper import LocalZooKeeper
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.layout import prepare

Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[ZooKeeper]]
_chroots = itertools.count()


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZooKeeper]:
    with LocalZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[LocalZooKeeper]:
    """A server for a test that stops it."""
    with LocalZooKeeper(tmp_path / "zookeeper") as server:
        yield server


@pytest.fixture
def chroot() -> str:
    return f"/test/{next(_chroots)}"


@pytest.fixture
def connect(request: pytest.FixtureRequest, chroot: str) -> Connect:
    """Open a session in this test's chroot: ``async with connect() as zookeeper:``."""

    @asynccontextmanager
    async def session(address: str = "", *, session_timeout_ms: int = 6000) -> AsyncIterator[ZooKeeper]:
        address = address or request.getfixturevalue("zookeeper_server").address
        zookeeper = ZooKeeper(address + chroot, session_timeout_ms=session_timeout_ms, connection_timeout_ms=10_000)
        await zookeeper.start()
        try:
            await prepare(zookeeper)
            yield zookeeper
        finally:
            await zookeeper.stop()

    return session


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three brokers in the racks a, b and c, for tests that leave them as they are.

    Their sessions with ZooKeeper last so long that nothing happens because one has ended.
    """
    with Cluster(
        3,
        isolation=False,
        racks=["a", "b", "c"],
        replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector",
        offsets_topic_num_partitions=3,
        zookeeper_session_timeout_ms=50_000,
        transaction_state_log_num_partitions=3,
        ottla_metrics_listener="127.0.0.1:0",
    ) as cluster:
        yield cluster
