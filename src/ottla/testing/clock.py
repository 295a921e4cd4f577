"""The manual clock under its public name."""

from __future__ import annotations

from ottla.runtime.clock import ManualClock

__all__ = ["ManualClock"]
