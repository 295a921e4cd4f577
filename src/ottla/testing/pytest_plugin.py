"""The pytest plugin: ``ottla_broker`` is a new in-memory broker for each test, ``ottla_cluster`` has three of them that
can fail, ``ottla_pipeline`` runs pipelines.

Every pytest run loads this module where ottla is installed, so imports are lazy.

    def test_orders(ottla_broker):
        producer = KafkaProducer(bootstrap_servers=ottla_broker.bootstrap_servers)

    def test_failover(ottla_cluster):
        producer = KafkaProducer(bootstrap_servers=ottla_cluster.bootstrap_servers, acks="all")
        producer.send("orders", b"an order").get(10)
        ottla_cluster.leader_of("orders", 0).kill()

    def test_pipeline(ottla_pipeline):
        run = ottla_pipeline("orders.toml")
        assert run({"orders": [{"id": 1}]})["table"] == [{"id": 1}]

Set broker configs with the marker ``@pytest.mark.ottla(num_partitions=3)``, and those of ``ottla.Cluster`` too:
``@pytest.mark.ottla(brokers=5)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.cluster import Cluster
    from ottla.testing.pipelines.fixture import Pipelines
    from ottla.testing.pipelines.running import Bench


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ottla(**configs): configs for the fixtures ottla_broker and ottla_cluster")


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for this test; connect to ``ottla_broker.bootstrap_servers``."""
    from ottla.broker.broker import Broker

    with Broker(**_configs(request)) as broker:
        yield broker


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of three brokers for this test, whose brokers can be killed, paused and cut off."""
    from ottla.cluster.cluster import Cluster

    with Cluster(**_configs(request)) as cluster:
        yield cluster


def _configs(request: pytest.FixtureRequest) -> dict[str, Any]:
    configs: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("ottla"))):
        configs.update(marker.kwargs)
    return configs


@pytest.fixture(scope="session")
def ottla_bench() -> Iterator[Bench]:
    """The Spark session of all pipeline tests: the active one, or a new one, started when it is first needed."""
    from ottla.testing.pipelines.running import Bench

    with Bench() as bench:
        yield bench


@pytest.fixture
def ottla_pipeline(request: pytest.FixtureRequest, ottla_bench: Bench) -> Pipelines:
    """Run pipelines over sample records: ``ottla_pipeline("orders.toml")({"orders": [{"id": 1}]})``.

    Relative paths start at the directory of the test file. ``ottla_pipeline.check("orders.toml")`` runs stored cases.
    """
    from ottla.testing.pipelines.fixture import Pipelines

    return Pipelines(ottla_bench, request.path.parent)
