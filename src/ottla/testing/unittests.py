"""Brokers for ``unittest``."""

from __future__ import annotations

import unittest
from typing import Any, ClassVar

from ottla.broker.broker import Broker
from ottla.testing.report import contents


class BrokerTestCase(unittest.TestCase):
    """A test case with a new broker for each test, as ``self.broker``.

        class OrdersTest(BrokerTestCase):
            broker_config = {"num.partitions": 3}

            def test_orders(self):
                producer = KafkaProducer(bootstrap_servers=self.broker.bootstrap_servers)

    If a test fails, its traceback ends with what was in the topics and groups. For tests that are coroutines, inherit
    from `unittest.IsolatedAsyncioTestCase` too.
    """

    broker_config: ClassVar[dict[str, Any]] = {}
    """Broker configs, and the arguments of `ottla.Broker` under their names."""
    broker: Broker

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        names = ("data_dir", "listen", "clock", "from_snapshot", "tls", "users", "acls", "registry")
        arguments = {name: value for name, value in self.broker_config.items() if name in names}
        config = {name: value for name, value in self.broker_config.items() if name not in names}
        with Broker(**arguments, config=config) as self.broker:
            return super().run(result)

    def _callTestMethod(self, method: Any) -> None:  # noqa: N802
        try:
            super()._callTestMethod(method)  # type: ignore[misc]
        except Exception as error:
            error.add_note(f"The broker at the end of the test:\n{contents(self.broker)}")
            raise
