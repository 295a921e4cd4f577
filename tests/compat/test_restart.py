"""The broker restarts with the same address and data directory; clients only notice the delay."""

from __future__ import annotations

import threading

from .clients.base import TP, Delivery, Producer
from .conftest import Connect, StartBroker, create_and_wait
from .waiting import take, until

RECORDS = 3_000


class Stream(threading.Thread):
    """Sends numbered records until all are sent; `sent` is the progress."""

    def __init__(self, producer: Producer, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer, self._topic = producer, topic
        self.sent = 0
        self.go_on = threading.Event()
        self.deliveries: list[Delivery] = []
        self.start()

    def run(self) -> None:
        for number in range(RECORDS):
            if number == RECORDS // 2:
                self.go_on.wait(60)
            self.deliveries.append(self._producer.send(self._topic, b"%d" % number))
            self.sent += 1


def test_an_idempotent_producer_over_a_restart(start_own_broker: StartBroker, connect: Connect, library: str) -> None:
    """Records in flight when the broker stops are all there afterwards, once and in order."""
    broker = start_own_broker()
    client = connect(library, broker.bootstrap_servers)
    create_and_wait(connect("confluent", broker.bootstrap_servers).admin(), "stream", 1, {})
    producer = client.producer(idempotent=True, linger_ms=2, batch_bytes=2_000)
    consumer = client.consumer(fetch_max_wait_ms=100)
    consumer.assign({TP("stream", 0): 0})
    stream = Stream(producer, "stream")
    until(lambda: stream.sent >= RECORDS // 2, "half of the records are sent")
    seen = take(consumer, 100)
    stream.go_on.set()
    broker.stop()
    broker.start()
    stream.join(60)
    producer.flush(60)
    assert [delivery.result(60).offset for delivery in stream.deliveries] == list(range(RECORDS))
    seen += take(consumer, RECORDS - len(seen), timeout=40)
    assert [int(message.value or b"") for message in seen] == list(range(RECORDS))


def test_everything_is_there_after_a_restart(start_own_broker: StartBroker, connect: Connect, library: str) -> None:
    broker = start_own_broker()
    client = connect(library, broker.bootstrap_servers)
    setup = connect("confluent", broker.bootstrap_servers).admin()
    create_and_wait(setup, "kept", 3, {"retention.ms": "1234567890"})
    create_and_wait(setup, "deleted", 1, {})
    client.producer(compression="gzip").send_all("kept", [b"%d" % n for n in range(50)], 1)
    client.admin().delete_records({TP("kept", 1): 10})
    client.admin().delete_topic("deleted")
    cluster_id = client.admin().describe_cluster().cluster_id
    client.close()
    broker.stop()
    broker.start()
    after = connect(library, broker.bootstrap_servers)
    admin = after.admin()
    until(lambda: "kept" in admin.list_topics(), "the topic is listed")
    assert "deleted" not in admin.list_topics()
    assert admin.describe_cluster().cluster_id == cluster_id
    assert len(admin.describe_topic("kept")) == 3
    assert admin.describe_topic_configs("kept")["retention.ms"].value == "1234567890"
    consumer = after.consumer()
    consumer.assign({TP("kept", 1): None})
    assert [m.value for m in take(consumer, 40)] == [b"%d" % n for n in range(10, 50)]
    assert after.producer().send("kept", b"next", partition=1).result().offset == 50
