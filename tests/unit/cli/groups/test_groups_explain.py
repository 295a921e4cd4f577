"""``ottla groups explain``: the rebalance history of a broker, and its timeline."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.cli.cli_results import Ottla
from tests.unit.cli.groups.group_members import Member, share

from ottla.cli.groups import explain
from ottla.clients.admin.groups import CLASSIC, CONSUMER, GroupDescription, GroupMember
from ottla.clients.admin.offsets_topic import GroupHistory, read_history
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.metadata import Node
from ottla.coordinator import history
from ottla.coordinator.records import HistoryValue, Latecomer, PartitionMove, Trigger, Who
from ottla.groups.timeline import Names, derived_lines, now_lines, rebalance_lines
from ottla.monitoring.derived import Derived
from ottla.types import TopicPartition

outside = os.environ.get("OTTLA_COMPAT_BOOTSTRAP")
keeps_history = pytest.mark.skipif(bool(outside), reason="only ottla's broker writes the history")
UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
ALICE = Who(f"alice-{UUID}", None, "alice", "/10.0.0.1")
BOB = Who("xTd8a22yQeaYdK5BdgVx8w", "i-1", "bob", "/10.0.0.2")


@keeps_history
def test_a_timeline_tells_who_caused_what(
    ottla: Ottla, active: Member, member: Callable[..., Member], records: str, group: str
) -> None:
    other = member("other", records)
    share(active, other, reason="first join of the day")
    text = ottla("groups", "explain", group).text
    first, second = text.split("\n\n")[1:]
    assert text.startswith(f"group {group}: Stable, 2 members, classic protocol, assignor range\n")
    assert re.match(r"#0  \d{4}-.* generation 1, stable after \d+ ms\n    because  member joined: worker-", first)
    assert re.search(r"moved +3 partitions, 0 kept\n +nobody -> worker-\w{8}  " + f"{records}:0,1,2", first)
    assert re.search(r'member joined: other-\w{8} on 127\.0\.0\.1; reason: "first join of the day"\n', second)
    assert re.search(r"waited +\d+ ms for joins, \d+ ms for the leader's assignment\n", second)
    assert re.search(r"moved +2 partitions, 1 kept\n +worker-\w{8} -> other-\w{8}  " + f"{records}:1,2", second)


@keeps_history
def test_json_has_the_record_and_the_length_of_each_phase(ottla: Ottla, inactive: Member, group: str) -> None:
    explained = json.loads(ottla("groups", "explain", group, "--json").out)
    assert (explained["group"], explained["state"]) == (group, "Empty")
    joined, left = explained["rebalances"]
    assert joined["took_ms"] == joined["waited_for_joins_ms"] + joined["waited_for_leader_ms"]
    assert [(one["outcome"], one["generation"]) for one in (joined, left)] == [("stable", 1), ("empty", 2)]
    assert left["triggers"][0]["kind"] == "member left"
    assert left["triggers"][0]["who"]["client_id"] == "worker"


@keeps_history
def test_only_the_last_ones_and_with_full_ids_if_asked(ottla: Ottla, inactive: Member, group: str) -> None:
    text = ottla("groups", "explain", group, "--last", "1", "--full-ids").text
    assert "#0 " not in text
    assert f"member left: {inactive.member_id} on 127.0.0.1" in text


@keeps_history
def test_a_rebalance_that_hangs_is_told_with_its_reason_and_whom_the_group_waits_for(
    ottla: Ottla, active: Member, member: Callable[..., Member], records: str, group: str
) -> None:
    other = member("other", records)
    other.begin_join("I am new")
    active.await_rebalance()
    assert ottla("groups", "explain", group).text.endswith(
        "\n\nnow: PreparingRebalance; "
        "run this command again to see the cause and the members that the group waits for\n"
    )
    while "waiting" not in (text := ottla("groups", "explain", group).text):
        pass
    told = json.loads(ottla("groups", "explain", group, "--json").out)["under_way"]
    active.join()
    other.end_join()
    block = text.split("\n\n")[-1]
    assert re.match(r"#1  \d{4}-.* in progress; the group is PreparingRebalance\n", block)
    assert re.search(r'because  member joined: other-\w{8} on 127\.0\.0\.1; reason: "I am new"\n', block)
    assert re.search(r"waiting  for worker-\w{8} on 127\.0\.0\.1 to join again\n", block)
    assert [who["member_id"] for who in told["waiting_for"]] == [active.member_id]


@keeps_history
def test_a_group_that_never_had_members_has_not_rebalanced(ottla: Ottla, records: str, group: str) -> None:
    ottla("groups", "reset-offsets", group, "--topic", records, "--to-earliest", "--execute")
    result = ottla("groups", "explain", group)
    assert result.code == 0
    assert "the group has not rebalanced yet" in result.text


@pytest.fixture
def without_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what only ottla's broker records, as if the broker were Apache Kafka."""

    async def read(cluster: Cluster, group: str) -> GroupHistory:
        return replace(await read_history(cluster, group), rebalances=(), under_way=None)

    monkeypatch.setattr(explain, "read_history", read)


