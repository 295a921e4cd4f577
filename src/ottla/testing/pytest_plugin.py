"""The pytest plugin: ``ottla_broker`` is a new in-memory broker for each test.

Every pytest run loads this module where ottla is installed, so imports are lazy.

    def test_orders(ottla_broker):
        producer = KafkaProducer(bootstrap_servers=ottla_broker.bootstrap_servers)

Set broker configs with the marker ``@pytest.mark.ottla(num_partitions=3)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ottla(**configs): broker configs for the fixture ottla_broker")


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker for this test; connect to ``ottla_broker.bootstrap_servers``."""
    from ottla.broker.broker import Broker

    configs: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("ottla"))):
        configs.update(marker.kwargs)
    with Broker(**configs) as broker:
        yield broker
