"""Start time, memory, and recovery after kill -9.

Each measurement runs alone, without another broker.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import load
from benchmarks.client import taken
from benchmarks.clusters import PeerCluster
from benchmarks.peer import Peer
from benchmarks.report import MEMORY, START, Report

PATIENCE = 60.0
RECOVERY_BYTES = 1_000_000_000
RECOVERY_RECORD = 1024

MakePeer = Callable[[], Peer]


def start(make_peers: list[MakePeer], report: Report, repetitions: int) -> None:
    """Measure the time from process start, on cleanly closed data, to the first acknowledged record."""
    measure = report.measure("Start", "to the first acknowledged record", "s", START)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(make()) for make in make_peers]
        for peer in peers:
            load.create_topic(peer, "start", 1)
            acknowledge(peer, lambda: None)
            peer.stop()
        for _ in range(repetitions):
            for peer in peers:
                measure.add(peer.name, acknowledge(peer, peer.launch))
                peer.stop()


def acknowledge(peer: Peer | PeerCluster, launch: Callable[[], None]) -> float:
    """Return the seconds from `launch` until a waiting producer of the topic `start` gets its first acknowledgement."""
    acknowledged: list[float] = []

    def on_delivery(error: object, _: object) -> None:
        if error is not None:
            raise RuntimeError(f"{peer.name} refused the first record: {error}")
        acknowledged.append(time.monotonic())

    config = {**load.PRODUCER, **load.IMPATIENT, "linger.ms": 0, "bootstrap.servers": peer.bootstrap_servers}
    producer = Producer(config)
    producer.produce("start", b"first", on_delivery=on_delivery)
    producer.poll(0.1)
    begin = time.monotonic()
    launch()
    while not acknowledged and time.monotonic() - begin < PATIENCE:
        producer.poll(0.05)
    if not acknowledged:
        raise RuntimeError(f"{peer.name} acknowledged nothing in {PATIENCE:g} s")
    return acknowledged[0] - begin


def memory(make_peers: list[MakePeer], report: Report, *, partitions: int, load_records: int) -> None:
    """Measure resident memory: after the start, with many partitions, and the peak under load."""
    for make in make_peers:
        with make() as peer:
            time.sleep(3)
            _note_memory(report, "idle", peer, peer.resident_bytes())
            _use_many_partitions(peer, partitions)
            time.sleep(2)
            _note_memory(report, f"with {partitions:,} partitions", peer, peer.resident_bytes())
        with make() as peer, _peak_memory(peer) as peak:
            load.create_topic(peer, "load")
            filled = load.produce(peer, "load", size=1024, records=load_records)
            there = filled.records + load.CLIENTS * load.PARTITIONS
            load.consume(peer, "load", records=there)
        _note_memory(report, "under load, at most", peer, peak[0])


def _note_memory(report: Report, name: str, peer: Peer, value: int) -> None:
    report.measure("Resident memory", name, "MB", MEMORY).add(peer.name, value / 1e6)


def _use_many_partitions(peer: Peer, partitions: int) -> None:
    """Create the partitions, and write and read a record in each."""
    load.create_topic(peer, "many", partitions)
    producer = Producer({**load.PRODUCER, "bootstrap.servers": peer.bootstrap_servers})
    for partition in range(partitions):
        producer.produce("many", b"record", partition=partition)
    if unsent := producer.flush(PATIENCE):
        raise RuntimeError(f"{peer.name} left {unsent} of {partitions} partitions without their record")
    consumer = Consumer({**load.CONSUMER, "bootstrap.servers": peer.bootstrap_servers})
    consumer.assign([TopicPartition("many", partition, 0) for partition in range(partitions)])
    for _ in range(partitions):
        taken(consumer.poll(30.0))
    consumer.close()


@contextlib.contextmanager
def _peak_memory(peer: Peer) -> Iterator[list[int]]:
    """Record the peak of resident memory, sampled ten times per second."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            peak[0] = max(peak[0], peer.resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def recovery(make_peers: list[MakePeer], report: Report, *, repetitions: int, size: int = RECOVERY_BYTES) -> None:
    """Measure the time from the start after kill -9 with an unflushed log to a fetch of the last record."""
    label = f"of {size / 1e9:g} GB after kill -9"
    measure = report.measure("Recovery", label, "s")
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(make()) for make in make_peers]
        offsets = {peer.name: _fill_and_kill(peer, size) for peer in peers}
        for _ in range(repetitions):
            for peer in peers:
                _restore(peer)
                measure.add(peer.name, _fetch_last(peer, offsets[peer.name]))
                peer.kill()


def _fill_and_kill(peer: Peer, size: int) -> int:
    """Fill one partition of about this size, kill the broker and keep the files. Return the last offset."""
    load.create_topic(peer, "recovery", 1)
    load.produce(peer, "recovery", size=RECOVERY_RECORD, records=size // (RECOVERY_RECORD + 10))
    last = load.records_in(peer, "recovery") - 1
    peer.kill()
    peer.data_dir.rename(_kept(peer))
    return last


def _restore(peer: Peer) -> None:
    """Restore the files of the kill, because a recovery changes them."""
    shutil.rmtree(peer.data_dir, ignore_errors=True)
    shutil.copytree(_kept(peer), peer.data_dir)


def _kept(peer: Peer) -> Path:
    return peer.data_dir.with_name("killed")


def _fetch_last(peer: Peer, offset: int) -> float:
    consumer = Consumer({**load.CONSUMER, **load.IMPATIENT, "bootstrap.servers": peer.bootstrap_servers})
    consumer.assign([TopicPartition("recovery", 0, offset)])
    consumer.poll(0.1)
    begin = time.monotonic()
    peer.launch()
    message = None
    while message is None and time.monotonic() - begin < PATIENCE:
        message = consumer.poll(0.05)
        if message is not None and (error := message.error()) is not None and error.code() < 0:
            message = None  # an error of the connection, which is not open yet
    seconds = time.monotonic() - begin
    taken(message)
    consumer.close()
    return seconds
