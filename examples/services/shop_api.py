"""A web API that puts orders on a topic: `POST /orders` answers when Kafka has the order, or says 503.

KAFKA=localhost:9092 uvicorn shop_api:app
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException

from ottla import KafkaError, aio

TOPIC = "orders"


def make_app(servers: str, *, patience_ms: int = 2_000) -> FastAPI:
    """The API. It waits for Kafka for at most `patience_ms`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with aio.Producer(
            bootstrap_servers=servers,
            client_id="shop-api",
            value_serializer="json",
            linger_ms=0,
            request_timeout_ms=patience_ms // 2,
            delivery_timeout_ms=patience_ms,
            max_block_ms=patience_ms,
        ) as app.state.producer:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=201)
    async def order(order: dict[str, Any]) -> dict[str, Any]:
        try:
            # Idempotent: the producer may send it several times, but Kafka writes it once.
            written = await app.state.producer.send_and_wait(TOPIC, order, key=str(order.get("customer")).encode())
        except KafkaError as error:
            raise HTTPException(503, f"the order may not have been taken: {error}") from None
        return {"partition": written.partition, "offset": written.offset}

    return app


if "KAFKA" in os.environ:
    app = make_app(os.environ["KAFKA"])
