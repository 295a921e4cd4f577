"""The pytest plugin: ``ottla_broker`` is a fresh broker for each test, in memory, gone at its end.

Loaded by every pytest run where ottla is installed, so that nothing is imported before it is used.

    def test_orders(ottla_broker):
        producer = KafkaProducer(bootstrap_servers=ottla_broker.bootstrap_servers)

Broker configs come from the marker ``@pytest.mark.ottla(num_partitions=3)``.
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
    """A Kafka broker of this test's own; ``ottla_broker.bootstrap_servers`` is its address."""
    from ottla.broker.broker import Broker

    configs: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("ottla"))):
        configs.update(marker.kwargs)
    with Broker(**configs) as broker:
        yield broker
