"""Tools for testing programs that use ottla: the pytest fixture ``ottla_broker``, and a manual clock."""

from ottla.testing.clock import ManualClock

__all__ = ["ManualClock"]
