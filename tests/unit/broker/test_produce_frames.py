"""The frame of a produce request is only valid until the handler first waits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers import produce
from ottla.broker.verification import ADDED
from ottla.types import TopicPartition


@pytest.mark.parametrize("version", [9, 12])
def test_records_survive_the_wait_for_the_transaction_coordinator(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = bytearray(b"a batch")
    data = SimpleNamespace(index=0, records=memoryview(frame))
    request: Any = SimpleNamespace(topic_data=[SimpleNamespace(name="orders", partition_data=[data])])
    place = TopicPartition("orders", 0)

    async def wait(*args: Any, adds: bool) -> dict[TopicPartition, Any]:
        frame[:] = b"another"  # The buffer has the next request by now.
        return {place: ADDED}

    monkeypatch.setattr(produce, "added_or_verified", wait)
    call: Any = SimpleNamespace(api_version=version)
    node: Any = None
    producer: Any = None
    asyncio.run(produce._added(node, call, request, producer, {place: lambda: None}))
    assert bytes(data.records) == b"a batch"
