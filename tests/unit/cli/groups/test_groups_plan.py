"""``ottla groups plan``: preview moves without changing anything."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.unit.cli.cli_results import Ottla
from tests.unit.cli.groups.group_members import Member, ModernMember, give_all, share

from ottla.clients.admin.groups import CLASSIC, GroupDescription, GroupMember
from ottla.clients.cluster.metadata import Node
from ottla.errors import ConfigError, OttlaError
from ottla.groups.plan import LEAVES, NEW, STAYS, PlannedMember, grown, plan, planned_members
from ottla.types import TopicPartition


def keys(*numbers: int, topic: str = "t") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def member(name: str, *numbers: int, status: str = STAYS, topics: str = "t") -> PlannedMember:
    return PlannedMember(name, f"client-{name}", None, frozenset(topics.split()), status, keys(*numbers))


# ── the command ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_member_gets_its_share_and_nothing_changes(ottla: Ottla, active: Member, group: str) -> None:
    before = ottla("groups", "members", group, "--json").out
    result = ottla("groups", "plan", group, "--assignor", "sticky", "--add", "2")
    assert result.code == 0, result.err
    header, *rows = result.text.split("\n\n")[0].splitlines()
    assert header.split() == ["CONSUMER-ID", "#BEFORE", "#AFTER", "GETS", "GIVES-UP"]
    assert [row.split() for row in rows] == [
        [active.member_id, "3", "1", "-", f"{active.topic}:1,2"],
        ["new-1", "(new)", "0", "1", f"{active.topic}:1", "-"],
        ["new-2", "(new)", "0", "1", f"{active.topic}:2", "-"],
    ]
    assert "sticky (now range) would move 2 partitions, 1 kept; 3 members with 1 each\n" in result.text
    assert result.text.endswith(f"  {active.member_id} -> new-2  {active.topic}-2\n")
    assert ottla("groups", "members", group, "--json").out == before


def test_json_has_members_and_moves(
    ottla: Ottla, active: Member, member: Callable[..., Member], records: str, group: str
) -> None:
    other = member("other", records)
    share(active, other)
    planned = json.loads(
        ottla("groups", "plan", group, "--remove", "other", "--partitions", f"{records}=5", "--json").out
    )
    assert (planned["assignor"], planned["present_assignor"]) == ("range", "range")
    assert (planned["moved"], planned["kept"], planned["new"]) == (2, 1, 2)
    assert sorted((one["client_id"], one["status"], len(one["after"])) for one in planned["members"]) == [
        ("other", "leaves", 0),
        ("worker", "stays", 5),
    ]
    assert planned["moves"][0] == {"topic": records, "partition": 1, "from": other.member_id, "to": active.member_id}
    assert [move["from"] for move in planned["moves"]] == [other.member_id] * 2 + [None] * 2


def test_groups_of_the_consumer_protocol_too(ottla: Ottla, bootstrap: str, topic: str, group: str) -> None:
    modern = ModernMember(bootstrap, group, topic)
    modern.join()
    text = ottla("groups", "plan", group, "--add", "1").text
    modern.leave()
    modern.close()
    assert "uniform would move 1 partition, 2 kept; 2 members with 1 to 2 each" in text


def test_nothing_to_move(ottla: Ottla, member: Callable[..., Member], topic: str, group: str) -> None:
    give_all(member("worker", topic))
    assert ottla("groups", "plan", group).text.endswith("range would move nothing: 3 partitions kept\n")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--remove", "wroker"], 2, "has no member 'wroker'; did you mean 'worker'?"),
        (["--remove", "worker"], 2, "the plan has no members left: remove fewer, or use --add"),
        (["--partitions", "other=5"], 2, "the group does not subscribe to topic 'other'"),
        (["--partitions", "{topic}=2"], 2, "has 3 partitions already; the number can only grow"),
        (["--partitions", "{topic}=many"], 2, "write a number of partitions, such as"),
        (["--assignor", "stiky"], 2, "did you mean 'sticky'?"),
    ],
)
def test_mistakes_are_told(ottla: Ottla, active: Member, group: str, options: list[str], code: int, words: str) -> None:
    result = ottla("groups", "plan", group, *(option.format(topic=active.topic) for option in options))
    assert result.code == code
    assert words in result.err


def test_a_group_without_members_cannot_be_planned(ottla: Ottla, inactive: Member, group: str) -> None:
    result = ottla("groups", "plan", group, "--assignor", "sticky", "--add", "1")
    assert result.code == 1
    assert "has no members, so its subscription is unknown" in result.err


# ── the plan itself ───────────────────────────────────────────────────────────────────────────────────────────────


def test_cooperative_sticky_needs_two_rebalances_to_move_and_one_to_add() -> None:
    moving = plan("cooperative-sticky", {"t": 4}, [member("a", 0, 1, 2, 3), member("b", status=NEW)])
    assert (len(moving.moved), moving.kept, moving.rebalances) == (2, 2, 2)
    growing = plan("cooperative-sticky", {"t": 6}, [member("a", 0, 1), member("b", 2, 3)])
    assert (len(growing.moved), len(growing.moves), growing.rebalances) == (0, 2, 1)


@pytest.mark.parametrize(("assignor", "moved"), [("range", 3), ("roundrobin", 4), ("sticky", 2), ("uniform", 2)])
def test_assignors_can_be_compared(assignor: str, moved: int) -> None:
    members = [member("a", 0, 1, 2, 3), member("b", 4, 5, 6, 7), member("c", status=NEW)]
    assert len(plan(assignor, {"t": 8}, members).moved) == moved


def test_what_a_leaving_member_had_goes_to_others() -> None:
    planned = plan("sticky", {"t": 4}, [member("a", 0, 1), member("b", 2, 3, status=LEAVES)])
    assert [(move.key.partition, move.giver, move.taker) for move in planned.moves] == [(2, "b", "a"), (3, "b", "a")]
    assert [len(each.after) for each in planned.members] == [4, 0]


def described(*members: GroupMember) -> GroupDescription:
    return GroupDescription("g", CLASSIC, "Stable", "consumer", "range", Node(1, "h", 9092), members)


def test_new_members_subscribe_as_most_do_and_patterns_are_matched() -> None:
    group = described(
        GroupMember("a-1", None, "a", "/h", ("t",)),
        GroupMember("b-1", None, "b", "/h", topic_regex="t|u.*"),
        GroupMember("b-2", "static", "b", "/h", topic_regex="t|u.*"),
        GroupMember("c-1", None, "c", "/h", topic_regex="(", assignment=(TopicPartition("v", 0),)),
    )
    members = planned_members(group, ["t", "u1", "other"], add=1, remove=["static"])
    assert [sorted(each.topics) for each in members] == [["t"], ["t", "u1"], ["t", "u1"], ["v"], ["t", "u1"]]
    assert [each.status for each in members] == [STAYS, STAYS, LEAVES, STAYS, NEW]
    with pytest.raises(ConfigError, match="'b' matches 2 members"):
        planned_members(group, [], add=0, remove=["b"])
    assert planned_members(group, [], add=0, remove=["b-2"])[2].status == LEAVES
    with pytest.raises(OttlaError, match="has no members"):
        planned_members(described(), [], add=1, remove=[])
    assert grown({"t": 3}, {"t": "7"}, members) == {"t": 7}