def test_a_broker_that_keeps_no_history(
    ottla: Ottla, without_history: None, active: Member, member: Callable[..., Member], topic: str, group: str
) -> None:
    share(active, member("other", topic))
    result = ottla("groups", "explain", group)
    assert result.code == 0
    assert "keeps no history of rebalances" in result.text
    assert "generation 2, 2 members" in result.text
    lines = [line.split() for line in result.lines]
    assert [line[1].rsplit("-", 1)[0] for line in lines if line[:1] == ["joined"]] == ["worker", "other"]
    assert ["moved", "2", "partitions,", "1", "kept"] in lines
    assert "unknown:" in result.lines
    told = json.loads(ottla("groups", "explain", group, "--json", "--last", "1").out)
    assert (told["is_derived"], told["rebalances"][0]["causes"]) == (True, ["member joined"])
    assert any("session expired" in one for one in told["unknown"])


def test_generations_that_compaction_removed_are_told() -> None:
    value = Derived(1_700_000_000_000, 7, 6, 3)
    lines = list(derived_lines(value, Names((), ()), "Classic"))
    assert lines[0] == "-   6 earlier generations unknown: compaction removed the records"
    assert lines[2:] == ["    because  unknown; no member is known to have joined or gone", "    moved    unknown"]


def rebalance(**changes: object) -> HistoryValue:
    fields: dict[str, object] = {
        "number": 7,
        "generation": 3,
        "outcome": history.STABLE,
        "protocol": "range",
        "started_at": 1_700_000_000_000,
        "joined_at": 1_700_000_003_100,
        "ended_at": 1_700_000_003_150,
        "members": 2,
        "leader": ALICE.member_id,
        "triggers": (Trigger(history.MEMBER_JOINED, 1_700_000_000_000, BOB),),
        "triggers_left_out": 0,
        "late": (),
        "partitions_kept": 1,
        "partitions_moved": 0,
        "moves": (),
    }
    return HistoryValue(**{**fields, **changes})  # type: ignore[arg-type]


def lines(value: HistoryValue, **options: str) -> list[str]:
    return [re.sub(r" +", " ", line).strip() for line in rebalance_lines(value, Names((), [value]), **options)][1:]


def test_long_lists_end_with_what_was_left_out() -> None:
    moves = (
        PartitionMove("t", 0, ALICE.member_id, BOB.member_id),
        PartitionMove("t", 1, None, ALICE.member_id),
        PartitionMove("t", 2, ALICE.member_id, BOB.member_id),
    )
    triggers = (Trigger(history.SESSION_EXPIRED, 1_700_000_001_500, ALICE),)
    value = rebalance(triggers=triggers, triggers_left_out=4, moves=moves, partitions_moved=9)
    assert lines(value) == [
        "because session expired: alice-0f8fad5b on 10.0.0.1, 1.5 s later",
        "and 4 more",
        "waited 3.1 s for joins, 50 ms for the leader's assignment",
        "members 2, assignor range, leader alice-0f8fad5b",
        "moved 9 partitions, 1 kept",
        "alice-0f8fad5b -> xTd8a22y t:0,2",
        "nobody -> alice-0f8fad5b t:1",
        "and 6 more",
    ]


COORDINATOR = Node(0, "10.0.0.9", 9092)


def now(group: GroupDescription, value: HistoryValue | None) -> list[str]:
    names = Names(group.members, [] if value is None else [value])
    return [re.sub(r" +", " ", line).strip() for line in now_lines(group, value, names)]


def test_a_leader_that_does_not_assign_is_waited_for() -> None:
    member = GroupMember(ALICE.member_id, None, "alice", "/10.0.0.1")
    group = GroupDescription("g", CLASSIC, "CompletingRebalance", "consumer", "", COORDINATOR, (member,))
    value = rebalance(outcome=history.UNDER_WAY, waiting_for=(ALICE, BOB))
    first, *others = now(group, value)
    assert first.endswith("in progress; the group is CompletingRebalance")
    assert others == [
        "because member joined: bob-xTd8a22y (static member i-1) on 10.0.0.2",
        "waiting for alice-0f8fad5b on 10.0.0.1, the leader, to assign",  # Bob has gone meanwhile.
    ]


