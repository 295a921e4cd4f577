"""``ottla offsets dump --latest``: only valid entries, also for transactions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli.cli_results import Ottla
from tests.unit.cli.groups.group_members import Member

from ottla import Producer, TopicPartition
from ottla.cli.offsets.latest import Latest
from ottla.clients.admin.offsets_topic import Entry, Transaction
from ottla.consuming.values import ConsumerGroupMetadata
from ottla.coordinator import records as r
from ottla.coordinator.offsets import NO_PRODUCER, Offsets

GROUP = "g"


@pytest.fixture
def producer(bootstrap: str, group: str) -> Iterator[Producer[Any, Any]]:
    with Producer(bootstrap_servers=bootstrap, transactional_id=f"of-{group}") as made:
        made.init_transactions()
        yield made


def latest(ottla: Ottla, group: str) -> tuple[dict[int, int], str]:
    """The offset of each partition, and stderr."""
    result = ottla("offsets", "dump", "--group", group, "--kind", "offsets", "--latest", "--json")
    assert result.code == 0
    found = [json.loads(line) for line in result.lines]
    return {one["key"]["partition"]: one["value"]["offset"] for one in found}, result.err


def test_an_offset_of_a_transaction_is_shown_once_that_is_committed(
    ottla: Ottla, inactive: Member, producer: Producer[Any, Any], records: str, group: str
) -> None:
    metadata = ConsumerGroupMetadata(group)
    assert latest(ottla, group) == ({0: 4}, "")
    producer.begin_transaction()
    producer.send_offsets_to_transaction({TopicPartition(records, 0): 7}, metadata)
    offsets, said = latest(ottla, group)
    assert offsets == {0: 4}
    assert said == "offsets of open transactions are not shown\n"
    producer.abort_transaction()
    assert latest(ottla, group) == ({0: 4}, "")
    producer.begin_transaction()
    producer.send_offsets_to_transaction({TopicPartition(records, 0): 8, TopicPartition(records, 1): 2}, metadata)
    producer.commit_transaction()
    assert latest(ottla, group) == ({0: 8, 1: 2}, "")


def test_all_that_was_written_is_shown_without_latest(
    ottla: Ottla, inactive: Member, producer: Producer[Any, Any], records: str, group: str
) -> None:
    producer.begin_transaction()
    producer.send_offsets_to_transaction({TopicPartition(records, 0): 7}, ConsumerGroupMetadata(group))
    producer.abort_transaction()
    lines = ottla("offsets", "dump", "--group", group, "--kind", "offsets", "--json").lines
    assert [json.loads(line)["value"]["offset"] for line in lines] == [4, 7]


def commit(partition: int, offset: int | None, producer_id: int = NO_PRODUCER) -> Entry:
    value = None if offset is None else r.OffsetCommitValue(offset)
    record = r.CoordinatorRecord(r.OffsetCommitKey(GROUP, "t", partition), value)
    return Entry(0, 0, 0, record, None if producer_id == NO_PRODUCER else Transaction(producer_id, 0))


def end(producer_id: int, marker: str, log_partition: int = 0) -> Entry:
    return Entry(log_partition, 0, 0, None, Transaction(producer_id, 0, marker))


def shown(*entries: Entry) -> dict[int, int]:
    found = Latest()
    for entry in entries:
        found.add(entry)
    return {one.record.key.partition: one.record.value.offset for one in found.entries() if one.record is not None}


def test_a_commit_after_the_one_in_the_transaction_wins() -> None:
    assert shown(commit(0, 50, 9), commit(0, 60), end(9, "commit")) == {0: 60}


def test_a_deletion_after_the_one_in_the_transaction_wins() -> None:
    assert shown(commit(0, 50, 9), commit(0, None), end(9, "commit")) == {}


def test_what_is_shown_is_in_the_order_of_the_log() -> None:
    assert list(shown(commit(1, 50, 9), commit(0, 60), end(9, "commit"))) == [1, 0]


def test_the_end_of_a_transaction_is_that_of_its_partition_only() -> None:
    assert shown(commit(0, 50, 9), end(9, "commit", log_partition=1)) == {}


partitions, producers = st.integers(0, 2), st.integers(1, 3)
plain = st.builds(commit, partitions, st.none() | st.integers(0, 1_000))
transactional = st.builds(commit, partitions, st.integers(0, 1_000), producers)
ends = st.builds(end, producers, st.sampled_from(["commit", "abort"]))


@given(st.lists(plain | transactional | ends, max_size=30))
def test_it_shows_what_the_coordinator_tells(entries: list[Entry]) -> None:
    found, offsets = Latest(), Offsets(metadata_max=4096)
    for entry in entries:
        found.add(entry)
        one = entry.transaction
        if entry.record is not None:
            key, value = entry.record
            offsets.replay(key, value, one.producer_id if one is not None else NO_PRODUCER)
        elif one is not None:
            offsets.end_transaction(one.producer_id, committed=one.marker == "commit")
    told = {key.partition: value for key, value in offsets.of_group(GROUP).items()}
    assert {e.record.key.partition: e.record.value for e in found.entries() if e.record is not None} == told
