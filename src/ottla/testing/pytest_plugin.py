"""The pytest plugin. Every pytest run loads this module where ottla is installed, so imports are lazy.

``ottla_broker``         a new in-memory broker for each test
``ottla_shared_broker``  one broker for all tests of a process, with topics and groups of its own for each test
``ottla_cluster``        three brokers that can fail
``ottla_pipeline``       runs pipelines

    def test_orders(ottla_broker):
        producer = KafkaProducer(bootstrap_servers=ottla_broker.bootstrap_servers)

    def test_billing(ottla_shared_broker):
        topic = ottla_shared_broker.topic("orders")

    def test_failover(ottla_cluster):
        producer = KafkaProducer(bootstrap_servers=ottla_cluster.bootstrap_servers, acks="all")
        producer.send("orders", b"an order").get(10)
        ottla_cluster.leader_of("orders", 0).kill()

    def test_pipeline(ottla_pipeline):
        run = ottla_pipeline("orders.toml")
        assert run({"orders": [{"id": 1}]})["table"] == [{"id": 1}]

Set broker configs with the marker ``@pytest.mark.ottla(num_partitions=3)``, and those of ``ottla.Cluster`` too:
``@pytest.mark.ottla(brokers=5)``. If a test fails, its report shows what was in the topics and groups.
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
    from ottla.testing.shared import SharedBroker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ottla(**configs): configs for the fixtures ottla_broker and ottla_cluster")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.when == "call" and report.failed:
        for name, used in getattr(item, "funcargs", {}).items():
            # Fixtures of users too, but not the broker behind ottla_shared_broker: it has the topics of other tests.
            if type(used).__module__.startswith("ottla.") and name != "ottla_session_broker":
                from ottla.testing.report import can_tell, contents

                if can_tell(used):
                    report.sections.append((f"{name} at the end of the test", contents(used)))
    return report  # type: ignore[return-value]


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for this test; connect to ``ottla_broker.bootstrap_servers``."""
    from ottla.broker.broker import Broker

    with Broker(**_configs(request)) as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_session_broker() -> Iterator[Broker]:
    """The broker behind ``ottla_shared_broker``; override it to configure it. With pytest-xdist each worker has one."""
    from ottla.broker.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def ottla_shared_broker(request: pytest.FixtureRequest, ottla_session_broker: Broker) -> Iterator[SharedBroker]:
    """This test's part of a broker that all tests share: ``ottla_shared_broker.topic("orders")`` is its own name."""
    from ottla.testing.shared import SharedBroker

    if _configs(request) and not {"ottla_broker", "ottla_cluster"} & set(request.fixturenames):
        raise pytest.UsageError(
            "@pytest.mark.ottla does not configure ottla_shared_broker, which other tests use too: use ottla_broker, "
            "or define a fixture ottla_session_broker of scope session"
        )
    yield SharedBroker(ottla_session_broker)
    ottla_session_broker.faults.clear()


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of three brokers for this test, whose brokers can be killed, paused and cut off."""
    from ottla.cluster.cluster import Cluster

    with Cluster(**_configs(request)) as cluster:
        yield cluster


def _configs(request: pytest.FixtureRequest) -> dict[str, Any]:
    configs: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("ottla"))):
        if marker.args:
            raise pytest.UsageError(
                f"@pytest.mark.ottla takes configs by name, such as num_partitions=3, not {marker.args[0]!r}"
            )
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
