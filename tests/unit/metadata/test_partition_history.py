"""What `ottla cluster explain` knows: who led when, why it changed, who left the ISR and for how long."""

from __future__ import annotations

import json

from tests.unit.metadata.controlled import NOW, Controlled

from ottla.metadata import Metadata, history
from ottla.metadata.history import KEPT, LEAST_KEPT, Absence, Change, History, Move, absences, moves, reigns
from ottla.metadata.records import PartitionsChanged, TopicDeleted, from_json, to_json
from ottla.metadata.values import PartitionState


def story() -> Controlled:
    """Broker 3 is slow and catches up, then broker 1 fails and comes back."""
    cluster = Controlled(assignments=[[1, 2, 3]])
    cluster.now = NOW
    cluster.alter([1, 2])
    cluster.alter([1, 2, 3])
    cluster.fence(1)
    cluster.start(1)
    cluster.alter([1, 2, 3])
    return cluster


def test_the_history_says_who_led_when_and_why() -> None:
    changes = story().metadata.history.of("orders", 0)
    assert [(each.leader, each.since, each.until, each.reason) for each in reigns(changes)] == [
        (1, 0, NOW + 3, ""),
        (2, NOW + 3, None, "broker 1 stopped"),
    ]


def test_a_move_has_its_reason_and_the_time_without_a_leader() -> None:
    assert moves(story().metadata.history.of("orders", 0)) == [Move(NOW + 3, 1, 2, 0, "broker 1 stopped")]
    gone, back = Change(5, "broker 1 stopped", -1, 1, ()), Change(8, "broker 1 started", 1, 2, (1,))
    still = Change(9, "the reassignment ended", 1, 3, (1,))
    assert moves([Change(0, "", 1, 0, (1,)), gone, back, still]) == [Move(8, 1, 1, 3, "broker 1 stopped")]
    assert moves([gone, back]) == []


def test_the_history_says_who_left_the_isr_and_for_how_long() -> None:
    cluster = story()
    cluster.alter([2])
    assert absences(cluster.metadata.history.of("orders", 0)) == [
        Absence(3, NOW + 1, NOW + 2, "broker 3 is too slow"),
        Absence(1, NOW + 3, NOW + 5, "broker 1 stopped"),
        Absence(1, NOW + 6, None, "brokers 1 and 3 are too slow"),
        Absence(3, NOW + 6, None, "brokers 1 and 3 are too slow"),
    ]
    assert cluster.metadata.history.of("orders", 0)[-1].elr == (1, 3)


def test_a_partition_that_never_changed_has_no_history() -> None:
    assert Controlled(assignments=[[1]]).metadata.history.of("orders", 0) == ()
    assert Metadata().history.of("x", 0) == ()


def test_the_history_survives_a_snapshot() -> None:
    before = story().metadata
    after = Metadata()
    for record in before.snapshot():
        after.replay(from_json(json.loads(json.dumps(to_json(record)))))
    assert after.history == before.history
    assert len(after.history.of("orders", 0)) == 5


def test_a_deleted_topic_takes_its_history_along() -> None:
    cluster = story()
    cluster.metadata.replay(TopicDeleted("orders"))
    assert cluster.metadata.history == History()


def test_only_the_last_changes_are_kept() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    for _ in range(KEPT):
        cluster.alter([1, 2])
        cluster.alter([1, 2, 3])
    changes = cluster.metadata.history.of("orders", 0)
    assert len(changes) == KEPT
    assert changes[-1].at == cluster.now


def test_many_partitions_share_the_room() -> None:
    kept = History()
    states = [PartitionState.new([1, 2])] * (history.MAX_CHANGES // LEAST_KEPT)
    changes = dict(enumerate(states))
    for at in range(LEAST_KEPT + 2):
        kept.add(PartitionsChanged("orders", changes, "broker 1 stopped", at), states)
    assert [each.at for each in kept.of("orders", 7)] == list(range(LEAST_KEPT + 2))[-LEAST_KEPT:]
    records = list(kept.snapshot("orders"))
    assert sum(len(record.changes) for record in records) == len(states)
    assert max(sum(map(len, record.changes.values())) for record in records) <= history.CHANGES_PER_RECORD
