from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla
from unit.broker.wire import Wire


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.Broker]:
    with ottla.Broker() as broker:
        yield broker


@pytest.fixture
def wire(broker: ottla.Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        yield wire