def test_in_a_consumer_group_those_behind_its_epoch_are_waited_for_and_then_those_who_take() -> None:
    mine = tuple(TopicPartition("t", number) for number in range(3))
    alice = GroupMember(ALICE.member_id, None, "alice", "/10.0.0.1", assignment=mine[:2], target=mine[:2], epoch=5)
    bob = GroupMember(BOB.member_id, "i-1", "bob", "/10.0.0.2", target=mine[2:], epoch=6)
    group = GroupDescription("g", CONSUMER, "Reconciling", "consumer", "", COORDINATOR, (alice, bob), epoch=6)
    value = rebalance(outcome=history.UNDER_WAY, joined_at=-1)
    assert now(group, value)[2:] == ["waiting for alice-0f8fad5b on 10.0.0.1, which is in epoch 5 of 6"]
    group = replace(group, members=(replace(alice, epoch=6), bob))
    assert now(group, value)[2:] == ["waiting for bob-xTd8a22y (static member i-1) on 10.0.0.2 to take t:2"]
    group = replace(group, members=(replace(bob, epoch=-2),))
    (waiting,) = now(group, value)[2:]
    assert waiting.endswith("bob-xTd8a22y (static member i-1) on 10.0.0.2, a static member that left temporarily")


def test_of_a_group_at_rest_nothing_is_told_of_now() -> None:
    assert now(GroupDescription("g", CLASSIC, "Stable", "consumer", "", COORDINATOR), None) == []


def test_a_consumer_group_has_phases_and_latecomers_of_its_own() -> None:
    late = (
        Latecomer(ALICE, 3_000, removed=False, did="gave up its partitions"),
        Latecomer(BOB, 3_150, removed=False, did="took its partitions"),
    )
    assert lines(rebalance(joined_at=-1, revoked_at=1_700_000_003_000, late=late))[1:4] == [
        "waited 3.0 s for revocations, 150 ms for new owners",
        "late alice-0f8fad5b on 10.0.0.1 gave up its partitions after 3.0 s",
        "bob-xTd8a22y (static member i-1) on 10.0.0.2 took its partitions after 3.1 s",
    ]


def test_late_members_are_named() -> None:
    late = (Latecomer(ALICE, 3_000, removed=False), Latecomer(BOB, 125_000, removed=True))
    assert lines(rebalance(late=late))[2:4] == [
        "late alice-0f8fad5b on 10.0.0.1 responded after 3.0 s",
        "bob-xTd8a22y (static member i-1) on 10.0.0.2 did not respond within 2 min 5 s and was removed",
    ]


@pytest.mark.parametrize(
    ("outcome", "generation", "kind", "expected"),
    [
        (history.STABLE, 3, "", "generation 3, stable after 3.1 s"),
        (history.STABLE, 3, CONSUMER, "epoch 3, stable after 3.1 s"),
        (history.EMPTY, 4, "", "generation 4, no members left after 3.1 s"),
        (history.UNCHANGED, 3, "", "generation 3 unchanged: no rebalance was needed"),
        (history.INTERRUPTED, 3, "", "generation 3 unchanged: interrupted when the coordinator stopped, after 3.1 s"),
        ("something new", -1, "", "no generation, something new after 3.1 s"),
    ],
)
def test_the_first_line_tells_how_it_ended(outcome: str, generation: int, kind: str, expected: str) -> None:
    value = rebalance(outcome=outcome, generation=generation)
    first = next(rebalance_lines(value, Names((), [value]), kind))
    assert first.startswith("#7 ")
    assert first.endswith(expected)


def test_a_change_of_topics_is_told_as_it_was_noticed_and_not_as_what_somebody_said() -> None:
    change = Trigger(history.PARTITIONS_ADDED, 1_700_000_001_500, None, "orders has 8 partitions instead of 6")
    (because, *_) = lines(rebalance(triggers=(change,), started_at=change.at))
    assert because == "because partitions added: orders has 8 partitions instead of 6"


def test_what_is_not_known_is_left_out() -> None:
    value = rebalance(joined_at=-1, members=0, leader="", protocol="", triggers=(), partitions_kept=0)
    assert lines(value) == ["because the cause was not recorded"]
    assert lines(rebalance(joined_at=-1))[-1] == "moved nothing; all of 1 partition kept"
