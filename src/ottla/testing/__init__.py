"""For tests of programs that use ottla: the pytest fixture ``ottla_broker``, and a clock that is moved by hand."""

from ottla.testing.clock import ManualClock

__all__ = ["ManualClock"]
