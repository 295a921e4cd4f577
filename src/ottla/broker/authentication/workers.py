"""Threads for the work of logins, which takes milliseconds: keys of passwords, signatures, keys of an issuer.

They are few and for nothing else, so that many logins neither stall the event loop nor delay the writes to disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 2


class Workers:
    """Runs functions in threads."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="ottla-login")

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in a thread and return its result."""
        work = self._executor.submit(function, *args, **kwargs)
        return await asyncio.wrap_future(work)

    def close(self) -> None:
        """Forget what has not begun."""
        self._executor.shutdown(wait=False, cancel_futures=True)
