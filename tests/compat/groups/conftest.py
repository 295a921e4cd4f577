"""Fixtures of the group scenarios: a broker with short sessions, and scenarios on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from ..brokers import RunningBroker, shared_broker
from ..clients import CLIENTS
from ..clients.aio import LoopThread
from ..clients.base import Admin
from ..conftest import CONFIG, Connect, create_and_wait, unique_name
from ..wire import Wire
from .raw import RawMember, find
from .scenario import Scenario

#: Sessions may be short.
GROUP_CONFIG = {
    **CONFIG,
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}


ConnectRaw = Callable[..., RawMember]


class MakeScenario(Protocol):
    def __call__(self, *partitions: int, on: RunningBroker | None = None) -> Scenario: ...


@pytest.fixture(scope="session", autouse=True)
def _one_loop() -> None:
    """Created here, because members run on several threads."""
    LoopThread.loop()


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The broker that these scenarios share."""
    with shared_broker(GROUP_CONFIG, tmp_path_factory.mktemp("broker")) as servers:
        yield servers


@pytest.fixture(scope="session")
def setup_admin(bootstrap_servers: str) -> Iterator[Admin]:
    with CLIENTS["confluent"](bootstrap_servers).admin() as admin:
        yield admin


@pytest.fixture
def group(bootstrap_servers: str) -> str:
    """The name of a group whose coordinator is ready."""
    name = unique_name("raw")
    with Wire(bootstrap_servers) as wire:
        find(wire, name)
    return name


@pytest.fixture
def connect_raw(bootstrap_servers: str, group: str) -> Iterator[ConnectRaw]:
    """Connect members of the group that send hand-made requests; all are cut off at the end."""
    made: list[RawMember] = []

    def make(**fields: Any) -> RawMember:
        servers = fields.pop("bootstrap_servers", bootstrap_servers)
        made.append(RawMember(servers, fields.pop("group", group), **fields))
        return made[-1]

    yield make
    for member in made:
        member.vanish()


@pytest.fixture
def make_scenario(bootstrap_servers: str, connect: Connect) -> Iterator[MakeScenario]:
    """Create topics with these numbers of partitions, and a group to read them."""
    made: list[Scenario] = []

    def make(*partitions: int, on: RunningBroker | None = None) -> Scenario:
        address = on.bootstrap_servers if on is not None else bootstrap_servers
        topics = {unique_name(): count for count in partitions}
        for name, count in topics.items():
            create_and_wait(connect("confluent", address).admin(), name, count, {})
        made.append(Scenario(address, topics))
        return made[-1]

    yield make
    for scenario in made:
        scenario.close()
