"""``ottla groups describe`` and ``members``: offsets, lag, members, state."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.unit.cli.cli_results import Ottla
from tests.unit.cli.groups.group_members import Member, ModernMember, give_all, share

COLUMNS = ["CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID", "LAG-SECONDS"]


def test_offsets_and_lag_stand_in_the_columns_of_kafkas_tool(
    ottla: Ottla, active: Member, records: str, group: str
) -> None:
    lines = [line.split() for line in ottla("groups", "describe", group).lines]
    who = [active.member_id, "/127.0.0.1", "worker"]
    assert [line[:-1] for line in lines] == [
        ["GROUP", "TOPIC", "PARTITION", *COLUMNS[:-1]],
        [group, records, "0", "4", "10", "6", *who],
        [group, records, "1", "-", "5", "-", *who],
        [group, records, "2", "-", "0", "-", *who],
    ]
    assert lines[0][-1] == "LAG-SECONDS"
    assert 0 <= float(lines[1][-1]) < 60
    assert [line[-1] for line in lines[2:]] == ["-", "-"]


def test_verbose_offsets_have_the_leader_epoch(ottla: Ottla, active: Member, group: str) -> None:
    assert ottla("groups", "describe", group, "-v").lines[0].split()[3] == "LEADER-EPOCH"


def test_a_group_without_members_still_shows_its_offsets(
    ottla: Ottla, inactive: Member, records: str, group: str
) -> None:
    lines = [line.split() for line in ottla("groups", "describe", group, "--offsets").lines]
    assert [line[:-1] for line in lines[1:]] == [[group, records, "0", "4", "10", "6", "-", "-", "-"]]
    (state,) = [line.split() for line in ottla("groups", "describe", group, "--state").lines[1:]]
    assert state[0] == group
    assert state[-3:] == ["-", "Empty", "0"]


def test_members_and_what_they_have(
    ottla: Ottla, active: Member, member: Callable[..., Member], records: str, group: str
) -> None:
    other = member("other", records, instance_id="i-1")
    share(active, other)
    lines = [line.split() for line in ottla("groups", "describe", group, "--members").lines]
    assert lines[0] == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    assert sorted(lines[1:]) == sorted(
        [
            [group, active.member_id, "-", "/127.0.0.1", "worker", "1"],
            [group, other.member_id, "i-1", "/127.0.0.1", "other", "2"],
        ]
    )
    assignments = {line.split()[1]: line.split()[-1] for line in ottla("groups", "members", group).lines}
    assert assignments == {
        "CONSUMER-ID": "ASSIGNMENT",
        active.member_id: f"{records}:0",
        other.member_id: f"{records}:1,2",
    }


def test_the_state_names_coordinator_and_assignor(ottla: Ottla, active: Member, bootstrap: str, group: str) -> None:
    lines = ottla("groups", "describe", group, "--state").lines
    assert lines[0].split() == ["GROUP", "COORDINATOR", "(ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    assert lines[1].split() == [group, bootstrap, "(1)", "range", "Stable", "1"]


def test_json_has_everything(ottla: Ottla, active: Member, records: str, group: str) -> None:
    (described,) = json.loads(ottla("groups", "describe", group, "--json").out)
    assert [described[name] for name in ("group", "type", "state", "assignor")] == [group, "Classic", "Stable", "range"]
    (one,) = described["members"]
    assert (one["consumer_id"], one["client_id"], one["topics"]) == (active.member_id, "worker", [records])
    assert one["assignment"] == [{"topic": records, "partition": number} for number in range(3)]
    assert one == json.loads(ottla("groups", "members", group, "--json").out)[0]
    first = described["offsets"][0]
    assert {name: first[name] for name in ("partition", "current_offset", "log_end_offset", "lag", "consumer_id")} == {
        "partition": 0,
        "current_offset": 4,
        "log_end_offset": 10,
        "lag": 6,
        "consumer_id": active.member_id,
    }


def test_all_groups_are_described_at_once(ottla: Ottla, active: Member, group: str) -> None:
    assert group in {line.split()[0] for line in ottla("groups", "describe", "--all-groups").lines}
    assert group in {one["group"] for one in json.loads(ottla("groups", "describe", "--all-groups", "--json").out)}


def test_offsets_of_a_deleted_topic_have_no_end(
    ottla: Ottla, member: Callable[..., Member], topic: str, group: str
) -> None:
    one = member("worker", topic)
    give_all(one)
    one.commit({1: 0})
    assert ottla("topics", "delete", topic).code == 0
    result = ottla("groups", "describe", group)
    assert result.code == 0
    assert all(line.split()[4] == "-" for line in result.lines[1:])


def test_a_group_of_the_consumer_protocol_shows_its_epochs(
    ottla: Ottla, bootstrap: str, records: str, group: str
) -> None:
    with ModernMember(bootstrap, group, records) as one:
        one.join()
        (listed,) = [line.split() for line in ottla("groups", "list", "--type", "consumer").lines if group in line]
        lines = [line.split() for line in ottla("groups", "members", group).lines]
        (state,) = [line.split() for line in ottla("groups", "describe", group, "--state", "-v").lines[1:]]
        one.leave()
    assert listed == [group, "Consumer", "Stable", "consumer"]
    every = f"{records}:0,1,2"
    assert lines[0][-4:] == ["CURRENT-EPOCH", "ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    assert lines[1] == [group, one.member_id, "/127.0.0.1", "test", "3", lines[1][5], every, lines[1][5], every]
    assert state[-5:] == ["Stable", "Consumer", lines[1][5], lines[1][5], "1"]


def test_lag_by_topic_in_records_and_seconds(ottla: Ottla, active: Member, records: str, group: str) -> None:
    lines = [line.split() for line in ottla("groups", "lag", group).lines]
    assert lines[0] == ["GROUP", "TOPIC", "PARTITIONS", "LAG", "LAG-SECONDS", "LOST"]
    assert lines[1][:4] == [group, records, "3", "6"]
    assert 0 <= float(lines[1][4]) < 60
    (total,) = json.loads(ottla("groups", "lag", group, "--json").out)
    assert (total["lag"], total["lost"]) == (6, 0)
    active.commit({0: 10})
    (total,) = json.loads(ottla("groups", "lag", group, "--json").out)
    assert (total["lag"], total["lag_seconds"]) == (0, 0)


def test_lag_needs_a_group_or_all_of_them(ottla: Ottla) -> None:
    result = ottla("groups", "lag")
    assert result.code == 2
    assert "--all-groups" in result.err
