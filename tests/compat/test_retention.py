"""Old records are removed, by size or by compaction, and what consumers see of it."""

from __future__ import annotations

from .clients.base import TP
from .conftest import Connect, StartBroker, create_and_wait
from .waiting import take, until


def test_old_segments_go_by_retention(start_own_broker: StartBroker, connect: Connect, library: str) -> None:
    """A consumer that is behind starts at the oldest remaining record."""
    broker = start_own_broker(
        log_initial_task_delay_ms="50", log_retention_check_interval_ms="100", log_segment_delete_delay_ms="100"
    )
    client = connect(library, broker.bootstrap_servers)
    setup = connect("confluent", broker.bootstrap_servers).admin()
    create_and_wait(setup, "short", 1, {"segment.bytes": "1048576", "retention.bytes": "1500000"})
    producer = client.producer()
    for number in range(40):
        producer.send("short", b"%02d" % number + bytes(100_000)).result()
    consumer, tp = client.consumer(fetch_max_wait_ms=100), TP("short", 0)
    until(lambda: consumer.watermarks(tp)[0] > 0, "old segments are gone")
    consumer.assign({tp: 0})
    first = take(consumer, 1)[0]
    assert first.offset > 0
    assert (first.value or b"")[:2] == b"%02d" % first.offset


def test_compaction_keeps_the_last_value_of_each_key(
    start_own_broker: StartBroker, connect: Connect, library: str
) -> None:
    broker = start_own_broker(log_cleaner_backoff_ms="100")
    client = connect(library, broker.bootstrap_servers)
    configs = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
    create_and_wait(connect("confluent", broker.bootstrap_servers).admin(), "table", 1, configs)
    producer = client.producer()
    rounds = 0

    def compacted() -> list[tuple[int, bytes | None, bytes | None]]:
        """Write one more round, so that earlier segments can be compacted, and read everything."""
        nonlocal rounds
        for key in (b"a", b"b", b"c"):
            producer.send("table", b"%d" % rounds, key).result()
        rounds += 1
        with client.consumer(fetch_max_wait_ms=100) as consumer:
            end = consumer.watermarks(TP("table", 0))[1]
            consumer.assign({TP("table", 0): 0})
            found = take(consumer, 1)
            while found[-1].offset < end - 1:
                found += consumer.poll(1.0)
        return [(m.offset, m.key, m.value) for m in found] if len(found) < end else []

    found = until(compacted, "fewer records than were written", timeout=40)
    assert [offset for offset, _, _ in found] == sorted(offset for offset, _, _ in found)
    assert all(offset == int(value or b"") * 3 + b"abc".index(key or b"") for offset, key, value in found)
    assert {key for _, key, _ in found} == {b"a", b"b", b"c"}
