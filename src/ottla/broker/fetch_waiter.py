"""A fetch that waits for records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.partition import Partition


class FetchWaiter:
    """A fetch that waits until enough bytes are readable or its time is up."""

    __slots__ = ("_future", "_missing", "is_replica", "read_committed", "wants_watermark")

    def __init__(
        self,
        missing: int,
        *,
        read_committed: bool = False,
        is_replica: bool = False,
        wants_watermark: bool = False,
    ) -> None:
        self._missing = missing
        self.wants_watermark = wants_watermark
        """It waits for a higher high watermark too."""
        self.is_replica = is_replica
        """It waits for bytes above the high watermark too."""
        self.read_committed = read_committed
        """It waits for bytes below the last stable offset and ignores open transactions."""
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def appended(self, size: int) -> None:
        """Count bytes that became readable."""
        self._missing -= size
        if self._missing <= 0:
            self.release()

    def release(self) -> None:
        """End the wait."""
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, partitions: Iterable[Partition], seconds: float) -> None:
        """Wait for data in any of the partitions, at most this many seconds."""
        partitions = list(partitions)
        timer = asyncio.get_running_loop().call_later(seconds, self.release)
        for partition in partitions:
            partition.waiters.add(self)
        try:
            await self._future
        finally:
            timer.cancel()
            for partition in partitions:
                partition.waiters.discard(self)
