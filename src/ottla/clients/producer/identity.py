"""The producer id of an idempotent producer: InitProducerId, repeated until a broker returns one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.clients.cluster.cluster import Cluster
from ottla.config.producer import ProducerConfig
from ottla.errors import KafkaError, error_class
from ottla.protocol.apis import ApiKey
from ottla.types import Millis


async def fetch_producer_id(
    cluster: Cluster, config: ProducerConfig, backoff: Callable[[int], Millis]
) -> tuple[int, int]:
    """Return a producer id and its epoch; raises only errors that are not retriable."""
    message = {
        "transactional_id": None,
        "transaction_timeout": config.request_timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    attempt = 0
    while True:
        attempt += 1
        try:
            answer = await cluster.request(ApiKey.INIT_PRODUCER_ID, message)
            if not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            raise error_class(answer.error_code)
        except KafkaError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(backoff(attempt) / 1000)
