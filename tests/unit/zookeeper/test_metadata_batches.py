"""Batches and snapshots as the data of nodes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import OttlaError
from ottla.metadata.records import TopicDeleted
from ottla.zookeeper.batches import SnapshotPointer, encode_batch, epoch_of, parse_batch, parse_records, pieces


@given(st.lists(st.text(max_size=60).map(TopicDeleted)), st.integers(500, 1000))
def test_pieces_have_all_records_in_order_and_fit(records: list[TopicDeleted], limit: int) -> None:
    split = list(pieces(records, limit))
    assert [record for piece in split for record in piece.records] == records
    assert [record for piece in split for record in parse_records(piece.lines)] == records
    assert all(0 < len(piece.lines) <= limit for piece in split)
    for one, next_one in itertools.pairwise(split):
        assert len(one.lines) + len(next_one.lines.splitlines(keepends=True)[0]) > limit


def test_a_record_that_is_too_large() -> None:
    with pytest.raises(OttlaError, match=r"a TopicDeleted of \d+ bytes does not fit in a node of ZooKeeper"):
        list(pieces([TopicDeleted("x" * 100)], 100))


def test_a_batch_says_who_wrote_it() -> None:
    (piece,) = pieces([TopicDeleted("a"), TopicDeleted("b")])
    data = encode_batch(7, piece.lines)
    assert epoch_of(data) == 7
    assert parse_batch(data) == (7, piece.records)


def test_no_snapshot() -> None:
    assert SnapshotPointer.parse(b"") == SnapshotPointer(0, 0)
    assert SnapshotPointer.parse(SnapshotPointer(8, 2).encode()) == SnapshotPointer(8, 2)
