"""Every test here kills or stops a broker in a separate process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if str(HERE.parents[1]) not in sys.path:
    sys.path.append(str(HERE.parents[1]))  # for the packages of the tests

from tests.crash.broker_process import BrokerProcess  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/crash/"):
            item.add_marker(pytest.mark.crash)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A started broker process."""
    broker = BrokerProcess(tmp_path / "data", tmp_path / "broker.log", {"auto.create.topics.enable": "false"})
    try:
        broker.start()
        yield broker
    finally:
        broker.close()
