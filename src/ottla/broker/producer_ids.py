"""Producer ids, taken from blocks that the controller gives to one broker each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.node import Node


class ProducerIds:
    """Gives each producer a unique id, even after a crash."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._block = iter(range(0))
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """Return a new producer id."""
        async with self._lock:
            taken = next(self._block, None)
            if taken is None:
                self._block = iter(await self._take())
                taken = next(self._block)
            return taken

    async def _take(self) -> range:
        node = self._node
        if node.cluster is not None and not node.cluster.is_controller:
            return await node.cluster.take_producer_ids()
        block: range = await node.controller.run(node.metadata.take_producer_ids)
        return block
