"""Fixtures for tests of our clients: a shared broker, separate brokers, topics with unique names."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat.brokers import RunningBroker, shared_broker, start_broker

#: The groups of a test need not wait for more members.
DEFAULTS = {"group.initial.rebalance.delay.ms": "0"}


class MakeTopic(Protocol):
    def __call__(self, partitions: int = 1, **configs: str) -> str: ...


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/clients/"):
            # From other libraries' clients, which some tests use.
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def leave_nothing_behind() -> Iterator[None]:
    """Collect what other libraries' clients leave open here, so that it does not disturb another test."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that all tests share: they use unique topics and groups."""
    with shared_broker(DEFAULTS, tmp_path_factory.mktemp("clients")) as servers:
        yield servers


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[..., RunningBroker]]:
    """Start separate brokers, which can be stopped and restarted on the same address and directory."""
    brokers: list[RunningBroker] = []

    def start(**configs: str) -> RunningBroker:
        settings = {**DEFAULTS, **{name.replace("_", "."): value for name, value in configs.items()}}
        brokers.append(start_broker(settings, tmp_path / f"broker-{len(brokers)}"))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture
def make_topic(bootstrap_servers: str) -> MakeTopic:
    """Create a topic with a unique name on the shared broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"topic-{uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(20)
        return name

    return make
