"""Values for the tests of the machines: responses as objects, batches as bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from ottla.consuming.membership import Request
from ottla.records import Record, encode_batch
from ottla.types import TopicPartition

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
T_ID = UUID(int=1)
U_ID = UUID(int=2)


def answer(**fields: Any) -> Any:
    """A response with any fields, and without an error unless given."""
    return SimpleNamespace(**{"error_code": 0, **fields})


def batch(first: int, *values: bytes, **options: Any) -> bytes:
    records = [Record(first + number, 1000 + number, None, value) for number, value in enumerate(values)]
    return encode_batch(records, **{"leader_epoch": 3, **options})


def marker(offset: int, producer_id: int, *, commit: bool, leader_epoch: int = 3) -> bytes:
    """The control batch that ends a transaction."""
    record = Record(offset, 0, b"\0\0\0" + (b"\1" if commit else b"\0"), b"")
    options = {"base_sequence": -1, "transactional": True, "control": True, "leader_epoch": leader_epoch}
    return encode_batch([record], producer_id=producer_id, producer_epoch=0, **options)


def transactional(first: int, producer_id: int, *values: bytes, leader_epoch: int = 3) -> bytes:
    options = {"base_sequence": 0, "transactional": True, "leader_epoch": leader_epoch}
    return batch(first, *values, producer_id=producer_id, producer_epoch=0, **options)


def fetched(records: bytes = b"", error: int = 0, **fields: Any) -> Any:
    """One partition of a Fetch response."""
    return SimpleNamespace(
        **{
            "partition_index": 0,
            "error_code": error,
            "high_watermark": 100,
            "last_stable_offset": 100,
            "log_start_offset": 0,
            "preferred_read_replica": -1,
            "aborted_transactions": None,
            "records": memoryview(records),
            **fields,
        }
    )


def fetch_response(*partitions: Any, session_id: int = 0, error_code: int = 0) -> Any:
    topic = SimpleNamespace(topic="", topic_id=T_ID, partitions=list(partitions))
    return SimpleNamespace(error_code=error_code, session_id=session_id, responses=[topic] if partitions else [])


def apis(requests: tuple[Request, ...]) -> list[str]:
    return [request.api.name for request in requests]
