"""The next start finishes the transactions that a crash interrupted.

A crash is a copy of the data directory while the broker runs: it has everything that was written, and nothing that was
only in memory.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.compat.waiting import until

import ottla
from ottla import errors
from ottla.broker import transactions
from ottla.broker.partition import Partition
from ottla.metadata.machine import TRANSACTION_STATE
from ottla.protocol.apis import ApiKey
from ottla.types import TopicPartition
from unit.broker.transaction_wire import Producer, committed, everything, offset_of, patiently
from unit.broker.wire import Wire

CONFIG = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}
ENDLESS = 1 << 62


@contextmanager
def started(data_dir: Path) -> Iterator[tuple[ottla.Broker, Wire]]:
    with ottla.Broker(data_dir, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        yield broker, wire


def crashed(broker: ottla.Broker, to: Path) -> Path:
    shutil.copytree(broker.data_dir, to, ignore=shutil.ignore_patterns(".lock"))
    return to


@pytest.fixture
def no_markers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """While it is active, no marker can be written."""

    def refuse(*_: Any) -> None:
        raise errors.KafkaStorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(transactions, "append_marker", refuse)
        yield patch


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_that_was_decided_is_finished_after_a_crash(
    tmp_path: Path, no_markers: Any, commits: bool
) -> None:
    with started(tmp_path / "first") as (broker, wire):
        wire.create_topic("orders", 2)
        producer = Producer(wire, "id")
        producer.add("orders", 0, 1)
        producer.add_offsets("group")
        producer.produce("orders", b"a")
        producer.produce("orders", b"b", partition=1)
        producer.commit_offset("group", "orders", 7)
        assert producer.end(commits).code == 0
        assert producer.state() == ("PrepareCommit" if commits else "PrepareAbort")
        assert producer.add("orders") == [51]
        assert producer.init().error_code == 51
        assert committed(wire, "orders") == []
        second = crashed(broker, tmp_path / "second")
        no_markers.undo()
        assert patiently(producer.init).error_code == 0, "and without a crash it is tried again"
        assert committed(wire, "orders") == ([b"a"] if commits else [])
    with started(second) as (_, wire):
        newer = Producer(wire, "id")
        assert (newer.producer_id, newer.epoch) == (producer.producer_id, 1)
        assert committed(wire, "orders") == ([b"a"] if commits else [])
        assert committed(wire, "orders", partition=1) == ([b"b"] if commits else [])
        assert offset_of(wire, "group", "orders") == (7 if commits else -1, 0)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("crash", [True, False])
def test_an_open_transaction_goes_on_after_a_restart(tmp_path: Path, crash: bool, commits: bool) -> None:
    with started(tmp_path / "first") as (broker, wire):
        wire.create_topic("orders")
        producer = Producer(wire, "id")
        producer.add("orders")
        producer.add_offsets("group")
        producer.produce("orders", b"before")
        producer.commit_offset("group", "orders", 3)
        second = crashed(broker, tmp_path / "second") if crash else tmp_path / "first"
    with started(second) as (_, wire):
        producer.wire = wire
        patiently(lambda: producer.init(producer_id=99, producer_epoch=0))  # fenced, so the coordinator has been loaded
        assert producer.state() == "Ongoing"
        assert wire.fetch("orders", 0, isolation_level=1).last_stable_offset == 0
        assert offset_of(wire, "group", "orders") == (-1, 88)
        assert producer.produce("orders", b"behind", sequence=1) == (0, 1)
        assert producer.end(commits).code == 0
        assert committed(wire, "orders") == ([b"before", b"behind"] if commits else [])
        assert everything(wire, "orders") == [b"before", b"behind"]
        assert offset_of(wire, "group", "orders") == (3 if commits else -1, 0)


@pytest.mark.parametrize("crash", [True, False])
def test_aborted_transactions_stay_aborted_after_a_restart(tmp_path: Path, crash: bool) -> None:
    with started(tmp_path / "first") as (broker, wire):
        wire.create_topic("orders")
        producer = Producer(wire, "id")
        for number in range(6):
            producer.produce("orders", b"%d" % number, version=12)
            producer.commit_offset("group", "orders", number, version=5)
            producer.end_second(number % 2 == 0)
        second = crashed(broker, tmp_path / "second") if crash else tmp_path / "first"
    with started(second) as (_, wire):
        producer.wire = wire
        assert committed(wire, "orders") == [b"0", b"2", b"4"]
        assert patiently(lambda: producer.init(producer_id=99, producer_epoch=0)).error_code == 90
        assert producer.end(False, version=5).code == 0
        assert offset_of(wire, "group", "orders") == (4, 0)


def test_a_topic_that_is_deleted_meanwhile_does_not_keep_a_transaction_open(tmp_path: Path) -> None:
    with started(tmp_path) as (_, wire):
        wire.create_topic("orders")
        wire.create_topic("payments")
        producer = Producer(wire, "id")
        producer.add("orders")
        producer.add("payments")
        producer.produce("payments", b"paid")
        wire.call(20, 5, {"topic_names": ["orders"], "timeout": 1000})
        assert producer.end(True).code == 0
        assert producer.state() == "CompleteCommit"
        assert committed(wire, "payments") == [b"paid"]


def test_until_a_coordinator_is_loaded_everybody_is_told_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that were put off meanwhile keep their order."""
    with started(tmp_path) as (_, wire):
        wire.create_topic("orders")
        producer = Producer(wire, "id")
        producer.add("orders")
    may_load = threading.Event()
    replay = transactions.Shard._replay_partition

    async def wait_and_replay(shard: transactions.Shard) -> None:
        while not may_load.is_set():
            await asyncio.sleep(0.005)
        await replay(shard)

    monkeypatch.setattr(transactions.Shard, "_replay_partition", wait_and_replay)
    with started(tmp_path) as (_, wire):
        producer.wire = wire
        assert producer.init().error_code == 14
        assert producer.end(True).code == 14
        assert producer.add("orders") == [14]
        assert producer.verify("orders", 0) == [14]
        assert producer.produce("orders", b"first") == (19, -1)
        assert wire.call(ApiKey.LIST_TRANSACTIONS, 2, {}).error_code == 14
        may_load.set()
        patiently(lambda: producer.init(producer_id=99, producer_epoch=0))
        assert producer.produce("orders", b"second", sequence=1) == (45, -1)
        assert producer.produce("orders", b"first", sequence=0) == (0, 0)
        assert producer.produce("orders", b"second", sequence=1) == (0, 1)
        assert producer.end(True).code == 0
        assert committed(wire, "orders") == [b"first", b"second"]


