"""Producer ids, taken from blocks that the controller gives to one broker each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla import errors

if TYPE_CHECKING:
    from ottla.broker.node import Node


class ProducerIds:
    """Gives each producer a unique id, even after a crash."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._block = iter(range(0))
        self._ahead: asyncio.Task[range] | None = None
        self._lock = asyncio.Lock()

    def prepare(self) -> None:
        """Take a block ahead of time, so that producers can start while there is no controller."""
        self._ahead = asyncio.ensure_future(self._take())
        self._ahead.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def next(self) -> int:
        """Return a new producer id."""
        async with self._lock:
            taken = next(self._block, None)
            if taken is None:
                self._block = iter(await self._following())
                taken = next(self._block)
            return taken

    async def _following(self) -> range:
        ahead, self._ahead = self._ahead, None
        has_failed = ahead is None or (ahead.done() and ahead.exception() is not None)
        block = await (self._take() if ahead is None or has_failed else asyncio.shield(ahead))
        if self._node.cluster is not None:
            self.prepare()
        return block

    async def _take(self) -> range:
        node = self._node
        if node.cluster is not None and not node.cluster.is_controller:
            return await node.cluster.requests.take_producer_ids()
        try:
            block: range = await node.controller.run(node.metadata.take_producer_ids)
        except errors.NotController as error:
            raise errors.CoordinatorLoadInProgress("There are no producer ids now: the controller changes.") from error
        return block

    def close(self) -> None:
        """Take no more blocks."""
        if self._ahead is not None:
            self._ahead.cancel()
