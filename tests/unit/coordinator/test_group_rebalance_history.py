"""What a classic group remembers about a rebalance, until it is written."""

from __future__ import annotations

from group_context import GROUP, HISTORY_TIMER, START, assignment
from group_parts import Parts, member, trigger

from ottla.coordinator import history
from ottla.coordinator import records as r
from ottla.coordinator.classic.logged import generation_record
from ottla.coordinator.classic.static import Return
from ottla.coordinator.effects import Effects


def written(fx: Effects) -> r.HistoryValue:
    (record,) = fx.records
    assert isinstance(record.value, r.HistoryValue)
    return record.value


def generation(parts: Parts, **assignments: bytes) -> dict[str, bytes]:
    """Put a generation with these assignments into the log."""
    parts.status.protocol = "range"
    given = {f"{name}-1": share for name, share in assignments.items()}
    parts.logged.replay(generation_record(parts.status, parts.roster.members.values(), None, given))
    return given


def test_a_finished_rebalance_has_its_triggers_and_the_partitions_that_moved() -> None:
    parts = Parts(member("a"), member("b"))
    generation(parts, a=assignment(orders=[0, 1]))
    parts.history.note(trigger("member joined"))
    parts.history.note(trigger("member left", 5))
    fx = parts.effects(100)
    after = {"a-1": assignment(orders=[0]), "b-1": assignment(orders=[1])}
    parts.history.finish(history.STABLE, 1, after, fx)
    value = written(fx)
    assert (value.outcome, value.generation, value.leader, value.members) == ("stable", 1, "a-1", 2)
    assert (value.started_at, value.ended_at) == (START, START + 100)
    assert [each.kind for each in value.triggers] == ["member joined", "member left"]
    assert value.moves == (r.PartitionMove("orders", 1, "a-1", "b-1"),)
    assert value.partitions_kept == 1
    assert fx.timers == {HISTORY_TIMER: None}


def test_a_static_member_keeps_its_partitions_under_its_new_ids() -> None:
    parts = Parts(member("a"))
    generation(parts, a=assignment(orders=[0]))
    parts.history.note(trigger())
    parts.history.renamed("a-1", "b-1")
    parts.history.renamed("b-1", "c-1")
    fx = parts.effects()
    parts.history.finish(history.STABLE, 1, {"c-1": assignment(orders=[0])}, fx)
    assert (written(fx).partitions_kept, written(fx).moves) == (1, ())


def test_the_last_member_is_named_if_the_others_waited_for_it() -> None:
    parts = Parts(member("a"), member("b"))
    parts.history.note(trigger())
    parts.history.start(["a-1"], now=START)
    parts.history.arrived("b-1", now=START + history.WORTH_NAMING)
    parts.history.all_joined(["b-1", "a-1"], now=START + 1_234)
    assert parts.history.trace is not None
    assert parts.history.trace.joined_at == START + 1_234
    assert [(each.who.member_id, each.waited, each.removed) for each in parts.history.trace.late] == [
        ("b-1", history.WORTH_NAMING, False)
    ]


def test_a_long_rebalance_is_written_again_only_if_the_group_waits_for_others() -> None:
    parts = Parts(member("a"), member("b"))
    a, b = parts.roster.members.values()
    parts.history.note(trigger())
    fx = parts.effects(1_000)
    parts.history.tell([a, b], fx)
    assert [each.member_id for each in written(fx).waiting_for] == ["a-1", "b-1"]
    assert fx.timers == {HISTORY_TIMER: START + 1_000 + history.TELL_AGAIN}
    parts.shard.histories.replay(r.HistoryKey(GROUP, 0), written(fx))
    fx = parts.effects(6_000)
    parts.history.tell([a, b], fx)
    assert fx.records == []
    parts.history.tell([a], fx)
    assert [each.member_id for each in written(fx).waiting_for] == ["a-1"]


def test_a_rebalance_that_a_restart_ended_is_written_as_interrupted() -> None:
    parts = Parts(member("a"))
    given = generation(parts, a=assignment(orders=[0]))
    fx = parts.effects()
    parts.history.tell([], fx)
    assert fx.records == []
    parts.history.note(trigger())
    parts.history.tell([], fx)
    parts.shard.histories.replay(r.HistoryKey(GROUP, 0), written(fx))
    parts.history.reset()
    fx = parts.effects(50)
    parts.history.tell([], fx)
    assert (written(fx).outcome, written(fx).number, written(fx).members) == ("interrupted", 0, len(given))


def test_a_static_member_that_returns_to_a_stable_group_changes_nothing_but_its_id() -> None:
    old, new = member("a", instance_id="i"), member("z", instance_id="i")
    parts = Parts(old, member("b"))
    parts.status.protocol = "range"
    new.assignment = b"A"
    returned = Return(parts.status, parts.roster, old, new)
    assert returned.assignments == {"z-1": b"A", "b-1": b""}
    value = returned.record()
    assert (value.leader, [each.member_id for each in value.members]) == ("z-1", ["z-1", "b-1"])
    leads, does_not_know = returned.response(skips_assignment=True), returned.response(skips_assignment=False)
    assert (leads.leader, leads.skip_assignment, len(leads.members)) == ("z-1", True, 2)
    assert (does_not_know.leader, does_not_know.skip_assignment, does_not_know.members) == ("a-1", False, ())
    assert list(parts.roster.members) == ["a-1", "b-1"]
