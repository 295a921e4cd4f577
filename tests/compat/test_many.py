"""A thousand partitions, and many clients and connections at once."""

from __future__ import annotations

import contextlib
import socket
import struct

from .clients.base import TP, Client
from .conftest import MakeTopic, unique_name
from .waiting import take, until
from .wire import answer_of

PARTITIONS = 1_000
CONNECTIONS = 500
API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 7, -1)


def test_a_thousand_partitions(client: Client) -> None:
    admin, topic = client.admin(), unique_name("thousand")
    admin.create_topic(topic, PARTITIONS)
    until(lambda: topic in admin.list_topics(), "the topic is listed")
    until(lambda: all(p.leader >= 0 for p in admin.describe_topic(topic)), "all partitions have leaders")
    assert [p.partition for p in admin.describe_topic(topic)] == list(range(PARTITIONS))
    producer = client.producer(linger_ms=50)
    sends = [producer.send(topic, b"%d" % n, partition=n) for n in range(PARTITIONS)]
    producer.flush(60)
    assert {send.result().offset for send in sends} == {0}
    consumer = client.consumer()
    consumer.assign({TP(topic, n): 0 for n in range(PARTITIONS)})
    messages = take(consumer, PARTITIONS, timeout=40)
    assert {(m.partition, m.value) for m in messages} == {(n, b"%d" % n) for n in range(PARTITIONS)}
    for n in (999, 0, 500):
        producer.send(topic, b"more", partition=n).result()
        assert [m.partition for m in take(consumer, 1)] == [n]
    consumer.close()  # an open client requests its topics repeatedly, which would create them again
    producer.close()
    admin.delete_topic(topic)
    until(lambda: topic not in admin.list_topics(), "the topic is gone")


def test_many_clients_at_the_same_time(client: Client, make_topic: MakeTopic) -> None:
    topic, count = make_topic(), 20
    producers = [client.producer() for _ in range(count)]
    sends = [producer.send(topic, b"%d" % n) for n, producer in enumerate(producers)]
    assert sorted(send.result().offset or 0 for send in sends) == list(range(count))
    consumers = [client.consumer(fetch_max_wait_ms=100) for _ in range(count)]
    for consumer in consumers:
        consumer.assign({TP(topic, 0): None})
    for consumer in consumers:
        assert {m.value for m in take(consumer, count)} == {b"%d" % n for n in range(count)}


def test_many_connections(bootstrap_servers: str) -> None:
    host, _, port = bootstrap_servers.rpartition(":")
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection((host, int(port)), 30)) for _ in range(CONNECTIONS)]
        for connection in connections:
            connection.sendall(API_VERSIONS_V0)
        for connection in connections:
            assert answer_of(connection)[:6] == struct.pack(">ih", 7, 0)
