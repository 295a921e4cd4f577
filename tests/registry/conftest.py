"""A broker with a schema registry, shared by the tests of a process; each test uses subjects of its own."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from ottla import Broker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/registry/"):
            # From other libraries' clients.
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(registry=True) as broker:
        yield broker
    gc.collect()


@pytest.fixture
def url(broker: Broker) -> str:
    return broker.registry_url


@pytest.fixture
def client(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as client:
        yield client


@pytest.fixture
def subject() -> str:
    return f"s-{uuid4().hex[:12]}"
