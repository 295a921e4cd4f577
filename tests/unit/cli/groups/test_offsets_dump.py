"""``ottla offsets dump``, from a broker and from files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.unit.cli.cli_results import Ottla
from tests.unit.cli.groups.group_members import Member, give_all, share

from ottla.broker.broker import Broker
from ottla.cli.offsets.text import TopicNames, as_json, as_text
from ottla.clients.admin.offsets_topic import entries
from ottla.coordinator import records as r
from ottla.coordinator.coordinator import partition_for
from ottla.coordinator.serde import encode
from ottla.records import Record, encode_batch, read_header

TOPIC_ID = UUID(int=7)
NAMES = TopicNames({TOPIC_ID: "orders"})


def dumped(ottla: Ottla, *args: str) -> list[dict[str, Any]]:
    result = ottla("offsets", "dump", "--json", *args)
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.lines]


def test_commits_and_groups_are_decoded(ottla: Ottla, active: Member, records: str, group: str) -> None:
    found = dumped(ottla, "--group", group)
    commit = next(one for one in found if one["type"] == "offset_commit")
    assert commit["key"] == {"group_id": group, "topic": records, "partition": 0}
    assert commit["value"]["offset"] == 4
    metadata = [one for one in found if one["type"] == "group_metadata"][-1]
    assert (metadata["value"]["generation"], metadata["value"]["protocol"]) == (1, "range")
    (member,) = metadata["value"]["members"]
    assert member["subscribed_topics"] == [records]
    assert member["assigned_partitions"] == [{"topic": records, "partition": number} for number in range(3)]
    assert {one["partition"] for one in found} == {partition_for(group, 50)}


def test_lines_are_for_people(ottla: Ottla, active: Member, records: str, group: str) -> None:
    text = ottla("offsets", "dump", "--group", group).text
    assert f"offset_commit group_id={group} topic={records} partition=0 = offset=4 leader_epoch=" in text
    assert f"subscription={records} assignment={records}:0,1,2" in text


def test_only_the_last_record_of_each_key_if_asked(ottla: Ottla, active: Member, group: str) -> None:
    active.commit({0: 5})
    active.commit({0: 6, 1: 1})
    every = dumped(ottla, "--group", group, "--kind", "offsets")
    assert [one["value"]["offset"] for one in every] == [4, 5, 6, 1]
    last = dumped(ottla, "--group", group, "--kind", "offsets", "--latest")
    assert [(one["key"]["partition"], one["value"]["offset"]) for one in last] == [(0, 6), (1, 1)]


def test_deleted_offsets_are_tombstones(ottla: Ottla, inactive: Member, records: str, group: str) -> None:
    ottla("groups", "delete-offsets", group, "--topic", f"{records}:0")
    assert dumped(ottla, "--group", group, "--kind", "offsets")[-1]["value"] is None
    assert ottla("offsets", "dump", "--group", group, "--kind", "offsets").lines[-1].endswith(" = deleted")
    assert dumped(ottla, "--group", group, "--kind", "offsets", "--latest") == []


@pytest.mark.skipif("OTTLA_COMPAT_BOOTSTRAP" in os.environ, reason="only ottla's broker writes the history")
def test_history_is_a_kind_of_its_own(
    ottla: Ottla, active: Member, member: Callable[..., Member], records: str, group: str
) -> None:
    share(active, member("other", records))
    found = dumped(ottla, "--group", group, "--kind", "history")
    assert [one["value"]["generation"] for one in found] == [1, 2]
    assert {one["type"] for one in found} == {"rebalance_history"}


def test_partitions_can_be_chosen(ottla: Ottla, active: Member, group: str) -> None:
    number = partition_for(group, 50)
    assert group in {one["key"]["group_id"] for one in dumped(ottla, "--partition", str(number)) if "key" in one}
    assert dumped(ottla, "--group", group, "--partition", str((number + 1) % 50)) == []
    wrong = ottla("offsets", "dump", "--partition", "50")
    assert (wrong.code, wrong.out) == (1, b"")
    assert "__consumer_offsets has no partition 50: it has 0 to 49" in wrong.err


def test_files_say_the_same_as_the_broker_that_wrote_them(ottla: Ottla, tmp_path: Path) -> None:
    with Broker(tmp_path, config={"group.initial.rebalance.delay.ms": 0}) as broker:
        address = broker.bootstrap_servers
        assert ottla("topics", "create", "t", "-p", "3", "-b", address).code == 0
        with Member(address, "billing", "worker", "t") as member:
            give_all(member)
            member.commit({2: 0})
        served = dumped(ottla, "-b", address, "--group", "billing")
    directory = tmp_path / f"__consumer_offsets-{partition_for('billing', 50)}"
    assert dumped(ottla, "--file", str(directory)) == served
    (segment,) = directory.glob("*.log")
    assert dumped(ottla, "--file", str(segment), "--group", "billing") == served
    assert dumped(ottla, "--file", str(segment), "--group", "another") == []


def test_a_damaged_file_is_read_up_to_the_damage(ottla: Ottla, tmp_path: Path) -> None:
    key, value = encode(r.CoordinatorRecord(r.OffsetCommitKey("g", "t", 0), r.OffsetCommitValue(7)))
    batches = [encode_batch([Record(offset, 0, key, value)]) for offset in (0, 1, 2)]
    file = tmp_path / f"{0:020}.log"
    file.write_bytes(batches[0] + batches[1][:-1] + b"\xff" + batches[2])
    result = ottla("offsets", "dump", "--file", str(file))
    assert result.code == 1
    assert len(result.lines) == 1
    assert f"is damaged at byte {len(batches[0])}" in result.err
    file.write_bytes(batches[0] + batches[1][:-1])
    assert ottla("offsets", "dump", "--file", str(file)).code == 0


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--file", "{tmp}"], 1, "has no .log files: name the directory of a partition, such as __consumer_offsets-12"),
        (["--file", "{tmp}/missing.log"], 1, "missing.log: No such file"),
        (["--file", "{tmp}", "--partition", "1"], 2, "--partition cannot be used with --file"),
        (["--kind", "offset"], 2, "unknown --kind 'offset'; did you mean 'offsets'?"),
    ],
)
def test_mistakes_are_told_in_one_line(ottla: Ottla, tmp_path: Path, args: list[str], code: int, message: str) -> None:
    result = ottla("offsets", "dump", *[arg.format(tmp=tmp_path) for arg in args])
    assert (result.code, result.out) == (code, b"")
    assert result.err.count("\n") == 1
    assert message in result.err


def entry(record: r.CoordinatorRecord, **options: Any) -> Any:
    key, value = encode(record)
    batch = encode_batch([Record(3, 0, key, value)], **options)
    (one,) = entries(batch, 0, read_header(batch), partition=12)
    return one


def test_topic_ids_are_named_where_the_cluster_knows_them() -> None:
    parts = (r.TopicPartitions(TOPIC_ID, (0, 2)), r.TopicPartitions(UUID(int=1), (1,)))
    record = r.CoordinatorRecord(
        r.ConsumerGroupTargetAssignmentMemberKey("g", "m"), r.ConsumerGroupTargetAssignmentMemberValue(parts)
    )
    assert "topic_partitions=[orders:0,2, AAAAAAAAAAAAAAAAAAAAAQ:1]" in as_text(entry(record), NAMES)
    named = as_json(entry(record), NAMES)["value"]["topic_partitions"]
    assert [one["topic"] for one in named] == ["orders", None]


def test_transactions_and_their_ends_are_shown() -> None:
    record = r.CoordinatorRecord(r.OffsetCommitKey("g", "t", 0), r.OffsetCommitValue(7))
    one = entry(record, producer_id=42, producer_epoch=1, base_sequence=0, transactional=True)
    assert as_text(one, NAMES).endswith("(transaction of producer 42, epoch 1)")
    marker = encode_batch(
        [Record(4, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")], producer_id=42, producer_epoch=1, transactional=True, control=True
    )
    (end,) = entries(marker, 0, read_header(marker), partition=12)
    assert "transaction_marker commit" in as_text(end, NAMES)
    assert as_json(end, NAMES)["transaction"] == {"producer_id": 42, "producer_epoch": 1, "marker": "commit"}


def test_what_cannot_be_read_is_shown_with_the_reason() -> None:
    batch = encode_batch([Record(0, 0, b"\0\x99", b"\0\0"), Record(1, 0, b"\0\1\0", None), Record(2, 0, None, b"x")])
    unknown, broken, keyless = entries(batch, 0, read_header(batch), partition=None)
    assert "unknown: record type 153 is not known" in as_text(unknown, NAMES)
    assert as_json(unknown, NAMES)["key"]["why"] == "record type 153 is not known"
    assert as_text(broken, NAMES).startswith("-:1 ")
    assert "unreadable: the key is not a OffsetCommitKey" in as_text(broken, NAMES)
    assert as_json(keyless, NAMES)["problem"] == "it has no key"


def test_a_record_with_a_broken_value_still_says_what_it_is_about() -> None:
    key, _ = encode(r.CoordinatorRecord(r.OffsetCommitKey("g", "t", 0), None))
    batch = encode_batch([Record(0, 0, key, b"\0\1\0"), Record(1, 0, key, None)])
    broken, deleted = entries(batch, 0, read_header(batch), partition=1)
    assert "offset_commit group_id=g topic=t partition=0 = unreadable: the value is not" in as_text(broken, NAMES)
    assert as_json(broken, NAMES)["key"]["group_id"] == broken.group_id == "g"
    assert (broken.is_tombstone, deleted.is_tombstone) == (False, True)
