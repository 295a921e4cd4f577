"""Fixtures of the compat suite: the broker, each client library, and topics with unique names."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest

from .brokers import RunningBroker, outside_broker, shared_broker, start_broker
from .clients import CLIENTS
from .clients.aio import LoopThread
from .clients.base import TP, Admin, Client, ClientError, Code
from .waiting import until

#: Groups have nobody to wait for, and many connections may be opened at once.
CONFIG = {"group.initial.rebalance.delay.ms": "0", "socket.listen.backlog.size": "1000"}


class MakeTopic(Protocol):
    def __call__(self, partitions: int = 1, **configs: str) -> str: ...


Connect = Callable[[str, str], Client]


class StartBroker(Protocol):
    def __call__(self, **configs: str) -> RunningBroker: ...


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(feature, ...): run with the client libraries that support these features")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/compat/"):
            item.add_marker(pytest.mark.compat)
            # Caused by the libraries: deprecated calls, and sockets that kafka-python leaves open without a connection.
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a scenario with `client` for every library; `producing` and `consuming` make a matrix.

    A scenario with its own broker takes the name of a `library` and connects it with `connect`.
    """
    features = {f for mark in metafunc.definition.iter_markers("needs") for f in mark.args}
    names = [name for name, kind in CLIENTS.items() if not features & kind.lacks]
    for fixture in ("client", "producing", "consuming"):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, names, indirect=True)
    if "library" in metafunc.fixturenames:
        metafunc.parametrize("library", names)


@pytest.fixture(scope="session", autouse=True)
def _aiokafka_loop() -> Iterator[None]:
    yield
    LoopThread.stop()


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The broker that all scenarios share."""
    with shared_broker(CONFIG, tmp_path_factory.mktemp("broker")) as servers:
        yield servers


@pytest.fixture(scope="module", autouse=True)
def leave_nothing_behind() -> Iterator[None]:
    """Collect what the libraries leave open here, so that it does not fail another test."""
    yield
    gc.collect()


@pytest.fixture
def start_own_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start a broker for this test only, to configure or restart it."""
    if outside_broker() is not None:
        pytest.skip("needs to start its own broker; unset OTTLA_COMPAT_BOOTSTRAP to run it")
    started: list[RunningBroker] = []

    def start(**configs: str) -> RunningBroker:
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        started.append(start_broker(dotted, tmp_path / f"data-{len(started)}"))
        return started[-1]

    yield start
    for broker in started:
        broker.close()
    gc.collect()  # collects here what the libraries leave open


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Create clients of any library for any broker, and close them."""
    made: list[Client] = []

    def make(name: str, bootstrap_servers: str) -> Client:
        made.append(CLIENTS[name](bootstrap_servers))
        return made[-1]

    yield make
    for client in reversed(made):
        client.close()


def _client(request: pytest.FixtureRequest, connect: Connect) -> Client:
    return connect(request.param, request.getfixturevalue("bootstrap_servers"))


@pytest.fixture
def client(request: pytest.FixtureRequest, connect: Connect) -> Client:
    return _client(request, connect)


@pytest.fixture
def producing(request: pytest.FixtureRequest, connect: Connect) -> Client:
    return _client(request, connect)


@pytest.fixture
def consuming(request: pytest.FixtureRequest, connect: Connect) -> Client:
    return _client(request, connect)


@pytest.fixture(scope="session")
def setup_admin(bootstrap_servers: str) -> Iterator[Admin]:
    with CLIENTS["confluent"](bootstrap_servers).admin() as admin:
        yield admin


def unique_name(prefix: str = "compat") -> str:
    return f"{prefix}-{uuid4().hex[:12]}"


def create_and_wait(admin: Admin, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Create a topic and wait until every partition has a leader."""
    admin.create_topic(name, partitions, configs=configs)
    until(lambda: _is_led(admin, name, partitions), f"topic {name} has leaders")


def _is_led(admin: Admin, name: str, partitions: int) -> bool:
    try:
        led = all(partition.leader >= 0 for partition in admin.describe_topic(name))
        return led and all(admin.list_offset(TP(name, n), "latest")[0] == 0 for n in range(partitions))
    except ClientError:  # in some brokers a new topic takes a moment to be known everywhere
        return False


@pytest.fixture
def make_topic(setup_admin: Admin) -> Iterator[MakeTopic]:
    """Create a topic with a unique name: `make_topic(3, cleanup_policy="compact")`."""
    created: list[str] = []

    def make(partitions: int = 1, **configs: str) -> str:
        name = unique_name()
        create_and_wait(setup_admin, name, partitions, {k.replace("_", "."): v for k, v in configs.items()})
        created.append(name)
        return name

    yield make
    for name in created:
        try:
            setup_admin.delete_topic(name)
        except ClientError as problem:
            if problem.code != Code.UNKNOWN_TOPIC_OR_PARTITION:  # the scenario may have deleted it
                raise
