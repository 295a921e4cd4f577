"""The ports of a driver in virtual time: a clock, wake-ups and replies that a test or a simulation moves by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_WAITING = object()


class VirtualReply:
    """A response that comes later."""

    def __init__(self) -> None:
        self.result: Any = _WAITING
        """The response, or the error."""
        self.callbacks: list[Callable[[Any], None]] = []

    def done(self) -> bool:
        return self.result is not _WAITING

    def set_result(self, result: Any, /) -> None:
        self.result = result
        for callback in self.callbacks:
            callback(result)

    set_exception = set_result


class VirtualCommit:
    """Records that are committed when somebody says so."""

    def __init__(self) -> None:
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Any], object]] = []

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        self._callbacks.append(callback)

    def exception(self) -> BaseException | None:
        return self._error

    def finish(self, error: BaseException | None = None) -> None:
        self._error = error
        for callback in self._callbacks:
            callback(self)


class VirtualWakeup:
    """A wake-up that can be cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def __call__(self) -> None:
        if self._callback is not None:
            self._callback()
