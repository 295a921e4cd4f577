"""Brokers for ``unittest``."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
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

    If a test fails, its traceback ends with what was in the topics and groups, also in `setUp` and subtests. For tests
    that are coroutines, inherit from `unittest.IsolatedAsyncioTestCase` too, in either order.
    """

    broker_config: ClassVar[dict[str, Any]] = {}
    """Broker configs, and the arguments of `ottla.Broker` under their names."""
    broker: Broker
    _problem: Exception | None = None

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        result = self.defaultTestResult() if result is None else result
        with ExitStack() as stack:
            try:
                self.broker = stack.enter_context(Broker(**self.broker_config))
            except Exception as error:  # An error of this test. Raised here, it would end the run of all tests.
                self._problem = error
                self.setUp = self._tell_problem  # type: ignore[method-assign]
            super().run(_Noted(result, self._note))  # type: ignore[arg-type]
        return result

    def _tell_problem(self) -> None:
        assert self._problem is not None
        raise self._problem

    def _note(self, error: BaseException) -> None:
        if self._problem is None:
            error.add_note(f"The broker at the end of the test:\n{contents(self.broker)}")


class _Noted:
    """A result of tests to whose errors a note is added first.

    It sees all errors, of `setUp` and subtests too, whatever other test cases the class of a test inherits from.
    """

    def __init__(self, result: unittest.TestResult, note: Callable[[BaseException], None]) -> None:
        self._result = result
        self._note = note

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._result, name)
        return partial(self._add, found) if name in ("addError", "addFailure", "addSubTest") else found

    def _add(self, add: Callable[..., object], *values: Any) -> None:
        error = values[-1]  # As from `sys.exc_info`, or None for a subtest that has passed.
        if error is not None:
            self._note(error[1])
        add(*values)
