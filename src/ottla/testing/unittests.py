"""Brokers for ``unittest``."""

from __future__ import annotations

import unittest
from contextlib import ExitStack
from typing import Any, ClassVar

from ottla.broker.broker import Broker
from ottla.testing.report import contents

__unittest = True
"""Tracebacks leave out the frames of this module, as those of unittest, and show the line of the test."""


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
    _problem: Exception | None = None

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        with ExitStack() as stack:
            try:
                self.broker = stack.enter_context(Broker(**self.broker_config))
            except Exception as error:  # An error of this test. Raised here, it would end the run of all tests.
                self._problem = error
            return super().run(result)

    def _callSetUp(self) -> None:  # noqa: N802
        if self._problem is not None:
            raise self._problem
        super()._callSetUp()  # type: ignore[misc]

    def _callTestMethod(self, method: Any) -> None:  # noqa: N802
        try:
            super()._callTestMethod(method)  # type: ignore[misc]
        except Exception as error:
            error.add_note(f"The broker at the end of the test:\n{contents(self.broker)}")
            raise
