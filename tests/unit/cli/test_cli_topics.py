"""``ottla topics``, used by people and scripts."""

from __future__ import annotations

import json
import re
from uuid import uuid4

import pytest
from tests.unit.cli.cli_results import Ottla


def fresh() -> str:
    return f"cli-{uuid4().hex[:8]}"


def test_a_topic_is_created_as_asked(ottla: Ottla) -> None:
    name = fresh()
    created = ottla("topics", "create", name, "-p", "2", "-r", "1", "-c", "retention.ms=60000")
    assert (created.code, created.text) == (0, f"created topic {name}: 2 partitions, replication factor 1\n")
    (described,) = json.loads(ottla("topics", "describe", name, "--json").out)
    assert described["topic"] == name
    assert re.fullmatch(r"[\w-]{22}", described["topic_id"])
    assert described["configs"]["retention.ms"] == {"value": "60000", "source": "topic"}
    assert [(one["partition"], one["start_offset"], one["end_offset"]) for one in described["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    assert all(one["isr"] == one["replicas"] == [one["leader"]] for one in described["partitions"])
    assert all(one["elr"] == one["offline_replicas"] == [] for one in described["partitions"])


def test_a_topic_that_exists_is_an_error_unless_that_is_fine(ottla: Ottla, topic: str) -> None:
    again = ottla("topics", "create", topic)
    assert again.code == 1
    assert topic in again.err
    assert "exists" in again.err
    assert ottla("topics", "create", topic, "--if-not-exists").code == 0


def test_several_topics_are_created_and_the_failure_of_one_is_told(ottla: Ottla, topic: str) -> None:
    other = fresh()
    created = ottla("topics", "create", topic, other, "--json")
    assert created.code == 1
    statuses = {one["topic"]: one["status"] for one in json.loads(created.out)}
    assert statuses == {topic: "failed", other: "created"}


def test_nothing_is_created_when_only_validating(ottla: Ottla) -> None:
    name = fresh()
    assert ottla("topics", "create", name, "--validate-only").code == 0
    assert ottla("topics", "describe", name).code == 1


def test_the_list_is_a_table_names_or_json(ottla: Ottla, topic: str) -> None:
    table = ottla("topics", "list").lines
    assert table[0].split() == ["TOPIC", "PARTITIONS", "REPLICATION-FACTOR"]
    assert [topic, "3", "1"] in [line.split() for line in table]
    assert topic in ottla("topics", "list", "--quiet").lines
    listed = {one["topic"]: one for one in json.loads(ottla("topics", "list", "--json").out)}
    assert listed[topic]["partitions"] == 3


def test_describe_shows_offsets_and_only_configs_that_were_set(ottla: Ottla, topic: str) -> None:
    ottla("topics", "alter", topic, "--config", "segment.ms=12345")
    ottla("produce", topic, "--partition", "1", stdin=b"a\nb\n")
    text = ottla("topics", "describe", topic).text
    assert f"topic {topic}" in text
    assert "segment.ms=12345" in text
    assert "cleanup.policy" not in text
    assert re.search(r"^ +1 +\d+ +\d+ +\d+ +- +0 +2$", text, re.MULTILINE)
    assert "cleanup.policy=delete" in ottla("topics", "describe", topic, "--all-configs").text


def test_describe_without_names_describes_all(ottla: Ottla, topic: str) -> None:
    assert topic in {one["topic"] for one in json.loads(ottla("topics", "describe", "--json").out)}


def test_alter_adds_partitions_and_sets_and_unsets_configs(ottla: Ottla, topic: str) -> None:
    assert ottla("topics", "alter", topic, "-c", "retention.ms=5", "-c", "segment.ms=6").code == 0
    altered = ottla("topics", "alter", topic, "-p", "5", "-c", "segment.ms=7", "--delete-config", "retention.ms")
    assert altered.text == f"altered topic {topic}: segment.ms=7, retention.ms unset, 5 partitions\n"
    (described,) = json.loads(ottla("topics", "describe", topic, "--json").out)
    assert len(described["partitions"]) == 5
    own = {name: one["value"] for name, one in described["configs"].items() if one["source"] == "topic"}
    assert own == {"segment.ms": "7"}


def test_deleted_topics_are_gone(ottla: Ottla, topic: str) -> None:
    assert ottla("topics", "delete", topic).text == f"deleted topic {topic}\n"
    assert ottla("topics", "describe", topic).code == 1
    assert ottla("topics", "delete", topic).code == 1
    assert ottla("topics", "delete", topic, "--if-exists").code == 0


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["create", "{fresh}", "-c", "retenton.ms=1"], 1, r"retenton\.ms.*[Dd]id you mean '?retention\.ms'?\?"),
        (["create", "{fresh}", "-c", "retention.ms=soon"], 1, r"retention\.ms"),
        (["create", "{fresh}", "-c", "retention.ms"], 2, "'retention.ms' is not a setting: write NAME=VALUE"),
        (["create", "{fresh}", "-c", "a=1", "-c", "a=2"], 2, "a is set twice"),
        (["create", "{fresh}", "-p", "0"], 2, "'0' is not a whole number >= 1"),
        (["create", "{fresh}", "-p", "many"], 2, "'many' is not a whole number >= 1"),
        (["create", "{fresh}", "-r", "3"], 1, "[Rr]eplication factor"),
        (["create", "a topic"], 1, "a topic.*(ASCII|letters|characters)"),
        (["create"], 2, "required: TOPIC"),
        (["alter", "{topic}"], 2, "nothing to alter: use --partitions"),
        (["alter", "{topic}", "-p", "2"], 1, "The new number must be higher, not 2"),
        (["alter", "{topic}", "-c", "max.mesage.bytes=1"], 1, r"[Dd]id you mean '?max\.message\.bytes'?\?"),
        (["alter", "{topic}x", "-p", "9"], 1, r"topic '{topic}x' does not exist; did you mean '{topic}'\?"),
        (["describe", "{topic}x"], 1, r"topic '{topic}x' does not exist; did you mean '{topic}'\?"),
        (["delete", "{topic}x"], 1, r"topic '{topic}x' does not exist; did you mean '{topic}'\?"),
        (["lst"], 2, r"unknown command 'lst'; did you mean 'list'\?"),
        ([], 2, "required: ACTION"),
    ],
)
def test_mistakes_are_told_in_one_line(ottla: Ottla, topic: str, args: list[str], code: int, message: str) -> None:
    filled = [arg.format(fresh=fresh(), topic=topic) for arg in args]
    result = ottla("topics", *filled)
    assert (result.code, result.out) == (code, b"")
    assert result.err.count("\n") == 1
    assert re.search(message.replace("{topic}", topic), result.err), result.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["orders"], "nothing to do: use --replication-factor"),
        (["--replication-factor", "2"], "name the topics, or use --all"),
        (["orders", "--all", "--replication-factor", "2"], "name topics or use --all, not both"),
        (["orders", "--status", "--replication-factor", "2"], "remove --replication-factor"),
        (["orders", "--status", "--cancel"], "exclude each other"),
        (["orders", "--replicas", "1,2", "--replication-factor", "2"], "--replicas says everything"),
        (["orders", "users", "--replicas", "1,2"], "for one topic"),
        (["orders", "--replicas", "1;2"], "write 1,2,3, or 0=1,2,3 for partition 0"),
        (["orders", "--replicas", "1,1"], "has a broker twice"),
        (["orders", "--replicas", "0=1", "--replicas", "0=2"], "given twice for a partition"),
        (["orders", "--replicas", "1", "--replicas", "0=2"], "given twice for a partition"),
    ],
)
def test_a_reassignment_that_makes_no_sense_is_refused(ottla: Ottla, arguments: list[str], says: str) -> None:
    refused = ottla("topics", "reassign", *arguments)
    assert refused.code == 2
    assert says in refused.err


