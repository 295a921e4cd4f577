"""Runs the asyncio core of a blocking client: an event loop in its own thread.

Every blocking client has one, as Kafka's producer has its sender thread. Uses that would hang or fail in strange ways
raise a clear error instead: use after close, after a fork, and from the loop's own thread (a callback that makes a
blocking call).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from ottla.errors import OttlaError
from ottla.runtime.loops import new_event_loop

T = TypeVar("T")
log = logging.getLogger("ottla.clients")


class IllegalUse(OttlaError):
    """The client was used in a way that cannot work; the message says what to do instead."""


def same_loop(bound: asyncio.AbstractEventLoop | None, client: str) -> asyncio.AbstractEventLoop:
    """Return the running loop; IllegalUse if an asyncio client is bound to another one, where its connections are."""
    running = asyncio.get_running_loop()
    if bound is not None and bound is not running:
        raise IllegalUse(f"this {client} belongs to another event loop: create a new one in this one")
    return running


class LoopThread:
    """An event loop that runs until `stop`.

    >>> thread = LoopThread("example")
    >>> thread.call(asyncio.sleep(0, "done"))
    'done'
    >>> thread.stop()
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.loop = new_event_loop()
        self._process = os.getpid()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            try:
                return self.loop.run_forever()
            except BaseException:
                # `SystemExit` and `KeyboardInterrupt` in a callback end up here. They cannot end the program from this
                # thread, and ending the loop would leave all callers waiting.
                log.exception("a callback tried to end the event loop of this %s: it keeps running", self.name)

    @property
    def stopped(self) -> bool:
        return self._stopped

    def check(self) -> None:
        """Raise IllegalUse if a blocking call from this thread could never return."""
        if self._stopped:
            raise IllegalUse(f"this {self.name} is closed: create a new one")
        if os.getpid() != self._process:
            raise IllegalUse(
                f"this {self.name} was created before the process forked, and its connections belong to the parent: "
                "create a new one in the child"
            )
        if not self._thread.is_alive():
            raise IllegalUse(f"the thread of this {self.name} has ended: create a new one")
        if threading.get_ident() == self._thread.ident:
            raise IllegalUse(
                f"a callback of this {self.name} made a blocking call to it, which would wait for itself: "
                "hand the work to another thread"
            )

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop and wait for its result; an interrupt of the wait also cancels the coroutine."""
        try:
            self.check()
        except IllegalUse:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout)
        except concurrent.futures.CancelledError:
            raise IllegalUse(f"this {self.name} was closed by another thread") from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and cancel what still runs on it."""
        if self._stopped or os.getpid() != self._process:
            return
        self._stopped = True
        if self._thread.is_alive():
            # On its own thread, because the caller's may run another loop (in a notebook, in a coroutine).
            asyncio.run_coroutine_threadsafe(_wind_up(), self.loop).result()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
        else:
            self.loop.run_until_complete(_wind_up())
        self.loop.close()


async def _wind_up() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()


def copy_docs(asynchronous: type, blocking: type) -> None:
    """Give the methods of a blocking client the docstrings of the asyncio one."""
    for name, method in vars(blocking).items():
        if inspect.isfunction(method) and method.__doc__ is None and hasattr(asynchronous, name):
            method.__doc__ = getattr(asynchronous, name).__doc__
