"""Every library reads what every other one writes: batches, compression, headers, timestamps."""

from __future__ import annotations

import time

from .clients.base import TP, Client
from .conftest import MakeTopic
from .waiting import take

#: Every compression, with and without idempotence.
PRODUCERS = [(None, False), ("gzip", True), ("snappy", False), ("lz4", True), ("zstd", False), (None, True)]
HEADERS = (("a", b"1"), ("b", b""))


def test_every_library_reads_every_other(producing: Client, consuming: Client, make_topic: MakeTopic) -> None:
    topic, each, when = make_topic(), 40, int(time.time() * 1000) - 60_000
    expected = []
    for compression, idempotent in PRODUCERS:
        with producing.producer(compression=compression, idempotent=idempotent, linger_ms=20) as producer:
            for number in range(each):
                record = (b"key %d" % number, f"{compression} {number}".encode() * 20, HEADERS, when + number)
                producer.send(topic, record[1], record[0], headers=HEADERS, timestamp=record[3])
                expected.append(record)
            producer.flush()
    consumer = consuming.consumer()
    consumer.assign({TP(topic, 0): None})
    messages = take(consumer, len(expected))
    assert [(m.key, m.value, m.headers, m.timestamp) for m in messages] == expected
    assert [m.offset for m in messages] == list(range(len(expected)))
