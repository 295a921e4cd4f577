"""Producer ids, taken from blocks that the metadata journal marks as used."""

from __future__ import annotations

import asyncio

from ottla.metadata import Metadata, MetadataRecord
from ottla.runtime.runner import Runner


class ProducerIds:
    """Gives each producer a unique id, even after a crash."""

    def __init__(self, controller: Runner[MetadataRecord], metadata: Metadata) -> None:
        self._controller = controller
        self._metadata = metadata
        self._block = iter(range(0))
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """Return a new producer id."""
        async with self._lock:
            taken = next(self._block, None)
            if taken is None:
                self._block = iter(await self._controller.run(self._metadata.take_producer_ids))
                taken = next(self._block)
            return taken
