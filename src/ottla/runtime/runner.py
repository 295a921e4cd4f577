"""The driver of a machine on asyncio: wake-ups are event loop timers, replies are futures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.driver import Clock, Driver, Journal
from ottla.machine import Machine, Outcome
from ottla.types import Millis

Record = TypeVar("Record")
Response = TypeVar("Response")


class Runner(Driver[Record]):
    """Drives one machine on the running event loop."""

    def __init__(
        self,
        machine: Machine[Record],
        journal: Journal[Record],
        clock: Clock,
        before_send: Callable[[Callable[[], None]], object] | None = None,
        commit_timeout: Millis | None = None,
    ) -> None:
        super().__init__(
            machine,
            journal,
            clock,
            call_later=_call_later,
            new_reply=_new_future,
            before_send=before_send,
            commit_timeout=commit_timeout,
        )

    async def run(self, operation: Callable[..., Outcome[Record, Response]], /, *args: Any, **kwargs: Any) -> Response:
        """Run ``operation(*args, **kwargs, now=…)`` and return its response when it may be sent."""
        reply = self.begin(operation, *args, **kwargs)
        response: Response = await reply if isinstance(reply, asyncio.Future) else reply
        return response


def _call_later(delay: Millis, callback: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay / 1000, callback)


def _new_future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()
