"""How a broker process stops when asked to, and what the next start does."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.crash.broker_process import BrokerProcess
from tests.wire import Wire, read_log

from ottla.protocol.apis import ApiKey
from ottla.records import Record, encode_batch

RECORDS = 50


def _create(wire: Wire, name: str, partitions: int = 1, **configs: str) -> None:
    entry = {
        "name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }  # fmt: skip
    answer = wire.call(ApiKey.CREATE_TOPICS, 5, {"topics": [entry], "timeout": 30_000, "validate_only": False})
    assert answer.topics[0].error_code == 0


def _produce(wire: Wire, topic: str, value: bytes) -> int:
    batch = encode_batch([Record(0, time.time_ns() // 1_000_000, None, value)])
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    request = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": data}
    answer = wire.call(ApiKey.PRODUCE, 8, request).responses[0].partition_responses[0]
    assert answer.error_code == 0
    return int(answer.base_offset)


def _values(wire: Wire, topic: str) -> list[bytes | None]:
    return [record.value for batch in read_log(wire, topic, 0, 0) for record in batch.records]


def _leader_epoch(wire: Wire, topic: str) -> int:
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    return int(wire.call(ApiKey.METADATA, 8, asked).topics[0].partitions[0].leader_epoch)


@pytest.fixture
def filled(broker: BrokerProcess) -> BrokerProcess:
    with Wire(broker.port) as wire:
        _create(wire, "stream", internal_segment_bytes="1000")
        for number in range(RECORDS):
            assert _produce(wire, "stream", b"%d" % number) == number
    return broker


def test_sigterm_leaves_a_marker_and_the_next_start_recovers_nothing(filled: BrokerProcess) -> None:
    assert not filled.has_clean_marker
    with Wire(filled.port) as wire:
        epoch = _leader_epoch(wire, "stream")
    assert filled.terminate() == 0
    assert filled.has_clean_marker
    filled.start()
    assert not filled.has_clean_marker
    assert "WARNING" not in filled.log_of_this_life()
    with Wire(filled.port) as wire:
        assert _values(wire, "stream") == [b"%d" % number for number in range(RECORDS)]
        assert _leader_epoch(wire, "stream") == epoch
        assert _produce(wire, "stream", b"next") == RECORDS


def test_a_kill_leaves_no_marker_and_the_next_start_leads_in_a_new_epoch(filled: BrokerProcess) -> None:
    with Wire(filled.port) as wire:
        epoch = _leader_epoch(wire, "stream")
    filled.kill()
    assert not filled.has_clean_marker
    filled.start()
    with Wire(filled.port) as wire:
        assert _values(wire, "stream") == [b"%d" % number for number in range(RECORDS)]
        assert _leader_epoch(wire, "stream") == epoch + 1


def test_a_kill_of_the_next_start_does_not_make_the_first_stop_clean_again(filled: BrokerProcess) -> None:
    """The next start removes the marker of a clean stop, however that start ends."""
    assert filled.terminate() == 0
    filled.start()
    with Wire(filled.port) as wire:
        _produce(wire, "stream", b"later")
    filled.kill()
    assert not filled.has_clean_marker
    filled.start()
    with Wire(filled.port) as wire:
        assert _values(wire, "stream")[-1] == b"later"


def test_a_second_broker_on_the_same_directory_is_refused_and_the_first_goes_on(
    filled: BrokerProcess, tmp_path: Path
) -> None:
    second = BrokerProcess(filled.data_dir, tmp_path / "second.log", {})
    second.launch()
    try:
        assert second.wait_dead(30.0)
        assert second.process.returncode != 0
        assert f"process {filled.process.pid}) uses the data directory {filled.data_dir}" in second.last_words()
    finally:
        second.close()
    with Wire(filled.port) as wire:
        assert _produce(wire, "stream", b"next") == RECORDS


def test_the_directory_is_free_again_after_a_kill(filled: BrokerProcess) -> None:
    """The lock ends with the process; a stale .lock file is no lock."""
    filled.kill()
    assert (filled.data_dir / ".lock").exists()
    filled.start()


@pytest.mark.parametrize("name", ["deleted", "x" * 249])
def test_a_kill_between_the_two_steps_of_deleting_a_topic(broker: BrokerProcess, name: str) -> None:
    """The metadata deletes the topic, but its files remain: a new topic must not use them."""
    broker.kill()
    broker.start(doom=["--call", "rename", "--count", "1", "--moment", "before"])
    with Wire(broker.port) as wire:
        _create(wire, name)
        _produce(wire, name, b"old")
        with pytest.raises(ConnectionError):
            wire.call(ApiKey.DELETE_TOPICS, 4, {"topic_names": [name], "timeout": 30_000})
    assert broker.wait_dead(30.0)
    broker.start()
    with Wire(broker.port) as wire:
        _create(wire, name)
        assert _values(wire, name) == []
        assert _produce(wire, name, b"new") == 0
