"""Rebalances from Kafka's own records of a group."""

from __future__ import annotations

from ottla.assignors.base import Assignment
from ottla.assignors.embedded import encode_assignment
from ottla.coordinator import records as r
from ottla.monitoring.derived import MEMBER_GONE, UNKNOWN_CAUSE, Derived, GroupView

KEY = r.GroupMetadataKey("billing")


def generation(
    number: int, members: dict[str, list[int]], instances: dict[str, str] | None = None
) -> r.CoordinatorRecord:
    some = tuple(
        r.MemberMetadata(
            name,
            (instances or {}).get(name),
            f"client-{name}",
            "/127.0.0.1",
            60_000,
            45_000,
            b"",
            encode_assignment(Assignment({"t": numbers})),
        )
        for name, numbers in members.items()
    )
    return r.CoordinatorRecord(
        KEY, r.GroupMetadataValue("consumer", number, "range", next(iter(members), None), 0, some)
    )


def follow(*records: r.CoordinatorRecord) -> list[Derived]:
    view = GroupView()
    found = (view.feed(record, at * 1_000) for at, record in enumerate(records))
    return [one for one in found if one is not None]


def test_who_came_and_went_and_what_moved() -> None:
    first, second, third = follow(
        generation(1, {"a": [0, 1]}), generation(2, {"a": [0], "b": [1]}), generation(3, {"b": [0, 1]})
    )
    assert (first.causes, first.partitions_moved) == (("member joined",), 2)
    assert [who.member_id for who in second.joined] == ["b"]
    assert (second.partitions_moved, second.partitions_kept, second.members) == (1, 1, 2)
    assert (third.causes, [who.member_id for who in third.gone]) == ((MEMBER_GONE,), ["a"])
    assert [one.at for one in (first, second, third)] == [0, 1_000, 2_000]


def test_the_same_members_are_an_unknown_cause() -> None:
    _, second = follow(generation(1, {"a": [0]}), generation(2, {"a": [0]}))
    assert (second.causes, second.partitions_moved) == ((UNKNOWN_CAUSE,), 0)


def test_a_static_member_that_came_back() -> None:
    _, second = follow(generation(1, {"a": [0]}, {"a": "i-1"}), generation(2, {"b": [0]}, {"b": "i-1"}))
    assert second.causes == ("static member replaced",)
    assert (second.joined, second.gone) == ((), ())


def test_generations_that_compaction_removed_are_counted_and_not_guessed_about() -> None:
    first, second = follow(generation(17, {"a": [0]}), generation(20, {"a": [0], "b": []}))
    assert (first.missing, first.causes, first.partitions_moved) == (16, (UNKNOWN_CAUSE,), None)
    assert (second.missing, second.causes) == (2, ("member joined",))


def test_a_generation_that_is_written_again_and_a_deleted_group() -> None:
    again = generation(1, {"a": [0]})
    assert len(follow(again, again)) == 1
    assert len(follow(again, r.CoordinatorRecord(KEY, None), again)) == 2


def test_the_record_of_a_new_group_is_not_a_rebalance() -> None:
    (first,) = follow(generation(0, {}), generation(1, {"a": [0]}))
    assert (first.generation, first.missing, first.causes) == (1, 0, ("member joined",))


def test_a_group_of_the_consumer_protocol() -> None:
    def member(name: str, *, gone: bool = False) -> r.CoordinatorRecord:
        value = r.ConsumerGroupMemberMetadataValue(None, None, f"client-{name}", "/h", ("t",))
        return r.CoordinatorRecord(r.ConsumerGroupMemberMetadataKey("billing", name), None if gone else value)

    def epoch(number: int) -> r.CoordinatorRecord:
        return r.CoordinatorRecord(r.ConsumerGroupMetadataKey("billing"), r.ConsumerGroupMetadataValue(number))

    first, second, third = follow(
        member("a"), epoch(1), member("b"), epoch(2), member("a", gone=True), member("b", gone=True), epoch(3)
    )
    assert [who.client_id for who in first.joined] == ["client-a"]
    assert [who.client_id for who in second.joined] == ["client-b"]
    assert ([who.client_id for who in third.gone], third.members) == (["client-a", "client-b"], 0)
    assert third.partitions_moved is None
