"""``ottla groups list``, ``delete``, ``remove-members`` and ``delete-offsets``, used by people and scripts."""

from __future__ import annotations

import json
import re

import pytest
from tests.unit.cli.cli_results import Ottla
from tests.unit.cli.groups.group_members import Member, ModernMember


def test_groups_are_listed_with_type_and_state(ottla: Ottla, active: Member, group: str) -> None:
    lines = [line.split() for line in ottla("groups", "list").lines]
    assert lines[0] == ["GROUP", "TYPE", "STATE", "PROTOCOL"]
    assert [group, "Classic", "Stable", "consumer"] in lines
    assert group in ottla("groups", "list", "--quiet").lines
    listed = {one["group"]: one for one in json.loads(ottla("groups", "list", "--json").out)}
    assert listed[group] == {"group": group, "type": "Classic", "state": "Stable", "protocol_type": "consumer"}


def test_what_members_call_themselves_does_nothing_to_the_terminal(ottla: Ottla, bootstrap: str, records: str) -> None:
    group = "odd\x1b[2J\nname"
    with Member(bootstrap, group, "red\x1b[31m", records) as member:
        member.join(reason="one\ntwo")
        member.sync({member.member_id: [0]})
        described = (["describe", group], ["describe", group, "--members"], ["members", group], ["explain", group])
        shown = [ottla("groups", *action) for action in (["list"], *described)]
        shown.append(ottla("offsets", "dump", "--group", group))
        member.leave()
    for result in shown:
        assert result.code == 0
        assert "odd\\x1b[2J\\nname" in result.text
        assert "\x1b" not in result.text
    assert '; reason: "one\\ntwo"' in shown[4].text


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--state", "stable"], True),
        (["--state", "Empty"], False),
        (["--state", "Empty", "--state", "Stable"], True),
        (["--type", "Classic"], True),
        (["--type", "consumer"], False),
        (["--type", "classic", "--state", "Empty"], False),
    ],
)
def test_the_list_can_be_filtered(ottla: Ottla, active: Member, group: str, filters: list[str], found: bool) -> None:
    assert (group in ottla("groups", "list", "--quiet", *filters).lines) is found


def test_deleted_groups_are_gone(ottla: Ottla, inactive: Member, group: str) -> None:
    assert ottla("groups", "delete", group).text == f"deleted group {group}\n"
    assert group not in ottla("groups", "list", "--quiet").lines
    assert ottla("groups", "delete", group).code == 1
    assert ottla("groups", "delete", group, "--if-exists").text == f"group {group} does not exist\n"


def test_a_group_in_use_is_not_deleted_and_who_uses_it_is_told(ottla: Ottla, active: Member, group: str) -> None:
    result = ottla("groups", "delete", group, f"{group}x", "--json")
    assert result.code == 1
    assert {one["group"]: one["status"] for one in json.loads(result.out)} == {group: "failed", f"{group}x": "failed"}
    assert "cannot be deleted while it has 1 active member (state Stable)" in result.err
    assert "stop its consumers first (client worker on 127.0.0.1)" in result.err
    assert f"group '{group}x' does not exist; did you mean '{group}'?" in result.err
    assert group in ottla("groups", "list", "--quiet").lines


def test_offsets_of_a_topic_are_forgotten(ottla: Ottla, inactive: Member, records: str, group: str) -> None:
    result = ottla("groups", "delete-offsets", group, "--topic", f"{records}:0")
    assert result.code == 0
    assert [line.split() for line in result.lines] == [["TOPIC", "PARTITION", "STATUS"], [records, "0", "deleted"]]
    described = ottla("groups", "list", "--quiet").lines
    assert group not in described or not json.loads(ottla("groups", "describe", group, "--json").out)[0]["offsets"]


def test_offsets_of_a_subscribed_topic_are_not_forgotten(
    ottla: Ottla, active: Member, records: str, group: str
) -> None:
    result = ottla("groups", "delete-offsets", group, "--topic", records, "--json")
    assert result.code == 1
    assert [one["status"] for one in json.loads(result.out)] == ["failed"] * 3
    assert f"subscribes to {records}, so these offsets cannot be deleted while it has 1 active member" in result.err


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["list", "--state", "stabel"], 2, "unknown value 'stabel'; did you mean 'stable'?"),
        (["list", "--type", "x"], 2, "unknown value 'x'; choose one of classic, consumer"),
        (["describe", "{group}x"], 1, "group '{group}x' does not exist; did you mean '{group}'?"),
        (["describe", "--all-groups", "{group}"], 2, "name the groups to describe, or use --all-groups"),
        (["describe"], 2, "name the groups to describe, or use --all-groups"),
        (["describe", "{group}", "--members", "--state"], 2, "not allowed with argument --members"),
        (["members", "{group}x"], 1, "group '{group}x' does not exist; did you mean '{group}'?"),
        (["explain", "{group}x"], 1, "group '{group}x' does not exist; did you mean '{group}'?"),
        (["delete-offsets", "{group}"], 2, "required: --topic"),
        (
            ["delete-offsets", "{group}", "--topic", "{topic}:"],
            2,
            "is not a list of partitions: write TOPIC or TOPIC:0,1,2",
        ),
        (["delete-offsets", "{group}", "--topic", "{topic}:3"], 1, "topic {topic} has no partition 3: it has 0 to 2"),
        (["delete-offsets", "{group}x", "--topic", "{topic}"], 1, "group '{group}x' does not exist"),
        (["delete"], 2, "required: GROUP"),
        (["reset"], 2, "unknown command 'reset'"),
    ],
)
def test_mistakes_are_told_in_one_line(
    ottla: Ottla, inactive: Member, records: str, group: str, args: list[str], code: int, message: str
) -> None:
    result = ottla("groups", *[arg.format(group=group, topic=records) for arg in args])
    assert (result.code, result.out) == (code, b"")
    assert result.err.count("\n") == 1
    assert re.search(re.escape(message.format(group=group, topic=records)), result.err), result.err


def test_members_are_removed(ottla: Ottla, active: Member, group: str) -> None:
    missing = ottla("groups", "remove-members", group, "nobody")
    assert missing.code == 1
    assert f"group '{group}' has no member 'nobody'" in missing.err
    assert ottla("groups", "remove-members", group, active.member_id).text == f"removed 1 member from group {group}\n"
    assert json.loads(ottla("groups", "describe", group, "--json").out)[0]["state"] == "Empty"


def test_members_of_the_consumer_protocol_are_stopped_instead(
    ottla: Ottla, bootstrap: str, group: str, records: str
) -> None:
    member = ModernMember(bootstrap, group, records)
    member.join()
    refused = ottla("groups", "remove-members", group, member.member_id)
    member.leave()
    member.close()
    assert refused.code == 1
    assert "has the consumer protocol: stop its consumers instead" in refused.err