def test_a_reassignment_is_planned_from_what_is_there(ottla: Ottla, topic: str) -> None:
    broker = json.loads(ottla("topics", "describe", topic, "--json").out)[0]["partitions"][0]["leader"]
    same = ottla("topics", "reassign", topic, "--replicas", str(broker), "--dry-run")
    assert (same.code, same.text) == (0, "nothing to do: all replicas are where they should be\n")
    for arguments, says in (
        (["--replication-factor", "99"], f"{topic}-0 needs 99 brokers for 99 replicas, but only 1 can take them"),
        (["--without-broker", str(broker)], "but only 0 can take them: none"),
        (["--replicas", "4711"], "there is no broker 4711"),
        (["--replicas", f"9={broker}"], f"topic {topic} has no partition 9: it has 0 to 2"),
    ):
        refused = ottla("topics", "reassign", topic, *arguments)
        assert refused.code == 2
        assert says in refused.err
    assert ottla("topics", "reassign", topic, "--status").text == "no partition is being reassigned\n"


def test_unclean_leaders_are_elected_only_for_named_topics(ottla: Ottla) -> None:
    refused = ottla("topics", "elect-leaders", "--unclean")
    assert (refused.code, "name the topics" in refused.err) == (2, True)
    refused = ottla("topics", "elect-leaders", "--partition", "1")
    assert (refused.code, "exactly one topic" in refused.err) == (2, True)
