from typing import Any

from ottla.records.buffers import Buffer
from ottla.records.header import BatchHeader
from ottla.records.values import Headers

class ConsumerRecord:
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: Headers
    leader_epoch: int | None
    serialized_key_size: int
    serialized_value_size: int
    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        timestamp_type: int = 0,
        key: Any = None,
        value: Any = None,
        headers: Headers = (),
        leader_epoch: int | None = None,
        serialized_key_size: int = -1,
        serialized_value_size: int = -1,
    ) -> None: ...

def decode_consumed(
    payload: Buffer, header: BatchHeader, position: int, topic: str, partition: int, min_offset: int
) -> list[ConsumerRecord]: ...
