"""The clients for asyncio: the same methods as those of ``ottla``, to be awaited.

>>> import asyncio, ottla
>>> from ottla import aio
>>> async def main(address):
...     async with aio.Producer(bootstrap_servers=address) as producer:
...         return (await producer.send_and_wait("orders", b"an order")).offset
"""

from __future__ import annotations

from ottla.clients.admin.asynchronous import AsyncAdmin as Admin
from ottla.clients.consumer.asynchronous import AsyncConsumer as Consumer
from ottla.clients.consumer.dead_letters import AsyncDeadLetters as DeadLetters
from ottla.clients.producer.asynchronous import AsyncProducer as Producer

__all__ = ["Admin", "Consumer", "DeadLetters", "Producer"]
