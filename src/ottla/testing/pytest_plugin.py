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
``@pytest.mark.ottla(brokers=5)``. If a test, its setup or its teardown fails, the report shows what was in the topics
and groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.cluster.cluster import Cluster
    from ottla.testing.pipelines.fixture import Pipelines
    from ottla.testing.pipelines.running import Bench
    from ottla.testing.shared import SharedBroker

T = TypeVar("T")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ottla(**configs): configs for the fixtures ottla_broker and ottla_cluster")


# ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────

_SET_UP = pytest.StashKey[dict[str, Any]]()
"""The fixtures of ottla's types by name, at the item or the collector that they are set up for."""
_HELD = pytest.StashKey[ExitStack]()
"""Brokers that run until the teardown is over. It is in the session during a teardown."""
_TOLD = pytest.StashKey[list[tuple[str, str]]]()
"""What the report of a teardown that failed shows."""


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
    value: Any = yield
    # Fixtures of users too, but not the broker behind ottla_shared_broker: it has the topics of other tests.
    if type(value).__module__.startswith("ottla.") and fixturedef.argname != "ottla_session_broker":
        request.node.stash.setdefault(_SET_UP, {})[fixturedef.argname] = value
    return value  # type: ignore[no-any-return]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with ExitStack() as held:
        item.session.stash[_HELD] = held
        try:
            return (yield)
        except BaseException:  # Those of pytest.fail too.
            item.stash[_TOLD] = _told(item, "teardown")
            raise
        finally:
            del item.session.stash[_HELD]
            item.stash.setdefault(_SET_UP, {}).clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.failed:
        told = item.stash.setdefault(_TOLD, [])
        report.sections += told or _told(item, report.when)
        told.clear()
    return report  # type: ignore[return-value]


def _told(item: pytest.Item, phase: str) -> list[tuple[str, str]]:
    """Return a title and the topics and groups of each broker of a test that is running."""
    names = getattr(item, "fixturenames", ())
    used = {
        name: value
        for node in item.listchain()
        for name, value in node.stash.get(_SET_UP, {}).items()
        if node is item or name in names
    }
    if not used:
        return []
    from ottla.testing.report import can_tell, contents

    end = "test" if phase == "call" else phase
    return [(f"{name} at the end of the {end}", contents(value)) for name, value in used.items() if can_tell(value)]


@contextmanager
def _held(request: pytest.FixtureRequest, running: AbstractContextManager[T]) -> Iterator[T]:
    """Stop a broker at the end of the whole teardown, whose report may have to show what is in it."""
    with ExitStack() as stack:
        yield stack.enter_context(running)
        held = request.session.stash.get(_HELD, None)
        if held is not None:
            held.push(stack.pop_all())


# ── fixtures ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for this test; connect to ``ottla_broker.bootstrap_servers``."""
    from ottla.broker.broker import Broker

    with _held(request, Broker(**_configs(request))) as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_session_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker behind ``ottla_shared_broker``; override it to configure it. With pytest-xdist each worker has one."""
    from ottla.broker.broker import Broker

    with _held(request, Broker()) as broker:
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

    with _held(request, Cluster(**_configs(request))) as cluster:
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