def test_markers_wait_until_the_decision_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction is decided while the markers of another wait for the log. It waits for its own record."""
    waiting: list[int] = []
    refused: list[TopicPartition] = []
    limit = [ENDLESS]
    at_once, append_marker = Partition.committed, transactions.append_marker

    def later(partition: Partition, offset: int) -> asyncio.Future[None] | None:
        if partition.topic != TRANSACTION_STATE or offset <= limit[0]:
            return at_once(partition, offset)

        async def wait() -> None:
            waiting.append(offset)
            while offset > limit[0]:
                await asyncio.sleep(0.002)

        return asyncio.ensure_future(wait())

    def refuse_first(node: Any, place: TopicPartition, end: Any) -> Any:
        if place.topic == "id-0" and limit[0] < ENDLESS:
            refused.append(place)
            raise errors.KafkaStorageError("the disk is full")
        return append_marker(node, place, end)

    monkeypatch.setattr(Partition, "committed", later)
    monkeypatch.setattr(transactions, "append_marker", refuse_first)

    def send(producer: Producer, api_key: int, version: int, message: dict[str, Any], position: int) -> None:
        producer.wire.send(api_key, version, message)
        until(lambda: position in waiting, f"{producer.id} waits")

    config = {**CONFIG, "transaction.state.log.num.partitions": 1}
    with ottla.Broker(tmp_path, config=config) as broker, ExitStack() as wires:
        wire, *others = (wires.enter_context(Wire(broker.bootstrap_servers)) for _ in range(4))
        first, second, third = (Producer(each, f"id-{number}") for number, each in enumerate(others))
        for producer in (first, second):
            wire.create_topic(producer.id)
            producer.add(producer.id)
            producer.produce(producer.id, b"x")
        end = limit[0] = wire.fetch(TRANSACTION_STATE, 0).high_watermark
        send(first, ApiKey.END_TXN, 4, {**first._who, "committed": True}, end + 1)
        send(third, ApiKey.INIT_PRODUCER_ID, 5, {"transactional_id": third.id, "transaction_timeout": 5}, end + 2)
        waiting.clear()
        limit[0] = end + 1
        until(lambda: end + 2 in waiting, "the markers of the first wait for everything in the log")
        send(second, ApiKey.END_TXN, 4, {**second._who, "committed": True}, end + 3)
        limit[0] = end + 2
        until(lambda: refused, "the markers of the first are written")
        assert committed(wire, second.id) == []
        limit[0] = ENDLESS
        until(lambda: committed(wire, first.id) == committed(wire, second.id) == [b"x"], "both are complete")


@pytest.mark.parametrize("error", [errors.NotLeaderOrFollower, errors.NotEnoughReplicas])
def test_a_decided_transaction_is_answered_even_if_its_coordinator_moves_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[errors.KafkaError]
) -> None:
    append_own = Partition.append_own
    written: list[None] = []
    allowed = [ENDLESS]

    def append(partition: Partition, *args: Any, **kwargs: Any) -> Any:
        if partition.topic == TRANSACTION_STATE:
            written.append(None)
            if len(written) > allowed[0]:
                raise error("Another broker leads it.")
        return append_own(partition, *args, **kwargs)

    monkeypatch.setattr(Partition, "append_own", append)
    with started(tmp_path) as (_, wire):
        wire.create_topic("orders")
        producer = Producer(wire, "id")
        producer.add("orders")
        producer.produce("orders", b"a")
        allowed[0] = len(written) + 1
        assert producer.end(True).code == 0
        assert committed(wire, "orders") == [b"a"]
        assert producer.state() == "PrepareCommit"
        allowed[0] = ENDLESS
        until(lambda: producer.state() == "CompleteCommit", "it is tried again")
